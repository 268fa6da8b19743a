use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[processor(input = (UserId, Event))]
struct P {
    #[state]
    open: std::collections::HashMap<UserId, Session>,
}

#[handlers]
impl P {
    #[process]
    fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
        self.open.entry(event.key).or_default().count += 1;
        Ok(())
    }
}

fn main() {}
