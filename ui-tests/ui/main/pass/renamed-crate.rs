//! The runtime under another name.

use stoat_ui_tests::renamed as stoat;
use stoat::prelude::{Context, End, Fired, Key, KeyValueStore, Keyed, Record, Result, Timer};

#[derive(Key, Clone, PartialEq, Eq, Hash)]
#[key(codec = stoat::codec::Be, crate = stoat)]
struct Id(u64);

#[stoat::source(topic = "in", key = Id, value = u64, decode_only, key_codec = stoat::codec::Be, idleness = "1s", crate = stoat)]
struct In;

#[stoat::source(topic = "other", key = Id, value = u64, crate = stoat)]
struct Other;

#[stoat::sink(topic = "out", value = u64, key = Option<Id>, crate = stoat)]
struct Out;

#[stoat::processor(input = (Id, u64), output = (Option<Id>, u64), crate = stoat)]
struct Last {
    #[state]
    last: Keyed<u64>,
    #[timer(foreign)]
    idle: Timer,
    #[store]
    by_id: KeyValueStore<Id, u64>,
}

#[stoat::handlers(crate = stoat)]
impl Last {
    #[process]
    fn on_record(&mut self, record: Record<Id, u64>, cx: &mut Context<Self>) -> Result<()> {
        self.idle.set_for(&Id(1), record.timestamp)?;
        self.last.put(record.value)
    }

    #[on_timer(idle)]
    fn close(&mut self, fired: Fired<Id>, cx: &mut Context<Self>) -> Result<()> {
        cx.forward(None, 1)
    }

    #[punctuate(every = "1s", over = idle)]
    fn tick(&mut self, cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }

    #[punctuate(every = "1s")]
    fn tock(&mut self, cx: &mut Context<Self>) -> Result<()> {
        let _: &mut Context<Self, End> = cx;
        Ok(())
    }
}

#[stoat::topology(crate = stoat)]
fn pipeline(t: &mut stoat::topology::Topology) {
    let numbers = t.source::<Other>();
    numbers.process::<Last>().sink::<Out>();
    t.source::<In>().discard();
}

mod program {
    #[super::stoat::main(super::pipeline, crate = super::stoat)]
    struct App;

    pub(super) const MAIN: fn() -> std::process::ExitCode = main;
}

fn main() {
    let _ = program::MAIN;
    assert!(pipeline::build().is_ok());
}
