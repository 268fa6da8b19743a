use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[derive(Default)]
struct Open {
    clicks: u64,
}

#[processor(input = (UserId, Event))]
struct P {
    #[state]
    open: Keyed<Open>,
}

#[handlers]
impl P {
    #[process]
    fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
        self.open.update(Open::default, |o| o.clicks += 1)
    }
}

fn main() {}
