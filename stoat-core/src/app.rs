//! An application: a topology, its configuration, and one process that runs it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::broker::Broker;
use crate::broker::blocking::BlockingClient;
use crate::broker::embedded::{ClientConfig, EmbeddedBroker, EmbeddedConfig, Fsync};
use crate::codec::{Decode, Encode};
use crate::config::{Config, FsyncPolicy};
use crate::engine::core::{Engine, EngineParts, NetFactory, Status};
use crate::engine::executor::{Executor, Handle, StopHandle};
use crate::engine::message::LaneNet;
use crate::engine::net::{NetBuild, TokioNet, build_lanes};
use crate::engine::writer::ThreadedWriter;
use crate::error::{Error, ErrorKind, Result};
use crate::store::StoreSet;
use crate::topology::Topology;
use crate::topology::graph::Graph;

/// What stands below the options of `--help`.
const AFTER_HELP: &str = "\
Values come from stoat.yaml, then the environment (STOAT__COMMIT__INTERVAL=100ms), then the command line; later ones win.
STOAT_LOG filters the log on standard error (default: info).
Exit codes: 0 stopped after a last commit, 2 usage or configuration, 3 another instance has taken over,
4 too many faults, 1 anything else; the reason is the last line of standard error.";

/// What every application takes on its command line.
#[derive(Clone, Debug, Default, Parser)]
#[command(disable_version_flag = true, about = "A stream processor on Apache Kafka, or on the broker embedded in it", long_about = None)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Kafka's bootstrap servers; absent: the embedded broker
    #[arg(long, value_name = "HOST:PORT")]
    pub bootstrap_servers: Option<String>,
    /// Names the application: consumer group, transactional id, changelogs
    #[arg(long, value_name = "ID")]
    pub application_id: Option<String>,
    /// Where local state is [default: stoat-state]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<String>,
    /// Lanes per sub-topology [default: the number of cores, at least 2]
    #[arg(long, value_name = "N")]
    pub lanes: Option<String>,
    /// Sets any configuration key; may be repeated
    #[arg(long = "set", value_name = "stoat.KEY=VALUE")]
    pub set: Vec<String>,
    /// The configuration file [default: stoat.yaml, where there is one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Prints the topology and exits
    #[arg(long, value_name = "text|mermaid|json")]
    pub describe: Option<String>,
    /// Lists all configuration keys with their defaults and exits
    #[arg(long)]
    pub list_config: bool,
}

impl Args {
    /// Lays file, environment and command line on top of `config`, in this order.
    ///
    /// # Errors
    /// An unknown key or a value that is not what the key takes.
    pub fn apply(&self, config: &mut Config) -> Result<()> {
        let file = self.config.clone().or_else(|| {
            let default = PathBuf::from("stoat.yaml");
            default.exists().then_some(default)
        });
        if let Some(file) = file {
            config.file(&file)?;
        }
        config.env(std::env::vars())?;
        for (key, value) in [
            ("stoat.bootstrap-servers", &self.bootstrap_servers),
            ("stoat.application-id", &self.application_id),
            ("stoat.state.dir", &self.state_dir),
            ("stoat.lanes", &self.lanes),
        ] {
            if let Some(value) = value {
                config.set(key, value)?;
            }
        }
        for pair in &self.set {
            let (key, value) = pair.split_once('=').ok_or_else(|| {
                // The text may be a secret whose `=` was forgotten.
                Error::new(ErrorKind::Config, "--set takes `stoat.key=value`; one of them has no `=`")
            })?;
            config.set(key.trim(), value.trim())?;
        }
        Ok(())
    }
}

/// Asks for a store's keys to be written anew.
type AskReencode = fn(&mut Graph, &str) -> Result<()>;

/// A topology with its configuration.
///
/// # Examples
/// ```no_run
/// use stoat_core::app::App;
///
/// fn main() -> stoat_core::Result<()> {
///     App::new("hello", |_t| {}).set("stoat.application-id", "hello")?.run()
/// }
/// ```
pub struct App {
    name: &'static str,
    build: fn(&mut Topology),
    config: Config,
    /// Stores whose keys are written anew, each with what says how.
    reencode: Vec<(String, AskReencode)>,
}

impl App {
    /// Names an application. The macro `#[topology]` generates `name::app()`, which calls this. The application id is
    /// the name with hyphens for underscores, unless it is configured.
    pub fn new(name: &'static str, build: fn(&mut Topology)) -> Self {
        let config = Config { application_id: Some(name.replace('_', "-")), ..Config::default() };
        Self { name, build, config, reencode: Vec::new() }
    }

    /// Sets a configuration key in code; file, environment and command line win over it.
    ///
    /// # Errors
    /// As [`Config::set`].
    pub fn set(mut self, key: &str, value: &str) -> Result<Self> {
        self.config.set(key, value)?;
        Ok(self)
    }

    /// Writes the keys of a store anew where another codec wrote them: stored keys are in their codec's bytes, so a start
    /// with another codec is refused. `K` is the key type, `Old` the codec it had, `New` the one it has now.
    ///
    /// All stores of timers and values that share the lane have to be named, for their keys had one codec. The next start
    /// reads them all, and writes the new rows, deletes the old ones and records the codec in one transaction: killed in
    /// between, it finds the old state or the new one. That takes the memory of the rows, which must stay within
    /// `stoat.memory.budget`, and the time of one transaction. Later starts find nothing to do; take the call out then.
    ///
    /// ```no_run
    /// use stoat_core::app::App;
    /// use stoat_core::codec::{Json, Utf8};
    ///
    /// fn main() -> stoat_core::Result<()> {
    ///     // The users' ids were written as JSON strings, with quotes.
    ///     let app = App::new("sessions", |_t| {});
    ///     app.reencode::<String, Json, Utf8>("open").reencode::<String, Json, Utf8>("idle").run()
    /// }
    /// ```
    #[must_use]
    pub fn reencode<K: 'static, Old: Decode<K>, New: Encode<K>>(mut self, store: &str) -> Self {
        self.reencode.push((store.to_owned(), Graph::reencode::<K, Old, New>));
        self
    }

    /// The declared graph.
    ///
    /// # Errors
    /// What is wrong with the topology that types could not prove, or with what is to be re-encoded.
    pub fn graph(&self) -> Result<Graph> {
        let mut t = Topology::new(self.name);
        (self.build)(&mut t);
        let mut graph = t.build()?;
        for (store, reencode) in &self.reencode {
            reencode(&mut graph, store)?;
        }
        Ok(graph)
    }

    /// Runs with `stoat.yaml`, the environment and the command line of this process, until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// What ended the application.
    pub fn run(self) -> Result<()> {
        let args = Args::parse();
        self.run_with(&args)
    }

    /// Runs with these arguments.
    ///
    /// # Errors
    /// What ended the application.
    pub fn run_with(self, args: &Args) -> Result<()> {
        if args.list_config {
            for (key, doc, default) in crate::config::keys() {
                say(format_args!("{key} [{}]\n    {doc}", if default.is_empty() { "unset" } else { &default }));
            }
            return Ok(());
        }
        if let Some(form) = &args.describe {
            say(describe(&self.graph()?, form)?);
            return Ok(());
        }
        let prepared = self.prepare(args)?;
        prepared.run(|_| true)
    }

    /// Resolves the configuration, connects to the broker (or opens the embedded one) and opens local state.
    ///
    /// # Errors
    /// A wrong configuration or topology, a state directory that is locked or cannot be written.
    pub fn prepare(mut self, args: &Args) -> Result<Prepared> {
        args.apply(&mut self.config)?;
        let graph = self.graph()?;
        Prepared::new(graph, self.config)
    }
}

/// Prints a line to standard output. A reader that has gone away (`| head`) is no reason to fail.
pub fn say(line: impl std::fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// A graph in one of the forms of `--describe`.
fn describe(graph: &Graph, form: &str) -> Result<String> {
    match form {
        "text" => Ok(graph.describe()),
        "mermaid" => Ok(graph.mermaid()),
        "json" => Ok(format!("{:#}", graph.json())),
        _ => Err(Error::new(ErrorKind::Config, format!("--describe takes text, mermaid or json, not `{form}`"))),
    }
}

/// Where records come from and go to.
#[derive(Clone)]
enum Access {
    Embedded(EmbeddedBroker),
    #[cfg(feature = "kafka")]
    Kafka,
}

/// An application that is ready to run.
pub struct Prepared {
    graph: Graph,
    config: Config,
    access: Access,
    stores: Box<dyn StoreSet>,
    state: PathBuf,
    executor: Executor,
}

impl Prepared {
    fn new(graph: Graph, config: Config) -> Result<Self> {
        config.check()?;
        let id = config.application_id()?.to_owned();
        let state = config.state_dir.join(&id);
        std::fs::create_dir_all(&state).map_err(|e| {
            Error::with_source(
                ErrorKind::State,
                format!(
                    "the state directory {} cannot be made: give the process write access, or set `stoat.state.dir` to another place",
                    state.display()
                ),
                e,
            )
        })?;
        let stores = open_stores(&config, &state, &id)?;
        let access = match &config.bootstrap_servers {
            None => {
                let mut embedded = EmbeddedConfig::new(state.join("broker"));
                embedded.fsync = match config.embedded_fsync {
                    FsyncPolicy::Commit => Fsync::Commit,
                    FsyncPolicy::Interval => Fsync::Interval(Duration::from_secs(1)),
                    FsyncPolicy::Off => Fsync::Off,
                };
                Access::Embedded(EmbeddedBroker::open(embedded)?)
            }
            #[cfg(feature = "kafka")]
            Some(_) => Access::Kafka,
            #[cfg(not(feature = "kafka"))]
            Some(_) => {
                return Err(Error::new(
                    ErrorKind::Config,
                    "`stoat.bootstrap-servers` is set, but this program was built without the feature `kafka`: build it with that feature",
                ));
            }
        };
        Ok(Self { graph, config, access, stores, state, executor: Executor::new() })
    }

    /// The resolved configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Where local state is.
    pub fn state_dir(&self) -> &std::path::Path {
        &self.state
    }

    /// Whether the broker is the embedded one.
    pub fn is_embedded(&self) -> bool {
        matches!(self.access, Access::Embedded(_))
    }

    /// A client of the same broker beside the application: to load input, to read results.
    ///
    /// # Errors
    /// When the client's settings are wrong.
    pub fn client(&self, name: &str) -> Result<BlockingClient> {
        Ok(BlockingClient::new(connect(&self.access, &self.config, name)?))
    }

    /// Makes a function that opens further clients, for other threads.
    pub fn clients(&self) -> impl Fn(&str) -> Result<BlockingClient> + Send + Clone + 'static {
        let (access, config) = (self.access.clone(), self.config.clone());
        move |name| Ok(BlockingClient::new(connect(&access, &config, name)?))
    }

    /// Stops the application from elsewhere.
    pub fn stop_handle(&self) -> StopHandle {
        self.executor.stop_handle()
    }

    /// Pauses, resumes and stops the application from elsewhere.
    ///
    /// ```no_run
    /// use clap::Parser;
    /// use stoat_core::app::{App, Args};
    /// use stoat_core::engine::core::State;
    ///
    /// # fn main() -> stoat_core::Result<()> {
    /// let prepared = App::new("hello", |_t| {}).prepare(&Args::parse())?;
    /// let handle = prepared.handle();
    /// std::thread::spawn(move || -> stoat_core::Result<()> {
    ///     // .. when it runs, and the topics' owners want quiet:
    ///     handle.pause()?;
    ///     while handle.state() != State::Paused {
    ///         std::thread::sleep(std::time::Duration::from_millis(50));
    ///     }
    ///     handle.resume()
    /// });
    /// prepared.run(|_status| true)
    /// # }
    /// ```
    pub fn handle(&self) -> Handle {
        self.executor.handle()
    }

    /// Runs until SIGTERM, SIGINT, the stop handle, or until `watch` returns `false`; then commits a last time. `watch`
    /// sees the status about ten times a second.
    ///
    /// # Errors
    /// What ended the application.
    pub fn run(self, watch: impl FnMut(&Status) -> bool) -> Result<()> {
        // The process stops on a signal; a second one ends it at once.
        let signals = Signals::install(self.executor.stop_handle())?;
        let broker = connect(&self.access, &self.config, self.config.application_id()?)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(std::thread::available_parallelism().map_or(2, std::num::NonZero::get).max(2))
            .thread_name("stoat-lanes")
            .enable_time()
            .build()
            .map_err(|e| Error::with_source(ErrorKind::Internal, "the lanes' threads cannot be started", e))?;
        let handle = runtime.handle().clone();
        let net: NetFactory = Box::new(move |build: &NetBuild<'_>| {
            Ok(Box::new(TokioNet::start_on(build_lanes(build)?, &handle)) as Box<dyn LaneNet>)
        });
        let id = uuid::Uuid::new_v4();
        let stop_timeout = self.config.shutdown_timeout;
        let mut engine = Engine::new(
            EngineParts {
                graph: self.graph,
                config: self.config,
                broker,
                stores: self.stores,
                writer: Box::new(ThreadedWriter::new()?),
                net,
                incarnation: id.simple().to_string(),
                seed: id.as_u64_pair().0,
            },
            self.executor.now(),
        );
        let result = self.executor.run(&mut engine, stop_timeout, Duration::from_millis(100), watch);
        drop(engine);
        runtime.shutdown_timeout(Duration::from_secs(5));
        drop(signals);
        result
    }
}

#[cfg_attr(not(feature = "rocksdb"), expect(clippy::unnecessary_wraps, reason = "a directory may not open"))]
fn open_stores(config: &Config, state: &std::path::Path, id: &str) -> Result<Box<dyn StoreSet>> {
    #[cfg(feature = "rocksdb")]
    {
        let mut rocks = crate::store::rocks::RocksConfig::new(state.join("stores"), id);
        rocks.memory = config.shares().rocksdb;
        Ok(Box::new(crate::store::rocks::RocksStoreSet::open(&rocks)?))
    }
    #[cfg(not(feature = "rocksdb"))]
    {
        let _ = (config, state, id);
        Ok(Box::new(crate::store::memory::MemoryStoreSet::new()))
    }
}

#[cfg_attr(
    not(feature = "kafka"),
    expect(unused_variables, clippy::unnecessary_wraps, reason = "only Kafka has settings, and may refuse them")
)]
fn connect(access: &Access, config: &Config, name: &str) -> Result<Box<dyn Broker>> {
    match access {
        Access::Embedded(broker) => Ok(Box::new(broker.client(ClientConfig::new(name, name)))),
        #[cfg(feature = "kafka")]
        Access::Kafka => {
            let bootstrap = config.bootstrap_servers.clone().unwrap_or_default();
            let mut kafka = crate::broker::kafka::KafkaConfig::new(bootstrap, name, name);
            kafka.transaction_timeout = config.transaction_timeout;
            // A start that has little time must not spend it on one question.
            kafka.patience = kafka.patience.min(config.connect_timeout.max(Duration::from_secs(1)));
            kafka.memory = config.shares().client;
            // Nothing is seen before the next commit: a small part of the interval may be spent on taking in more at once.
            kafka.gather = config.commit_interval.unwrap_or(config.commit_interval_min) / 10;
            kafka.client = config.kafka_client.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
            Ok(Box::new(crate::broker::kafka::KafkaBroker::new(kafka)?))
        }
    }
}

/// Turns SIGTERM and SIGINT into a graceful stop.
struct Signals {
    handle: signal_hook::iterator::Handle,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Signals {
    fn install(stop: StopHandle) -> Result<Self> {
        use signal_hook::consts::{SIGINT, SIGTERM};
        let failed = |e| Error::with_source(ErrorKind::Internal, "signals cannot be handled", e);
        let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT]).map_err(failed)?;
        let handle = signals.handle();
        let thread = std::thread::Builder::new()
            .name("stoat-signals".to_owned())
            .spawn(move || {
                for signal in signals.forever() {
                    if stop.is_stopping() {
                        tracing::warn!("second signal: stopping at once, without a last commit");
                        std::process::exit(128 + signal);
                    }
                    tracing::info!("stopping: a last commit, then the end");
                    stop.stop();
                }
            })
            .map_err(failed)?;
        Ok(Self { handle, thread: Some(thread) })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}

/// Sends the library's log to standard error; `STOAT_LOG` filters it (default `info`).
pub fn log_to_stderr() {
    use std::io::IsTerminal;
    let filter = tracing_subscriber::EnvFilter::try_from_env("STOAT_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // A program that has set up its own subscriber keeps it.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        // It would be told by printing to standard error, which panics where nobody reads that any more.
        .log_internal_errors(false)
        .try_init();
}

/// The `main` of an application: logs to standard error, runs, ends with an exit code and a reason in one paragraph.
pub fn main(app: App) -> ExitCode {
    log_to_stderr();
    exit(app.run())
}

/// The exit code of a result; prints the reason of an error to standard error.
pub fn exit(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("stoat: {e}");
            ExitCode::from(e.exit_code())
        }
    }
}
