use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[processor(input = (UserId, Event), output = Session)]
struct P {
    #[state]
    open: Keyd<Session>,
    #[timer]
    idle: Tmer,
    #[store]
    all: KeyValueStor<UserId, Session>,
}

#[handlers]
impl P {
    #[process]
    fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }
    #[on_timer(idle)]
    fn close(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }
}

fn main() {}
