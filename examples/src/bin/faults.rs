//! Kills `word_count` and `sessions` with SIGKILL at random moments, restarts them with other lane counts, once without
//! their stores, and compares what they wrote with a model. Prints a table; ends with 1 if anything is lost or doubled.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use stoat_examples::faults::{Plan, Report, group_forgotten, sessions, word_count};
use stoat_examples::say;

#[derive(Debug, Parser)]
struct Args {
    /// Kafka; absent: the embedded broker
    #[arg(long, value_name = "HOST:PORT")]
    bootstrap_servers: Option<String>,
    /// Input records of each story
    #[arg(long, default_value_t = 1_000_000)]
    records: usize,
    /// How often each story is killed
    #[arg(long, default_value_t = 20)]
    kills: u32,
    /// Chooses input and moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long a process lives at most before it is killed, in ms
    #[arg(long, default_value_t = 4_000)]
    life: u64,
    /// Only this story
    #[arg(long, value_name = "word_count|sessions")]
    only: Option<String>,
    /// Instead: lets the broker forget the consumer group (it needs `offsets.retention.minutes=1`), then goes on
    #[arg(long, requires = "bootstrap_servers")]
    group_forgotten: bool,
}

type Run = fn(&Plan) -> Result<Report, String>;

/// How long a broker with `offsets.retention.minutes=1` takes at most to forget a group.
const FORGETS: Duration = Duration::from_mins(10);

fn main() -> ExitCode {
    let args = Args::parse();
    let here = std::env::current_exe().unwrap_or_default();
    let state = std::env::temp_dir().join(format!("stoat-faults-{}", std::process::id()));
    let plan = |name: &str| Plan {
        exe: here.with_file_name(name),
        bootstrap: args.bootstrap_servers.clone(),
        application_id: format!("faults-{}-{}", name.replace('_', "-"), std::process::id()),
        state_dir: PathBuf::from(&state),
        records: args.records,
        kills: args.kills,
        life: (Duration::from_millis(args.life / 8), Duration::from_millis(args.life)),
        lanes: vec![1, 3, 16],
        wipe_after: Some(args.kills / 2),
        seed: args.seed,
    };
    let mut good = true;
    let forgotten: [(&str, Run); 1] = [("word_count", |plan| group_forgotten(plan, FORGETS))];
    let killed: [(&str, Run); 2] = [("word_count", word_count), ("sessions", sessions)];
    for (name, story) in if args.group_forgotten { &forgotten[..] } else { &killed[..] } {
        if args.only.as_deref().is_some_and(|o| o != *name) {
            continue;
        }
        match story(&plan(name)) {
            Ok(r) => {
                say!("{name}: {} kills, {} records in, {} out", args.kills, r.input, r.output);
                say!("  lost {}, doubled {}, changelog entries that differ {}", r.lost, r.doubled, r.changelog_wrong);
                for (i, (held, replayed)) in r.restores.iter().enumerate() {
                    say!("  start {:>2}: changelogs hold {held} records, {replayed} replayed", i + 1);
                }
                say!("  the last run had {} records left to process", r.left_for_last);
                good &= r.lost + r.doubled + r.changelog_wrong == 0;
            }
            Err(e) => {
                eprintln!("{name}: {e}");
                good = false;
            }
        }
    }
    // What is left behind is only of use after a failure.
    if good {
        let _ = std::fs::remove_dir_all(&state);
    } else {
        eprintln!("state is kept in {}", state.display());
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
