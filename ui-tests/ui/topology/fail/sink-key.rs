use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline(t: &mut Topology) {
    t.source::<Orders>().map_values(|_| Session::default()).sink::<Sessions>();
}

fn main() {}
