//! Several processes of one application (I-10).

use super::counts::{Counts, counts, line};
use super::*;
use crate::error::ErrorKind;

fn exact(world: &World, fed: u64) {
    let mut seen: Vec<u64> = world
        .records("counts")
        .iter()
        .map(|r| u64::from_be_bytes(r.value.clone().unwrap().try_into().unwrap()))
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (1..=fed).collect::<Vec<_>>(), "nothing lost, nothing doubled");
}

#[test]
fn t34_i10_of_two_processes_exactly_one_goes_on() {
    let graph = graph_of(counts);
    for seed in seeds(2_000, 60) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        let faults = Faults {
            timed_out: [0, 60][seed as usize % 2],
            slow: [0, 300, 600][seed as usize % 3],
            ..Faults::default()
        };
        world.cluster.set_faults(faults);
        let other = TwinDisk::new();
        let mut a = world.engine(&graph, 2);
        let mut b = world.engine_on(&other, &graph, 3);
        let (mut ended_a, mut ended_b) = (None, None);
        let mut fed = 0;
        let late = world.random.below(400);
        // Each sleeps now and then, so that the other gets between any two of its steps.
        let (mut sleep_a, mut sleep_b) = (0, late);
        // The pauses after a fence alone may take some seconds.
        for turn in 0..8_000 {
            world.now += 1;
            if turn % 5 == 0 && fed < 100 {
                world.cluster.append("in", fed % 3, format!("k{fed}").as_bytes(), b"x", START + i64::from(fed));
                fed += 1;
            }
            if ended_a.is_none() && turn >= sleep_a {
                ended_a = a.advance(world.now, wall(world.now)).err();
            }
            if ended_b.is_none() && turn >= sleep_b {
                ended_b = b.advance(world.now, wall(world.now)).err();
            }
            let naps = [0, 0, 0, 1, 2, 5, 40, 200];
            if turn >= sleep_a && turn < 2_000 {
                sleep_a = turn + world.random.one_of(&naps);
            }
            if turn >= sleep_b && turn < 2_000 {
                sleep_b = turn + world.random.one_of(&naps);
            }
        }
        let ended: Vec<_> = [&ended_a, &ended_b].into_iter().flatten().collect();
        assert_eq!(ended.len(), 1, "{ended:?}");
        assert_eq!(ended[0].kind(), ErrorKind::Fenced, "{}", ended[0]);
        assert_eq!(ended[0].exit_code(), 3);
        let winner = if ended_a.is_some() { b } else { a };
        world.cluster.set_faults(Faults::default());
        world.finish(winner);
        exact(&world, 100);
        assert!(!world.cuts(&graph).is_empty());
    }
}

#[test]
fn i10_a_frozen_owner_that_wakes_after_another_has_claimed_changes_nothing() {
    let graph = graph_of(counts);
    for seed in seeds(2_100, 40) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        world.cluster.set_faults(Faults { slow: 200, ..Faults::default() });
        let mut first = world.engine(&graph, 2);
        let frozen_at = world.random.below(200);
        let mut fed = 0;
        while first.status().state != State::Running {
            world.turn(&mut first).unwrap();
        }
        for _ in 0..frozen_at {
            world.turn(&mut first).unwrap();
            if world.random.below(2) == 0 {
                world.cluster.append("in", fed % 3, format!("k{fed}").as_bytes(), b"x", START + i64::from(fed));
                fed += 1;
            }
        }
        // The second is on another machine, and has its own directory.
        let mine = std::mem::replace(&mut world.disk, TwinDisk::new());
        let second = world.engine(&graph, 3);
        world.finish(second);
        let before = world.cluster.applied().len();
        let fenced = world.cluster.producer_epoch("app");
        let error = world.run_to_error(&mut first);
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        assert_eq!(world.cluster.applied().len(), before, "it has written nothing");
        assert_eq!(world.cluster.producer_epoch("app"), fenced, "it has fenced nobody");
        drop(first);
        mine.crash();
        world.disk = mine;
        while fed < 60 {
            world.cluster.append("in", fed % 3, format!("k{fed}").as_bytes(), b"x", START + i64::from(fed));
            fed += 1;
        }
        world.run(&graph, 2);
        exact(&world, fed as u64);
        assert!(!world.cuts(&graph).is_empty());
    }
}

#[test]
fn n3_i10_fencing_without_another_owner_never_stops_a_process() {
    let graph = graph_of(counts);
    for seed in seeds(2_200, 6) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        let faults = Faults { timed_out: 400, slow: 200, ..Faults::default() };
        world.torment(&graph, 100, faults, line);
        world.check_model(&graph, Counts::default());
    }
}

#[test]
fn i10_a_group_with_members_stops_the_start_after_a_wait() {
    let graph = graph_of(counts);
    let mut world = World::new(1);
    world.cluster.set_members(&["consumer-1"]);
    let mut e = world.engine(&graph, 2);
    for _ in 0..10_000 {
        world.turn(&mut e).unwrap();
    }
    world.cluster.set_members(&[]);
    world.finish(e);
    world.cluster.set_members(&["consumer-1"]);
    world.set("stoat.start.group-wait", "100ms");
    let mut e = world.engine(&graph, 2);
    let error = world.run_to_error(&mut e);
    assert!(error.to_string().contains("consumer-1") && error.exit_code() == 3, "{error}");
}
