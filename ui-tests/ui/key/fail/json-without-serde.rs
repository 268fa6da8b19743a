use stoat_core::prelude::*;

#[derive(Key, Clone, PartialEq, Eq, Hash)]
#[key(codec = Json)]
struct Place {
    row: String,
    seat: u32,
}

#[source(topic = "seats", key = Place, value = u64)]
struct Seats;

#[topology]
fn pipeline(t: &mut Topology) {
    let by_place = t.source::<Seats>().group_by_key().count();
    by_place.to_stream().discard();
}

fn main() {}
