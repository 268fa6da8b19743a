//! Errors: what happened, where, and what to do about it.

use std::fmt;

/// What kind of error it is; decides what the engine does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The configuration or the command line is wrong. Exit code 2.
    Config,
    /// The topology is wrong in a way that types could not prove.
    Topology,
    /// A record's key or value cannot be decoded or encoded.
    Codec,
    /// A user's handler returned an error or panicked.
    Handler,
    /// A timer or store was used outside a handler or for a key of another lane.
    Lane,
    /// A key picks two lanes: its timers or its state would be split. Ends the engine; user code cannot hold it back.
    TimerLaneAffinity,
    /// A topic is missing, has other settings than required, or is not what it was.
    Topic,
    /// The broker cannot be reached or did not answer in time.
    Unavailable,
    /// The broker refused a record for good.
    Refused,
    /// Another instance owns the application. Exit code 3.
    Fenced,
    /// What was asked for cannot be done in the state that the application is in: it is paused already, say.
    Lifecycle,
    /// Local state cannot be read or written, or has a format that this version does not know.
    State,
    /// The budget of faults is spent. Exit code 4.
    FaultBudget,
    /// Anything else; a defect of the library if nothing else explains it.
    Internal,
}

/// An error of the library.
///
/// Its text says what happened, where (topic-partition@offset, node, store) and what to do.
pub struct Error {
    inner: Box<Inner>,
}

struct Inner {
    kind: ErrorKind,
    message: String,
    context: Vec<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The result of everything that can fail here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Makes an error with a text.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { inner: Box::new(Inner { kind, message: message.into(), context: Vec::new(), source: None }) }
    }

    /// Makes an error around another one.
    pub fn with_source(
        kind: ErrorKind,
        message: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        let mut e = Self::new(kind, message);
        e.inner.source = Some(source.into());
        e
    }

    /// An error of a user's handler.
    pub fn handler(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Handler, message)
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// The error as another kind, text and source kept.
    #[must_use]
    pub fn into_kind(mut self, kind: ErrorKind) -> Self {
        self.inner.kind = kind;
        self
    }

    /// Adds where it happened; the outermost place is printed first.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.inner.context.push(place.into());
        self
    }

    /// The process exit code that this error ends with: 2 usage or configuration, 3 another instance owns the
    /// application, 4 fault budget spent, 1 anything else.
    pub fn exit_code(&self) -> u8 {
        match self.inner.kind {
            ErrorKind::Config => 2,
            ErrorKind::Fenced => 3,
            ErrorKind::FaultBudget => 4,
            _ => 1,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in self.inner.context.iter().rev() {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.inner.message)?;
        let mut source = self.inner.source.as_deref().map(|s| s as &dyn std::error::Error);
        while let Some(s) = source {
            write!(f, ": {s}")?;
            source = s.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.inner.kind)
    }
}

/// `?` on a user's own error inside a handler makes a handler error of it. (So [`Error`] itself does not implement
/// [`std::error::Error`]; use [`Error::into_std`] where one is wanted.)
impl<E: std::error::Error + Send + Sync + 'static> From<E> for Error {
    fn from(e: E) -> Self {
        Self::with_source(ErrorKind::Handler, "the handler failed", e)
    }
}

impl Error {
    /// The error as a boxed standard error.
    pub fn into_std(self) -> Box<dyn std::error::Error + Send + Sync> {
        self.to_string().into()
    }
}
