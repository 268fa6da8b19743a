//! Starts examples and waits for their ends.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stoat_core::broker::blocking::BlockingClient;
use stoat_core::broker::embedded::{ClientConfig, EmbeddedBroker, EmbeddedConfig};

/// No single wait is longer.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// The example `sessions`.
pub(crate) const SESSIONS: &str = env!("CARGO_BIN_EXE_sessions");
/// The example `lane_split`.
pub(crate) const LANE_SPLIT: &str = env!("CARGO_BIN_EXE_lane_split");
/// The example `word_count`.
pub(crate) const WORD_COUNT: &str = env!("CARGO_BIN_EXE_word_count");

/// A command whose working directory and state are in `dir`, and whose environment sets nothing of Stoat.
pub(crate) fn example(exe: &str, dir: &Path) -> Command {
    let mut command = Command::new(exe);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("STOAT_")) {
        command.env_remove(name);
    }
    command.current_dir(dir).arg("--state-dir").arg(dir.join("state"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// How a process ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) after: Duration,
}

impl Ended {
    /// The reason: the last line of standard error.
    pub(crate) fn reason(&self) -> &str {
        self.err.trim_end().lines().last().unwrap_or_default()
    }

    /// Asserts the exit code and that the reason says all of this.
    #[track_caller]
    pub(crate) fn says(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:#?}");
        for part in parts {
            assert!(self.reason().contains(part), "`{part}` is not in the reason: {self:#?}");
        }
    }
}

/// Runs to the end.
pub(crate) fn run(command: &mut Command) -> Ended {
    finish(command.spawn().expect("the example can be started"))
}

/// Waits for the end; what takes too long is killed and fails the test.
pub(crate) fn finish(child: Child) -> Ended {
    let (pid, since) = (child.id(), Instant::now());
    let (sender, ended) = channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let (output, late) = if let Ok(output) = ended.recv_timeout(PATIENCE) {
        (output, false)
    } else {
        signal(pid, "KILL");
        (ended.recv().expect("the thread sends once"), true)
    };
    let output = output.expect("a child can be waited for");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let ended = Ended {
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
        after: since.elapsed(),
    };
    assert!(!late, "it did not end: {ended:#?}");
    ended
}

/// Sends a signal to a process that the test started.
pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status();
    assert!(status.is_ok_and(|s| s.success()), "kill -{name} {pid}");
}

/// The embedded broker of an application whose state is in `dir`; no process of it may run.
pub(crate) fn broker(dir: &Path, application: &str) -> EmbeddedBroker {
    let place = dir.join("state").join(application).join("broker");
    std::fs::create_dir_all(&place).expect("a temporary directory is writable");
    EmbeddedBroker::open(EmbeddedConfig::new(place)).expect("nobody has it open")
}

/// A client of it that commits for this group.
pub(crate) fn client(broker: &EmbeddedBroker, group: &str) -> BlockingClient {
    BlockingClient::new(Box::new(broker.client(ClientConfig::new("operator", group))))
}

/// Kafka, where `STOAT_TEST_BOOTSTRAP` names one. Held while it is used: the topics of the examples have fixed names.
pub(crate) fn kafka(test: &str) -> Option<(String, MutexGuard<'static, ()>)> {
    static ONE_AFTER_ANOTHER: Mutex<()> = Mutex::new(());
    if cfg!(not(feature = "kafka")) {
        return None;
    }
    let Ok(bootstrap) = std::env::var("STOAT_TEST_BOOTSTRAP") else {
        assert!(std::env::var_os("CI").is_none(), "CI must set STOAT_TEST_BOOTSTRAP: a Kafka broker to test on");
        eprintln!("SKIPPED {test}: STOAT_TEST_BOOTSTRAP names no Kafka broker");
        return None;
    };
    Some((bootstrap, ONE_AFTER_ANOTHER.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// An application id that no other run has used.
pub(crate) fn unique(what: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_micros();
    format!("{what}-{}-{now}", std::process::id())
}
