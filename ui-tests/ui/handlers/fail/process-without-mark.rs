use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[processor(input = (UserId, Event), output = Session)]
struct P;

#[handlers]
impl P {
    fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
        cx.forward(Session { count: event.value.count })
    }
}

fn main() {}
