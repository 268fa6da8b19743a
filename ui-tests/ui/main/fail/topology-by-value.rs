use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline(t: Topology) {
    t.source::<Events>().discard();
}

#[stoat_core::main(pipeline)]
struct App;
