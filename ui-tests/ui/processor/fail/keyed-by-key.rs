use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[processor(input = (UserId, Event))]
struct P {
    #[state]
    open: Keyed<UserId, Session>,
}

#[handlers]
impl P {
    #[process]
    fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
        self.open.update(Session::default, |s| s.count += 1)
    }
}

fn main() {}
