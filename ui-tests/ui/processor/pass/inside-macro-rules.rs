//! The macros work on what a macro of the user writes.

use stoat_core::prelude::*;
use stoat_ui_tests::*;

macro_rules! counter {
    ($processor:ident, $source:ident, $sink:ident, $topology:ident, $topic:literal, $key:ty, $value:ty, $codec:path) => {
        #[source(topic = $topic, key = $key, value = $value)]
        struct $source;

        #[sink(topic = "counts", key = $key, value = u64, value_codec = $codec)]
        struct $sink;

        #[processor(input = ($key, $value), output = u64)]
        struct $processor {
            #[state(codec = $codec)]
            seen: Keyed<u64>,
        }

        #[handlers]
        impl $processor {
            #[process]
            fn on_record(&mut self, record: Record<$key, $value>, cx: &mut Context<Self>) -> Result<()> {
                let n = self.seen.get()?.copied().unwrap_or(0) + 1;
                self.seen.put(n)?;
                cx.forward(n)
            }
        }

        #[topology]
        fn $topology(t: &mut Topology) {
            let counted = t.source::<$source>().process::<$processor>();
            counted.sink::<$sink>();
        }
    };
}

counter!(CountEvents, EventsIn, EventsOut, count_events, "a", UserId, Event, Be);
counter!(CountOrders, OrdersIn, OrdersOut, count_orders, "b", OrderId, Order, Be);

fn main() {
    let graph = count_events::build().unwrap();
    assert_eq!(graph.nodes.len(), 3);
    assert!(count_orders::build().is_ok());
}
