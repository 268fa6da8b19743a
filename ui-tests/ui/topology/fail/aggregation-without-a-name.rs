use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[sink(topic = "counts", key = UserId, value = u64)]
struct Counts;

#[topology]
fn pipeline(t: &mut Topology) {
    t.source::<Events>().group_by_key().count().to_stream().sink::<Counts>();
}

fn main() {}
