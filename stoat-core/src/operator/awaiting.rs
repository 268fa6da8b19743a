use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::processor::{ProcessorOperator, What};
use super::{CurrentKey, Field, LaneCx, Operator, Punctuator, StateOperator, Waiting, WaitingCall, take};
use crate::engine::tag::{Path, Tag};
use crate::error::Result;
use crate::processor::{Call, Fired, Handlers};
use crate::record::{Origin, RecordBatch};
use crate::time::Timestamp;

/// Runs a user's processor whose handlers may wait.
///
/// While a call waits, its future owns the processor: the fields are not there, and the lane does nothing else. A call that
/// does not wait costs two small allocations more than one of a synchronous processor.
pub(crate) struct AsyncProcessorOperator<P: Handlers> {
    /// `None` while a call waits.
    idle: Option<Box<ProcessorOperator<P>>>,
    waiting: Option<Running<P>>,
    waited: u64,
    waker: Waker,
}

type Done<P> = (Box<ProcessorOperator<P>>, Result<()>);

/// A call that has begun.
struct Running<P: Handlers> {
    call: Pin<Box<dyn Future<Output = Done<P>> + Send>>,
    what: What,
    /// Where the lane was.
    number: u64,
    path: Path,
    key: CurrentKey,
    origin: Option<Origin>,
    /// The source record, where a gate may want it.
    source: Option<(Arc<RecordBatch>, u32)>,
    place: String,
}

impl<P: Handlers> AsyncProcessorOperator<P> {
    pub(crate) fn new(operator: ProcessorOperator<P>) -> Self {
        Self { idle: Some(Box::new(operator)), waiting: None, waited: 0, waker: Waker::noop().clone() }
    }

    fn idle(&mut self) -> &mut ProcessorOperator<P> {
        self.idle.as_mut().expect("a lane gives nothing to a processor whose call waits")
    }

    /// Begins a call, whose fields and context are entered, and goes as far as it can.
    fn begin(&mut self, call: Call<P>, what: What, cx: &mut LaneCx<'_>) -> Result<()> {
        let mut operator = self.idle.take().expect("the caller has entered the processor");
        let mut call = Box::pin(async move {
            let (processor, context) = operator.parts();
            let result = processor.call(call, context).await;
            (operator, result)
        });
        match call.as_mut().poll(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(done) => self.end(done, what, cx),
            Poll::Pending => {
                let place = match what {
                    What::Record => format!("node `{}`", P::NAME),
                    What::Timer(field, time) => {
                        format!("node `{}`, timer {} at {time}", P::NAME, P::FIELDS[field].name)
                    }
                    What::Punctuator | What::Keyless => format!("node `{}`, punctuator", P::NAME),
                };
                self.waited += 1;
                self.waiting = Some(Running {
                    call,
                    what,
                    number: cx.number,
                    path: cx.path.clone(),
                    key: cx.key.clone(),
                    origin: cx.origin,
                    source: cx.gate.held().cloned(),
                    place,
                });
                Ok(())
            }
        }
    }

    fn end(&mut self, (mut operator, result): Done<P>, what: What, cx: &mut LaneCx<'_>) -> Result<()> {
        operator.parts().1.key = None;
        let left = operator.leave(what, result, cx);
        self.idle = Some(operator);
        left
    }
}

impl<P: Handlers> Operator for AsyncProcessorOperator<P> {
    fn push(&mut self, record: &mut dyn Any, cx: &mut LaneCx<'_>) -> Result<()> {
        let record = take(record);
        self.idle().enter_record(&record, cx)?;
        self.begin(Call::Record(record), What::Record, cx)
    }

    fn state(&mut self) -> Option<&mut dyn StateOperator> {
        if P::FIELDS.is_empty() && P::PUNCTUATORS.is_empty() { None } else { Some(self) }
    }

    fn waiting(&mut self) -> Option<&mut dyn Waiting> {
        Some(self)
    }
}

impl<P: Handlers> StateOperator for AsyncProcessorOperator<P> {
    fn fields(&mut self, visit: &mut dyn FnMut(&mut dyn Field)) {
        if let Some(operator) = &mut self.idle {
            operator.fields(visit);
        }
    }

    fn fire(&mut self, field: usize, time: Timestamp, cx: &mut LaneCx<'_>) -> Result<()> {
        let key = self.idle().enter_timer(time, cx)?;
        self.begin(Call::Fired(field, Fired::new(key, time)), What::Timer(field, time), cx)
    }

    fn punctuators(&self) -> &[Punctuator] {
        P::PUNCTUATORS
    }

    fn punctuate(&mut self, which: usize, at: Timestamp, cx: &mut LaneCx<'_>) -> Result<()> {
        self.idle().enter_punctuator(which, at, cx)?;
        self.begin(Call::Punctuate(which), What::punctuator::<P>(which), cx)
    }
}

impl<P: Handlers> Waiting for AsyncProcessorOperator<P> {
    fn wake_by(&mut self, waker: Waker) {
        self.waker = waker;
    }

    fn waits(&self) -> bool {
        self.waiting.is_some()
    }

    fn call(&self) -> Option<WaitingCall> {
        self.waiting.as_ref().map(|r| WaitingCall {
            tag: Tag { number: r.number, path: r.path.clone() },
            nth: self.waited,
            origin: r.origin,
            place: r.place.clone(),
        })
    }

    fn resume(&mut self, cx: &mut LaneCx<'_>) -> Result<()> {
        let Some(mut running) = self.waiting.take() else { return Ok(()) };
        cx.number = running.number;
        cx.path.clone_from(&running.path);
        cx.key.clone_from(&running.key);
        cx.origin = running.origin;
        if let Some((batch, i)) = &running.source {
            cx.gate.hold(batch, *i);
        }
        match running.call.as_mut().poll(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(done) => self.end(done, running.what, cx),
            Poll::Pending => {
                self.waiting = Some(running);
                Ok(())
            }
        }
    }
}
