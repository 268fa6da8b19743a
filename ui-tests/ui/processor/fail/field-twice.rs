use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[processor(input = (UserId, Event), output = Session)]
struct P {
    #[state]
    open: Keyed<Session>,
    #[state]
    open: Keyed<Session>,
}

#[handlers]
impl P {
    #[process]
    fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }
}

fn main() {}
