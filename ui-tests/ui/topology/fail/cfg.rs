use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline(t: &mut Topology) {
    #[cfg(debug_assertions)]
    t.source::<Events>().discard();
    t.source::<Orders>().discard();
}

fn main() {}
