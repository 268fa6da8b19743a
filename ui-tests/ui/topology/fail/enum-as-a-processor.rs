use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[processor(input = (UserId, Event))]
enum P {}

#[handlers]
impl P {
    #[process]
    fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }
}

#[topology]
fn pipeline(t: &mut Topology) {
    t.source::<Events>().process::<P>();
}

fn main() {}
