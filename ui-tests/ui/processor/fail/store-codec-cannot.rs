use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[processor(input = (UserId, Event))]
struct P {
    #[store(codec = Utf8)]
    last: KeyValueStore<UserId, Event>,
}

#[handlers]
impl P {
    #[process]
    fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
        self.last.put(&event.key, event.value)
    }
}

fn main() {}
