use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[processor(input = (UserId, Event), output = Session)]
struct P<T: Send + 'static> {
    limit: T,
}

#[handlers]
impl<T: Send + 'static> P<T> {
    #[process]
    fn on_event(&mut self, event: Record<UserId, Order>, cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }
}

fn main() {}
