//! Processes that are measured.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Result;

/// User and system time of a process and all its threads, in ticks of 10 ms as Linux counts them.
pub(super) fn cpu_time(pid: &str) -> Result<Duration> {
    let ticks = stat(pid)?.split_whitespace().skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(ticks * 10))
}

/// What `/proc` says of a process, behind its name.
fn stat(pid: &str) -> Result<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    Ok(stat.rsplit_once(')').ok_or("/proc names no process")?.1.to_owned())
}

/// A process that is measured; ended when it is dropped.
pub(super) struct Measured {
    child: Child,
    log: PathBuf,
}

/// What a process has used from its start to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    pub(super) cpu: Duration,
    pub(super) peak: u64,
}

impl Measured {
    /// Starts a process whose standard error goes to a file.
    pub(super) fn start(command: &mut Command, log: PathBuf) -> Result<Self> {
        let child = command.stdin(Stdio::null()).stderr(std::fs::File::create(&log)?).spawn()?;
        Ok(Self { child, log })
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    pub(super) fn cpu(&self) -> Result<Duration> {
        cpu_time(&self.pid())
    }

    /// Peak of resident memory, in bytes.
    pub(super) fn peak(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).ok_or("the process has no memory any more")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
    }

    /// An error where the process has ended by itself.
    pub(super) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!(
                "the measured process ended by itself ({status}); it said: {}",
                std::fs::read_to_string(&self.log)?.lines().last().unwrap_or("nothing")
            )
            .into()),
        }
    }

    /// Stops it gracefully. Its times are read before it is waited for: then they are gone.
    pub(super) fn stop(mut self) -> Result<Used> {
        let peak = self.peak()?;
        Command::new("kill").arg(self.pid()).status()?;
        let begin = Instant::now();
        while !stat(&self.pid())?.trim_start().starts_with('Z') {
            if begin.elapsed() > Duration::from_mins(1) {
                return Err("the measured process does not stop within a minute of SIGTERM".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let cpu = self.cpu()?;
        self.child.wait()?;
        Ok(Used { cpu, peak })
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        // Ended already, as a rule.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
