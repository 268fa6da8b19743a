use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[processor(input = (UserId, Event), output = Session)]
struct P;

#[handlers]
impl P {
    #[process]
    async fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
        let shared = std::rc::Rc::new(event.value);
        std::future::ready(()).await;
        drop(shared);
        Ok(())
    }
}

fn main() {}
