//! Kills `word_count` and `sessions` with SIGKILL at random moments, restarts them with other lane counts, once without
//! their stores, and compares what they wrote with a model. Prints a table; ends with 1 if anything is lost or doubled.
//!
//! With `--chaos` it starts an Apache Kafka of its own and runs `word_count`, `sessions` and `money` on it, under load for the
//! whole run, while it kills them, restarts and halts the broker, and cuts the connections.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use stoat_examples::faults::{Chaos, Chaotic, Plan, Report, chaos, group_forgotten, sessions, word_count};
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
    #[arg(long, value_name = "word_count|sessions|money")]
    only: Option<String>,
    /// Instead: lets the broker forget the consumer group (it needs `offsets.retention.minutes=1`), then goes on
    #[arg(long, requires = "bootstrap_servers")]
    group_forgotten: bool,
    /// Instead: starts an Apache Kafka of its own and torments that too; `cargo xtask chaos` does all it needs
    #[arg(long, conflicts_with_all = ["bootstrap_servers", "group_forgotten"])]
    chaos: bool,
    /// The folder of Kafka's jars; absent: what `STOAT_TEST_KAFKA_JARS` says
    #[arg(long, value_name = "FOLDER", requires = "chaos")]
    kafka_jars: Option<PathBuf>,
    /// How often the broker is restarted, half of the times after SIGKILL
    #[arg(long, default_value_t = 20)]
    restarts: u32,
    /// How often the broker stands still
    #[arg(long, default_value_t = 20)]
    stalls: u32,
    /// How often the connections are cut
    #[arg(long, default_value_t = 30)]
    cuts: u32,
    /// Input records per second of each story, with `--chaos`
    #[arg(long, default_value_t = 1_000)]
    per_second: usize,
}

type Run = fn(&Plan) -> Result<Report, String>;

/// How long a broker with `offsets.retention.minutes=1` takes at most to forget a group.
const FORGETS: Duration = Duration::from_mins(10);

fn main() -> ExitCode {
    let args = Args::parse();
    let here = std::env::current_exe().unwrap_or_default();
    let state = std::env::temp_dir().join(format!("stoat-faults-{}", std::process::id()));
    if args.chaos {
        return all_at_once(&args, &here, &state);
    }
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

fn all_at_once(args: &Args, here: &Path, dir: &Path) -> ExitCode {
    let jars = args.kafka_jars.clone().or_else(|| std::env::var_os("STOAT_TEST_KAFKA_JARS").map(PathBuf::from));
    let Some(jars) = jars else {
        eprintln!("--chaos needs --kafka-jars FOLDER, or `cargo xtask chaos`, which fetches them");
        return ExitCode::from(2);
    };
    let plan = Chaos {
        jars,
        programs: here.parent().unwrap_or(Path::new(".")).to_owned(),
        dir: dir.to_owned(),
        stories: args.only.iter().cloned().collect(),
        kills: args.kills,
        life: (Duration::from_millis(args.life / 8), Duration::from_millis(args.life)),
        restarts: args.restarts,
        stalls: args.stalls,
        stall: (Duration::from_millis(500), Duration::from_secs(14)),
        cuts: args.cuts,
        pause: (Duration::from_millis(500), Duration::from_secs(6)),
        per_second: args.per_second,
        lanes: vec![1, 3, 16],
        seed: args.seed,
    };
    let result = std::fs::create_dir_all(dir).map_err(|e| e.to_string());
    let result = result.and_then(|()| chaos(&plan, &|what| eprintln!("  {what}")));
    let good = match result {
        Ok(happened) => table(&happened),
        Err(e) => {
            eprintln!("chaos: {e}");
            false
        }
    };
    if good {
        // What is left behind is only of use after a failure.
        let _ = std::fs::remove_dir_all(dir);
        ExitCode::SUCCESS
    } else {
        eprintln!("state is kept in {}", dir.display());
        ExitCode::FAILURE
    }
}

fn table(happened: &Chaotic) -> bool {
    let b = happened.broker;
    say!("in {} s ({} s with the comparison)", happened.took.0.as_secs(), happened.took.1.as_secs());
    say!("broker: {} restarts after SIGTERM, {} after SIGKILL", b.restarts.0, b.restarts.1);
    say!("broker: stood still {} times, {} s in all", b.stalls.0, b.stalls.1.as_secs());
    let (cut, held, refused) = b.cuts;
    say!(
        "connections: cut {cut} times, held and cut {held} times, cut and refused {refused} times; {} streams",
        b.streams
    );
    say!("");
    let head = [
        "story",
        "kills",
        "at work",
        "starting",
        "in place",
        "ended",
        "in",
        "out",
        "lost",
        "doubled",
        "changelog",
        "cuts",
        "wrong",
    ];
    say!("{:>10}{}", head[0], columns(&head[1..]));
    for row in &happened.rows {
        let r = &row.report;
        let figures = [
            u64::from(row.kills),
            u64::from(row.at_work),
            u64::from(row.at_start),
            u64::from(row.in_place),
            row.ended.len() as u64,
            r.input,
            r.output,
            r.lost,
            r.doubled,
            r.changelog_wrong,
            r.cuts,
            r.cuts_wrong,
        ];
        say!("{:>10}{}", row.story, columns(&figures));
    }
    say!("");
    say!(
        "at work: killed with input that was not committed; starting: killed before it ran; in place: restarts of the engine"
    );
    say!(
        "within a process; ended: ends that it came to by itself; changelog: entries that differ; wrong: committed cuts whose"
    );
    say!("balances do not add up to 0");
    for row in &happened.rows {
        for end in &row.ended {
            say!("  {}: {end}", row.story);
        }
    }
    happened.rows.iter().all(stoat_examples::faults::Row::exact)
}

/// One behind the other, each as wide as the table's columns.
fn columns(cells: &[impl std::fmt::Display]) -> String {
    use std::fmt::Write;
    cells.iter().fold(String::new(), |mut line, cell| {
        let _ = write!(line, "{cell:>11}");
        line
    })
}
