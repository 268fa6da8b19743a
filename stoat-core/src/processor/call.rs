use std::pin::Pin;

use super::{Fired, Processor};
use crate::error::Result;
use crate::record::Record;

/// What a handler is called with, where handlers may wait.
pub enum Call<P: Processor> {
    /// A record.
    Record(Record<P::InKey, P::InValue>),
    /// A timer of the field number so-and-so of [`Processor::FIELDS`].
    Fired(usize, Fired<P::InKey>),
    /// The punctuator of this number.
    Punctuate(usize),
}

impl<P: Processor> std::fmt::Debug for Call<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Record(_) => f.write_str("Record"),
            Self::Fired(field, fired) => write!(f, "Fired({field}, {})", fired.time),
            Self::Punctuate(which) => write!(f, "Punctuate({which})"),
        }
    }
}

/// A handler that may wait. It borrows the processor, so the next call cannot begin before it has ended.
pub type CallFuture<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;
