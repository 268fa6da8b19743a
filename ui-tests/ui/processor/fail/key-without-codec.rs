use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[processor(input = (Region, Event), output = u64)]
struct P {
    #[state]
    seen: Keyed<u64>,
    #[timer(foreign)]
    idle: Timer,
    #[store]
    other: KeyValueStore<Region, u64>,
}

#[handlers]
impl P {
    #[process]
    fn on_event(&mut self, event: Record<Region, Event>, cx: &mut Context<Self>) -> Result<()> {
        self.seen.put(1)?;
        self.idle.set_for(&event.key, event.timestamp)
    }

    #[on_timer(idle)]
    fn close(&mut self, fired: Fired<Region>, cx: &mut Context<Self>) -> Result<()> {
        self.other.put(&fired.key, 1)?;
        self.seen.take()?.map_or(Ok(()), |n| cx.forward(n))
    }
}

fn main() {}
