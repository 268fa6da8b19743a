use stoat_core::prelude::*;

// Keys are JSON strings, in quotes; the timer's codec writes them without.
#[source(topic = "visits", key = String, key_codec = Json, value = String, value_codec = Utf8)]
struct Visits;

#[processor(input = (String, String))]
struct LastPage {
    #[timer]
    away: Timer<String, Utf8>,
}

#[handlers]
impl LastPage {
    #[process]
    fn on_visit(&mut self, visit: Record<String, String>, _cx: &mut Context<Self>) -> Result<()> {
        self.away.set(visit.timestamp)
    }

    #[on_timer(away)]
    fn ended(&mut self, _fired: Fired<String>, _cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }
}

#[topology]
fn lane_split(t: &mut Topology) {
    t.source::<Visits>().process::<LastPage>();
}

fn main() {}
