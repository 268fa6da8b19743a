use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline(t: &mut Topology) {
    let [a, b] = t.source::<Events>().fan_out();
    let by_region = a.select_key(|_, e| UserId(e.region.clone())).repartition();
    by_region.discard();
    b.select_key(|_, e| UserId(e.count.to_string())).repartition().named("by_region").discard();
}

fn main() {}
