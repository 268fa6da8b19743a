use std::any::Any;
use std::sync::{Arc, Mutex};

use super::{Inbox, Next, Parcel, Passed};
use crate::engine::message::Control;
use crate::engine::tag::{Path, Tag};
use crate::error::Result;
use crate::id::{Epoch, SubTopologyId};
use crate::operator::{Child, CurrentKey, HandBatch, LaneCx, Operator, Outputs};
use crate::time::{Now, Timestamp};

fn tag(number: u64, ordinals: &[u32]) -> Tag {
    let mut path = Path::default();
    for &o in ordinals {
        path.descend(o);
    }
    Tag { number, path }
}

struct Tags(Vec<Tag>);

impl HandBatch for Tags {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn tag(&self, i: usize) -> &Tag {
        &self.0[i]
    }

    fn weight(&self) -> usize {
        10
    }

    fn deliver(&mut self, i: usize, entry: Child, cx: &mut LaneCx<'_>) -> Result<()> {
        let mut node = cx.nodes[entry.0 as usize].take().expect("it is there");
        let result = node.push(&mut self.0[i], cx);
        cx.nodes[entry.0 as usize] = Some(node);
        result
    }
}

struct Write(Arc<Mutex<Vec<Tag>>>);

impl Operator for Write {
    fn push(&mut self, tag: &mut dyn Any, _: &mut LaneCx<'_>) -> Result<()> {
        let tag: &mut Tag = tag.downcast_mut().expect("tests send tags");
        self.0.lock().unwrap().push(tag.clone());
        Ok(())
    }
}

/// Two senders with one queue each; the first has a second one.
fn inbox() -> Inbox {
    Inbox::new(2, vec![(0, Child(0)), (0, Child(0)), (1, Child(0))])
}

fn hand(tags: &[Tag]) -> Parcel {
    Parcel::Hand(Box::new(Tags(tags.to_vec())))
}

fn barrier(number: u64, watermark: i64) -> Parcel {
    Parcel::Control(Passed { number, control: Control::Barrier(Epoch(1)), watermark: Timestamp(watermark) })
}

fn deliver(inbox: &mut Inbox, most: usize) -> Vec<Tag> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut nodes: Vec<Option<Box<dyn Operator>>> = vec![Some(Box::new(Write(seen.clone())))];
    let mut cx = LaneCx {
        nodes: &mut nodes,
        number: 0,
        path: Path::default(),
        key: CurrentKey::default(),
        now: Now { watermark: Timestamp::MIN, wall: Timestamp::MIN },
        origin: None,
        outputs: &mut Outputs::default(),
        sink_partitions: &[],
        gate: &mut crate::gate::LaneGate::default(),
    };
    let n = inbox.deliver(most, &mut cx).unwrap();
    drop(nodes);
    let seen = Arc::into_inner(seen).unwrap().into_inner().unwrap();
    assert_eq!(n, seen.len());
    seen
}

#[test]
fn queues_are_merged_in_ingest_order_by_number_then_by_path() {
    let mut inbox = inbox();
    let queues = [
        vec![tag(1, &[0]), tag(4, &[0, 1]), tag(9, &[])],
        vec![tag(2, &[]), tag(4, &[0, 0]), tag(4, &[1]), tag(12, &[])],
        vec![tag(3, &[]), tag(5, &[7]), tag(10, &[])],
    ];
    let mut want: Vec<Tag> = queues.iter().flatten().cloned().collect();
    want.sort();
    for (slot, tags) in queues.iter().enumerate() {
        // One by one: a queue of several parcels.
        for t in tags {
            inbox.put(slot, hand(std::slice::from_ref(t))).unwrap();
        }
    }
    inbox.frontier(0, tag(20, &[]));
    inbox.frontier(1, tag(20, &[]));
    let mut got = deliver(&mut inbox, 3);
    assert_eq!(got.len(), 3, "a step takes no more than it is told");
    got.extend(deliver(&mut inbox, 100));
    assert_eq!(got, want);
    assert_eq!(inbox.used().count(), 10);
    assert_eq!(inbox.lowest(), u64::MAX);
}

#[test]
fn a_record_waits_while_an_empty_queue_may_still_get_a_smaller_one() {
    let mut inbox = inbox();
    inbox.put(0, hand(&[tag(5, &[1]), tag(7, &[])])).unwrap();
    inbox.put(2, hand(&[tag(8, &[])])).unwrap();
    assert_eq!(inbox.next(), Next::Wait);
    // The sender's other queue may still get this very tag.
    inbox.frontier(0, tag(5, &[1]));
    assert_eq!(deliver(&mut inbox, 9), []);
    inbox.frontier(0, tag(5, &[2]));
    assert_eq!(deliver(&mut inbox, 9), [tag(5, &[1])]);
    inbox.frontier(0, tag(7, &[0]));
    assert_eq!(deliver(&mut inbox, 9), [tag(7, &[])]);
    assert_eq!(inbox.bound(), tag(7, &[0]), "what the lane may still send begins where it may still receive");
}

#[test]
fn a_control_message_is_taken_once_when_all_queues_have_come_to_it_with_the_smallest_watermark() {
    let mut inbox = inbox();
    inbox.put(0, barrier(6, 30)).unwrap();
    inbox.put(1, barrier(6, 30)).unwrap();
    inbox.frontier(0, tag(7, &[]));
    let mut caused = Tag::record(6);
    caused.path = Path::fired(SubTopologyId(0), Timestamp(1), b"k", 1);
    inbox.put(2, hand(std::slice::from_ref(&caused))).unwrap();
    assert_eq!(deliver(&mut inbox, 9), [caused], "what a message causes upstream comes before it");
    assert_eq!(inbox.next(), Next::Wait);
    inbox.put(2, barrier(6, 20)).unwrap();
    assert_eq!(inbox.next(), Next::Control);
    assert_eq!(inbox.bound(), Tag::control(6));
    let taken = inbox.take_control();
    assert_eq!((taken.number, taken.watermark), (6, Timestamp(20)));
    assert_eq!(inbox.next(), Next::Wait);
    assert_eq!(inbox.lowest(), u64::MAX);
}

#[test]
fn a_sender_that_goes_back_is_a_defect() {
    let mut inbox = inbox();
    inbox.put(2, hand(&[tag(5, &[1])])).unwrap();
    assert!(inbox.put(2, hand(&[tag(5, &[0])])).is_err(), "behind what it sent");
    inbox.frontier(0, tag(4, &[]));
    assert!(inbox.put(0, hand(&[tag(3, &[])])).is_err(), "behind what it said");
}
