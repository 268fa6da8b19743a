use stoat_ui_tests::*;

#[topology]
fn events(t: &mut Topology) {
    t.source::<Events>().discard();
}

#[stoat_core::main(events)]
struct App;
