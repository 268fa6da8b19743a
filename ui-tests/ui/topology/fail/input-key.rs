use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline(t: &mut Topology) {
    let orders = t.source::<Orders>().map_values(|o| Event { region: String::new(), count: o.cents as u32 });
    orders.process::<Sessionize>().discard();
}

fn main() {}
