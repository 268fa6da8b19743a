use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[processor(input = (UserId, Event), output = Session)]
struct P;

#[handlers]
impl P {
    #[process]
    fn on_event(&mut self, event: Record<UserId, Event>, cx: Context<Self>) -> Result<()> {
        Ok(())
    }
}

fn main() {}
