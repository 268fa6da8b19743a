use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[processor(input = (OrderId, Event), output = Event)]
struct P {
    #[timer]
    idle: Timer,
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

#[topology]
fn events(t: &mut Topology) {
    t.source::<Events>().process::<P>().discard();
}

fn main() {}
