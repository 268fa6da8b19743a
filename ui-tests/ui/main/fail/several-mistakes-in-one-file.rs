use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topik = "clicks", key = UserId, value = Event)]
struct Clicks;

#[derive(Key, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[key(codec = Json)]
struct Shelf(usize);

#[processor(input = (UserId, Event), output = Session)]
struct P {
    #[stat]
    open: Keyed<Session>,
    #[timer]
    idle: Timer,
}

#[handlers]
impl P {
    #[process]
    fn on_event(&mut self, event: Record<UserId, Event>) -> Result<()> {
        Ok(())
    }

    #[on_timer(idle)]
    fn close(&mut self, fired: Fired<OrderId>, cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }
}

#[topology]
fn pipeline(t: &mut Topology) {
    let events = t.source::<Events>();
    events.map_values(|e| e.count);
    t.source::<Orders>().map_values(|_| Event { region: String::new(), count: 1 }).process::<Sessionize>().discard();
}

fn main() {}
