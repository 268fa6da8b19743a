use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[processor(input = (UserId, Event))]
struct P {
    idle: Timer,
}

#[handlers]
impl P {
    #[process]
    fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
        self.idle.set(event.timestamp)
    }

    #[on_timer(idle)]
    fn close(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }
}

#[topology]
fn pipeline(t: &mut Topology) {
    t.source::<Events>().process::<P>();
}

fn main() {}
