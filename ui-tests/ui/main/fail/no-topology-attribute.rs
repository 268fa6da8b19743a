use stoat_core::prelude::*;
use stoat_ui_tests::*;

fn pipeline(t: &mut Topology) {
    t.source::<Events>().discard();
}

#[stoat_core::main(pipeline)]
struct App;
