//! An Apache Kafka on this machine: one node, on 127.0.0.1, in a temporary directory, for tests and for playing.

use std::fs::{self, File};
use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::install::{FOR_KAFKA_BROKER, require};
use crate::sh::{Context as _, Result, cache_root, output, root, tail};

const VERSION: &str = "4.4.0";
/// What every directory of a broker is called, before its number; [`stop`] removes no other.
const DIRECTORY: &str = "stoat-kafka-";
const POLL: Duration = Duration::from_millis(100);
const POLLS_UNTIL_STARTED: u32 = 900;
const POLLS_UNTIL_STOPPED: u32 = 100;
/// A free port may be taken by somebody else before the broker binds it.
const ATTEMPTS: u32 = 3;

/// A broker that ends with this value, and with this process, however it ends.
pub(crate) struct Broker {
    pub(crate) bootstrap: String,
    keeper: Child,
}

impl Broker {
    /// Starts a broker and waits until it serves.
    pub(crate) fn start() -> Result<Self> {
        let jars = jars()?;
        let mut attempt = 1;
        loop {
            match Self::start_once(&jars) {
                Err(_) if attempt < ATTEMPTS => attempt += 1,
                result => return result,
            }
        }
    }

    fn start_once(jars: &Path) -> Result<Self> {
        let node = Node::prepare(jars, None)?;
        // The shell waits on a pipe that only this process holds open: where this process is killed, it still
        // ends the broker and removes its directory. A group of its own keeps Ctrl-C away from both.
        let script = r#""$@" >"$0/broker.log" 2>&1 & echo $! >"$0/pid"; read -r _; kill -9 $!; wait; rm -rf "$0""#;
        let mut keeper = Command::new("sh");
        keeper.arg("-c").arg(script).arg(&node.dir).args(node.java(jars));
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let keeper = keeper.spawn().context(|| "cannot start `sh`".to_owned())?;
        let broker = Self { bootstrap: node.bootstrap.clone(), keeper };
        node.await_start(|| {
            // No number yet: the shell has only begun.
            fs::read_to_string(node.dir.join("pid"))
                .map_or(true, |pid| pid.is_empty() || is_alive(pid.trim(), &node.dir))
        })?;
        Ok(broker)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Starts a broker that outlives this program, and notes where it is.
pub(crate) fn start(port: Option<u16>, install: bool) -> Result<()> {
    if let Some(running) = Running::read()? {
        if running.is_alive() {
            return Err(format!(
                "Apache Kafka runs already on {} (process {}): `cargo xtask kafka stop` ends it",
                running.bootstrap, running.pid
            )
            .into());
        }
        running.remove()?;
    }
    require(FOR_KAFKA_BROKER, install)?;
    let jars = jars()?;
    let node = Node::prepare(&jars, port)?;
    let log = node.dir.join("broker.log");
    let log = File::create(&log).context(|| format!("cannot write {}", log.display()))?;
    let errors = log.try_clone().context(|| "cannot share the log file".to_owned())?;
    let command = node.java(&jars);
    let mut java = Command::new(&command[0]);
    java.args(&command[1..]).stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
    let mut java = java.spawn().context(|| "cannot start `java`".to_owned())?;
    let running = Running { pid: java.id(), dir: node.dir.clone(), bootstrap: node.bootstrap.clone() };
    let started =
        running.write().and_then(|()| node.await_start(|| java.try_wait().is_ok_and(|status| status.is_none())));
    if let Err(error) = started {
        let _ = java.kill();
        let _ = java.wait();
        running.remove()?;
        return Err(error);
    }
    eprintln!("Apache Kafka {VERSION} serves on {}", running.bootstrap);
    eprintln!("  its log:    {}", running.dir.join("broker.log").display());
    eprintln!("  an example: cargo run -p stoat-examples --bin sessions -- --bootstrap-servers {}", running.bootstrap);
    eprintln!("  the tests:  STOAT_TEST_BOOTSTRAP={} cargo xtask test", running.bootstrap);
    eprintln!("  its end:    cargo xtask kafka stop");
    println!("{}", running.bootstrap);
    Ok(())
}

/// Ends the broker that [`start`] left running.
pub(crate) fn stop() -> Result<()> {
    let Some(running) = Running::read()? else {
        eprintln!("no Apache Kafka was started here");
        return Ok(());
    };
    if running.is_alive() {
        let pid = running.pid.to_string();
        output(Command::new("kill").args(["-9", &pid]))?;
        // Its files must not come back while they are removed.
        wait_until(POLLS_UNTIL_STOPPED, || !running.is_alive())
            .ok_or_else(|| format!("process {pid} does not end: its directory {} stays", running.dir.display()))?;
        eprintln!("stopped Apache Kafka on {}", running.bootstrap);
    } else {
        eprintln!("Apache Kafka on {} had ended by itself", running.bootstrap);
    }
    running.remove()
}

/// What `start` tells `stop`.
#[derive(Debug, PartialEq, Eq)]
struct Running {
    pid: u32,
    dir: PathBuf,
    bootstrap: String,
}

impl Running {
    fn file() -> PathBuf {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
        root().join(target).join("stoat-kafka.txt")
    }

    fn read() -> Result<Option<Self>> {
        let file = Self::file();
        match fs::read_to_string(&file) {
            Ok(text) => Self::parse(&text)
                .map(Some)
                .ok_or_else(|| format!("{} is not as `kafka start` writes it: remove it", file.display()).into()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("cannot read {}: {error}", file.display()).into()),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        let dir = PathBuf::from(field("dir")?);
        let ours = dir.is_absolute() && dir.file_name()?.to_str()?.starts_with(DIRECTORY);
        ours.then_some(Self { pid: field("pid")?.parse().ok()?, dir, bootstrap: field("bootstrap")?.to_owned() })
    }

    fn print(&self) -> String {
        format!("pid={}\ndir={}\nbootstrap={}\n", self.pid, self.dir.display(), self.bootstrap)
    }

    fn write(&self) -> Result<()> {
        let file = Self::file();
        let folder = file.parent().expect("the file lies in the target folder");
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&file, self.print()))
            .context(|| format!("cannot write {}", file.display()))
    }

    fn is_alive(&self) -> bool {
        is_alive(&self.pid.to_string(), &self.dir)
    }

    fn remove(&self) -> Result<()> {
        remove(&self.dir)?;
        remove(&Self::file())
    }
}

fn remove(path: &Path) -> Result<()> {
    let result = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match result {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", path.display()).into())
        }
        _ => Ok(()),
    }
}

/// A formatted directory, ready to start a broker in.
struct Node {
    dir: PathBuf,
    bootstrap: String,
}

impl Node {
    fn prepare(jars: &Path, port: Option<u16>) -> Result<Self> {
        let (free, controller) = free_ports()?;
        let port = port.unwrap_or(free);
        let id = base64_url(random_id()?);
        let dir = std::env::temp_dir().join(format!("{DIRECTORY}{id}"));
        fs::create_dir_all(&dir).context(|| format!("cannot create {}", dir.display()))?;
        let node = Self { dir, bootstrap: format!("127.0.0.1:{port}") };
        let settings = node.settings();
        fs::write(&settings, properties(&node.dir, port, controller))
            .context(|| format!("cannot write {}", settings.display()))?;
        let mut format = Command::new("java");
        format.args(["-XX:-UsePerfData", "-cp"]).arg(class_path(jars)).args(["kafka.tools.StorageTool", "format"]);
        format.args(["--standalone", "-t", &id, "-c"]).arg(&settings);
        if let Err(error) = output(&mut format) {
            remove(&node.dir)?;
            return Err(error);
        }
        Ok(node)
    }

    fn settings(&self) -> PathBuf {
        self.dir.join("server.properties")
    }

    /// The broker's command line.
    fn java(&self, jars: &Path) -> Vec<String> {
        let words = ["java", "-Xms256m", "-Xmx1g", "-XX:-UsePerfData", "-cp", &class_path(jars), "kafka.Kafka"];
        words.map(str::to_owned).into_iter().chain([self.settings().display().to_string()]).collect()
    }

    fn await_start(&self, mut is_alive: impl FnMut() -> bool) -> Result<()> {
        let log = self.dir.join("broker.log");
        let text = || fs::read(&log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let mut alive = true;
        let started = wait_until(POLLS_UNTIL_STARTED, || {
            alive = is_alive();
            !alive || text().contains("Kafka Server started")
        });
        match (started, alive) {
            (Some(()), true) => Ok(()),
            (Some(()), false) => Err(format!("Apache Kafka ended at once:\n{}", tail(&text(), 25)).into()),
            (None, _) => Err(format!("Apache Kafka did not start in time:\n{}", tail(&text(), 25)).into()),
        }
    }
}

/// Asks again and again; another program gives nothing to wait on.
fn wait_until(polls: u32, mut condition: impl FnMut() -> bool) -> Option<()> {
    for _ in 0..polls {
        if condition() {
            return Some(());
        }
        thread::sleep(POLL);
    }
    None
}

/// True while the process is the broker of this directory: its number may have gone to another program since, and
/// what has ended without being waited for has no command line any more.
fn is_alive(pid: &str, dir: &Path) -> bool {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&command).contains(&*dir.to_string_lossy())
}

/// The folder with Kafka's jars; Maven fetches them once.
pub(crate) fn jars() -> Result<PathBuf> {
    let cache = cache_root()?;
    let folder = cache.join(format!("kafka-{VERSION}"));
    fs::create_dir_all(&cache).context(|| format!("cannot create {}", cache.display()))?;
    let lock = cache.join("kafka.lock");
    let lock = File::create(&lock).context(|| format!("cannot write {}", lock.display()))?;
    lock.lock().context(|| format!("cannot lock {}", cache.display()))?;
    if !folder.exists() {
        eprintln!("  fetches Apache Kafka {VERSION} by Maven, 54 MB, once");
        let part = cache.join(format!("kafka-{VERSION}.part"));
        remove(&part)?;
        let mut maven = Command::new("mvn");
        maven.args(["-q", "-B", "-f"]).arg(root().join("xtask/kafka/pom.xml"));
        maven.arg("dependency:copy-dependencies").arg(format!("-DoutputDirectory={}", part.display()));
        output(&mut maven)?;
        fs::rename(&part, &folder).context(|| format!("cannot move the jars to {}", folder.display()))?;
    }
    Ok(folder)
}

fn class_path(jars: &Path) -> String {
    jars.join("*").display().to_string()
}

fn properties(dir: &Path, port: u16, controller: u16) -> String {
    format!(
        "process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={dir}/data
auto.create.topics.enable=false
# One node: nothing to replicate to. Few partitions of the inner topics: a quicker start.
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
",
        dir = dir.display()
    )
}

fn free_ports() -> Result<(u16, u16)> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context(|| "no free port on 127.0.0.1".to_owned());
    // Both are held at the same time, so that they differ.
    let (one, other) = (listen()?, listen()?);
    let port = |of: &TcpListener| {
        of.local_addr().map(|address| address.port()).context(|| "a socket without address".to_owned())
    };
    Ok((port(&one)?, port(&other)?))
}

fn random_id() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context(|| "cannot read /dev/urandom".to_owned())?;
    // So the first digit is none of the last ones, which hold the hyphen: an id is also an argument.
    bytes[0] &= 0x7f;
    Ok(bytes)
}

/// Kafka's way to write the id of a cluster: base64 for URLs, without padding.
fn base64_url(bytes: [u8; 16]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let number = u128::from_be_bytes(bytes);
    // 22 digits are 132 bits: the last digit holds two bits of the number and four zeros.
    (0..22)
        .map(|digit| {
            let shift = 122 - 6 * digit;
            let bits = if shift >= 0 { number >> shift } else { number << -shift };
            char::from(DIGITS[(bits & 63) as usize])
        })
        .collect()
}

#[cfg(test)]
mod tests;
