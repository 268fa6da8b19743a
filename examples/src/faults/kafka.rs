//! An Apache Kafka of one's own, that can be stopped, killed, held and started again: one node, on 127.0.0.1.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Outcome, PATIENCE, text};

/// How often a file or a process is looked at: another program tells nothing.
const POLL: Duration = Duration::from_millis(50);

/// A broker that this process starts, and that ends with it however it ends.
pub struct OwnKafka {
    dir: PathBuf,
    jars: PathBuf,
    direct: u16,
    advertised: u16,
    /// A shell that waits on a pipe which only this process holds open, and then ends the broker.
    keeper: Option<Child>,
    pid: u32,
    starts: u32,
}

/// Ports that nobody uses; all are held at the same time, so that they differ.
fn free_ports<const N: usize>() -> Outcome<[u16; N]> {
    let mut held = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(text)?;
        *port = listener.local_addr().map_err(text)?.port();
        held.push(listener);
    }
    Ok(ports)
}

impl OwnKafka {
    /// Formats a directory (made below `dir`) and starts a broker in it. `jars` is the folder of Kafka's jars. Clients that
    /// ask at `proxied` are told to come back to that port; it should lead to [`OwnKafka::proxied_port`].
    ///
    /// # Errors
    /// When Java or Kafka's jars are missing, or the broker does not start.
    pub fn start(jars: &Path, dir: &Path, proxied: Option<u16>) -> Outcome<Self> {
        let [direct, application, controller] = free_ports()?;
        let dir = dir.join("kafka");
        std::fs::create_dir_all(&dir).map_err(text)?;
        let advertised = proxied.unwrap_or(application);
        let mut kafka =
            Self { dir, jars: jars.to_owned(), direct, advertised: application, keeper: None, pid: 0, starts: 0 };
        let settings = format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=DIRECT://127.0.0.1:{direct},APP://127.0.0.1:{application},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=DIRECT://127.0.0.1:{direct},APP://127.0.0.1:{advertised},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER\ninter.broker.listener.name=DIRECT
listener.security.protocol.map=DIRECT:PLAINTEXT,APP:PLAINTEXT,CONTROLLER:PLAINTEXT\nlog.dirs={}/data
auto.create.topics.enable=false\nlog.initial.task.delay.ms=1000\nlog.retention.check.interval.ms=1000
offsets.topic.replication.factor=1\noffsets.topic.num.partitions=1
transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\ntransaction.state.log.num.partitions=1
broker.session.timeout.ms=20000\ninitial.broker.registration.timeout.ms=120000\ngroup.initial.rebalance.delay.ms=0\n",
            kafka.dir.display()
        );
        std::fs::write(kafka.settings(), settings).map_err(text)?;
        let mut format = kafka.java("kafka.tools.StorageTool");
        let format =
            format.args(["format", "--standalone", "-t", "c3RvYXQtdGVzdC1rYWZrYQ", "-c"]).arg(kafka.settings());
        let output = format.output().map_err(|e| format!("java cannot be started: {e}"))?;
        if !output.status.success() {
            return Err(format!("Kafka's directory cannot be formatted: {}", String::from_utf8_lossy(&output.stderr)));
        }
        kafka.serve()?;
        Ok(kafka)
    }

    fn settings(&self) -> PathBuf {
        self.dir.join("server.properties")
    }

    fn log(&self) -> PathBuf {
        self.dir.join("broker.log")
    }

    /// One of Kafka's own tools.
    pub fn java(&self, class: &str) -> Command {
        let mut java = Command::new("java");
        java.args(["-Xmx512m", "-XX:-UsePerfData", "-cp"]).arg(self.jars.join("*")).arg(class).stdin(Stdio::null());
        java
    }

    /// Where to reach it without the proxy.
    pub fn direct(&self) -> String {
        format!("127.0.0.1:{}", self.direct)
    }

    /// The port that a proxy should lead to.
    pub fn proxied_port(&self) -> u16 {
        self.advertised
    }

    /// The broker's process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Starts the broker, at first or again, and waits until it serves.
    ///
    /// # Errors
    /// When it ends at once, or takes too long.
    pub fn serve(&mut self) -> Outcome<()> {
        self.starts += 1;
        let java = self.java("kafka.Kafka");
        let script = r#""$@" >>"$0" 2>&1 & echo $! >"$0.pid"; read -r _; kill -9 $!; wait"#;
        let _ = std::fs::remove_file(self.dir.join("broker.log.pid"));
        let mut keeper = Command::new("sh");
        keeper.arg("-c").arg(script).arg(self.log()).arg(java.get_program()).args(java.get_args()).arg(self.settings());
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        self.keeper = Some(keeper.spawn().map_err(text)?);
        let deadline = Instant::now() + PATIENCE;
        let pid = loop {
            let told = std::fs::read_to_string(self.dir.join("broker.log.pid")).unwrap_or_default();
            match told.trim().parse() {
                Ok(pid) if told.ends_with('\n') => break pid,
                _ if Instant::now() > deadline => return Err("the broker's process is not known".to_owned()),
                _ => std::thread::sleep(POLL),
            }
        };
        self.pid = pid;
        loop {
            let log = std::fs::read(self.log()).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            if log.matches("Kafka Server started").count() as u32 >= self.starts {
                return Ok(());
            }
            if !self.alive() || Instant::now() > deadline {
                // The log will not tell of this start, so the next one must not count it.
                self.starts -= 1;
                let end: Vec<&str> = log.lines().rev().take(15).collect();
                return Err(format!(
                    "Apache Kafka does not start: {}",
                    end.into_iter().rev().collect::<Vec<_>>().join("\n")
                ));
            }
            std::thread::sleep(POLL);
        }
    }

    /// What has ended and nobody has waited for has no command line any more.
    fn alive(&self) -> bool {
        std::fs::read(format!("/proc/{}/cmdline", self.pid)).is_ok_and(|c| !c.is_empty())
    }

    /// Sends the broker a signal, such as `STOP`.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn signal(&self, name: &str) -> Outcome<()> {
        signal(self.pid, name)
    }

    /// Ends the broker: asks it to (`TERM`), or does not ask (`KILL`); waits for its end.
    ///
    /// # Errors
    /// When it does not end.
    pub fn end(&mut self, how: &str) -> Outcome<()> {
        self.signal(how)?;
        let deadline = Instant::now() + PATIENCE;
        while self.alive() {
            if Instant::now() > deadline {
                return Err(format!("Apache Kafka does not end by SIG{how}"));
            }
            std::thread::sleep(POLL);
        }
        self.bury();
        Ok(())
    }

    fn bury(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            let _ = keeper.wait();
        }
    }
}

impl Drop for OwnKafka {
    fn drop(&mut self) {
        self.bury();
    }
}

/// Sends a signal to a process.
///
/// # Errors
/// When there is no such process.
pub fn signal(pid: u32, name: &str) -> Outcome<()> {
    let status = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status().map_err(text)?;
    if status.success() { Ok(()) } else { Err(format!("kill -{name} {pid} failed")) }
}
