use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline(t: &mut Topology) {
    let moved = t.source::<Events>().select_key(|_, e| UserId(e.region.clone()));
    moved.repartition().process::<Sessionize>().sink::<Sessions>();
}

fn main() {}
