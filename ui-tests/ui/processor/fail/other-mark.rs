use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[processor(input = (UserId, Event))]
struct P {
    #[state]
    idle: Timer,
    #[timer]
    open: Keyed<Session>,
    #[state]
    last: KeyValueStore<UserId, Event>,
    #[store(clock = wall)]
    again: Timers,
}

#[handlers]
impl P {
    #[process]
    fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
        self.last.put(&event.key, event.value)?;
        self.idle.set(event.timestamp)?;
        self.again.set(event.timestamp)
    }

    #[on_timer(idle)]
    fn close(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
        self.open.take().map(drop)
    }

    #[on_timer(again)]
    fn again(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }
}

fn main() {}
