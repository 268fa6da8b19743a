//! The function's name is free for bindings, and a module may have it.

use stoat_core::prelude::*;
use stoat_ui_tests::*;

mod sessions {
    use super::*;

    #[topology]
    pub(crate) fn sessions(t: &mut Topology) {
        t.source::<Events>().process::<Sessionize>().sink::<Sessions>();
    }
}

#[topology]
fn report(t: &mut Topology) {
    let events = t.source::<Events>();
    let sessions = events.process::<Sessionize>();
    sessions.sink::<Sessions>();
}

mod tests {
    #[allow(unused_imports)]
    use super::*;

    pub(super) fn bindings() -> usize {
        let report = vec![1];
        report.len()
    }
}

fn main() {
    assert_eq!(tests::bindings(), 1);
    assert!(sessions::sessions::build().is_ok());
    assert!(report::build().is_ok());
}
