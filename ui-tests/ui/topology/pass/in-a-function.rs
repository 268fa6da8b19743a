//! Topologies inside of functions, with types of their own, and in modules with every visibility.

use stoat_core::prelude::*;
use stoat_ui_tests::*;

mod wiring {
    pub(crate) mod inner {
        use stoat_ui_tests::*;

        use stoat_core::prelude::*;

        #[topology]
        pub fn everywhere(t: &mut Topology) {
            t.source::<Events>().discard();
        }

        #[topology]
        pub(in crate::wiring) fn here(t: &mut Topology) {
            t.source::<Events>().discard();
        }

        #[topology]
        pub(super) fn above(t: &mut Topology) {
            t.source::<Events>().discard();
        }
    }

    pub(crate) fn nodes() -> usize {
        inner::here::build().unwrap().nodes.len() + inner::above::build().unwrap().nodes.len()
    }
}

// An alias of both, the function and what belongs to it.
use wiring::inner::everywhere as somewhere;

fn local() -> usize {
    #[source(topic = "local", key = UserId, value = Event)]
    struct Local;

    #[processor(input = (UserId, Event))]
    struct Seen {
        #[state]
        seen: Keyed<u32>,
    }

    #[handlers]
    impl Seen {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, _cx: &mut Context<Self>) -> Result<()> {
            self.seen.put(event.value.count)
        }
    }

    #[topology]
    fn pipeline(t: &mut Topology) {
        t.source::<Local>().process::<Seen>();
    }

    let pipeline = pipeline::build().expect("the topology is valid");
    pipeline.stores.len()
}

fn main() {
    assert_eq!(local(), 1);
    assert_eq!(wiring::nodes(), 4);
    assert_eq!(somewhere::build().unwrap().name, "everywhere");
    let _: fn(&mut Topology) = somewhere;
}
