//! Each call of the broker fails in each way: the engine does what the table says, and the result stays exact.

use super::super::remedy::{Call, Remedy, remedy};
use super::counts::{Counts, counts, line};
use super::*;
use crate::broker::BrokerErrorKind as Kind;
use crate::broker::sim::SimCall;
use crate::error::ErrorKind;

const KINDS: [Kind; 9] = [
    Kind::Retriable,
    Kind::Unknown,
    Kind::Abort,
    Kind::Refused(None),
    Kind::Fenced,
    Kind::UnknownTopic,
    Kind::OutOfRange,
    Kind::Unauthorized,
    Kind::Fatal,
];

/// Runs with one failure; returns how often the engine restarted in place, or what ended it.
fn fail_once(world: &mut World, graph: &Graph, call: Call, kind: Kind) -> Result<u32> {
    let epochs = "app-stoat-epochs".to_owned();
    let injected = match call {
        Call::Ask => SimCall::Ask,
        Call::Init => SimCall::Init,
        Call::Claim | Call::Epoch => SimCall::Transact,
        Call::Read => SimCall::Read("in".to_owned()),
        Call::Restore => SimCall::Read(epochs),
    };
    let running = matches!(call, Call::Epoch | Call::Read);
    let record = line(&mut world.random, 19);
    world.feed(&record);
    if !running {
        world.cluster.fail_next(injected.clone(), kind);
    }
    let mut engine = world.engine(graph, 2);
    while engine.status().run.commits == 0 {
        world.turn(&mut engine)?;
    }
    if running {
        world.cluster.fail_next(injected, kind);
    }
    for n in 20..40 {
        let record = line(&mut world.random, n);
        world.feed(&record);
    }
    let (mut settled, mut turns) = (0, 0);
    while settled < 50 {
        turns += 1;
        assert!(turns < 20_000, "no progress: {:?}", engine.status());
        world.turn(&mut engine)?;
        let status = engine.status();
        settled = if status.state == State::Running && status.run.settled { settled + 1 } else { 0 };
    }
    let restarts = engine.status().restarts;
    world.finish(engine);
    Ok(restarts)
}

#[test]
fn i08_i09_i10_each_failure_of_each_call_ends_as_the_table_says_and_loses_nothing() {
    let graph = graph_of(counts);
    for (i, call) in Call::ALL.into_iter().enumerate() {
        for (j, kind) in KINDS.into_iter().enumerate() {
            let seed = 8_000 + (i * 100 + j) as u64;
            let _seed = Seed(seed);
            let case = format!("{call:?} fails with {kind:?}");
            let mut world = World::new(seed);
            for n in 0..20 {
                let record = line(&mut world.random, n);
                world.feed(&record);
            }
            if call == Call::Restore {
                // There must be something to read back.
                world.run(&graph, 3);
                let record = line(&mut world.random, 19);
                world.feed(&record);
            }
            // Nothing that counts is borne.
            world.set("stoat.restart.max-faults", "0");
            let ended = fail_once(&mut world, &graph, call, kind);
            assert_eq!(world.cluster.failures_left(), 0, "{case}: it did fail");
            match (remedy(call, kind), ended) {
                // A commit that needed a second try is followed by an initialisation.
                (Remedy::Again | Remedy::InitAndAgain | Remedy::LookAgain, Ok(0))
                | (Remedy::CommitAgain | Remedy::Gate | Remedy::Recover { counts: false, .. }, Ok(1)) => {}
                (Remedy::Recover { counts: true, .. }, Err(e)) => {
                    assert_eq!(e.kind(), ErrorKind::FaultBudget, "{case}: {e}");
                }
                (Remedy::End(want), Err(e)) => assert_eq!(e.kind(), want, "{case}: {e}"),
                (want, got) => panic!("{case}: {want:?}, but {got:?}"),
            }
            world.set("stoat.restart.max-faults", "1");
            let again = fail_once(&mut world, &graph, call, kind);
            match remedy(call, kind) {
                Remedy::End(_) => assert!(again.is_err(), "{case}"),
                _ => assert!(again.is_ok(), "{case}: within the budget it goes on: {again:?}"),
            }
            world.crash();
            world.run(&graph, 3);
            world.check_model(&graph, Counts::default());
        }
    }
}
