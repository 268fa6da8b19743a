//! How long a macro call takes: for a processor with 20 states, 20 timers and 21 handlers, and for topologies.
//!
//! `cargo run --release -p stoat-bench --bin macro_time [CALLS]`
//!
//! Prints milliseconds of CPU per call, the least of five rounds and the mean, for the macros as this program's profile
//! compiles them. (Cargo compiles macros without optimisation unless `[profile.dev.build-override]` says otherwise: to see that,
//! leave `--release` out.) The tokens are those of `proc-macro2` outside of the compiler; handing them over is not in the figures.
#![allow(dead_code, reason = "the macros have more entries than this program calls")]

#[path = "../../../stoat-macros/src/handlers/mod.rs"]
mod handlers;
#[path = "../../../stoat-macros/src/processor/mod.rs"]
mod processor;
#[path = "../../../stoat-macros/src/topology/mod.rs"]
mod topology;

use std::error::Error;
use std::fmt::Write;
use std::fs;

use proc_macro2::TokenStream;

const ROUNDS: usize = 5;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let calls: u32 = std::env::args().nth(1).map_or(Ok(50), |a| a.parse())?;
    let (item, methods) = big(20)?;
    let args: TokenStream = "input = (UserId, Click), output = Session".parse()?;
    let of_struct =
        time("#[processor] with 20 states and 20 timers", calls, || processor::expand(args.clone(), item.clone()))?;
    let of_impl =
        time("#[handlers] with 21 handlers", calls, || handlers::expand(TokenStream::new(), methods.clone()))?;
    println!("both: {:.2} ms at least", of_struct + of_impl);
    for operators in [3, 28, 280] {
        let item = chain(operators)?;
        time(&format!("#[topology] of {operators} operators"), calls, || {
            topology::expand(TokenStream::new(), item.clone())
        })?;
    }
    Ok(())
}

/// A processor with a handler for records, so many timers with their handlers, and a state for each.
fn big(n: usize) -> Result<(TokenStream, TokenStream)> {
    let (mut fields, mut methods) = (String::new(), String::new());
    for i in 0..n {
        write!(fields, "#[state] s{i}: Keyed<Session>, #[timer] t{i}: Timer,")?;
        write!(
            methods,
            "#[on_timer(t{i})] fn on_{i}(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {{
                 if let Some(session) = self.s{i}.take()? {{ cx.forward(session)?; }}
                 Ok(())
             }}"
        )?;
    }
    let methods = format!(
        "#[process] fn on_click(&mut self, click: Record<UserId, Click>, cx: &mut Context<Self>) -> Result<()> {{
             self.s0.update(Session::default, |s| s.add(&click.value))?;
             self.t0.set(click.timestamp + IDLE)
         }} {methods}"
    );
    Ok((format!("struct P {{ {fields} }}").parse()?, format!("impl P {{ {methods} }}").parse()?))
}

/// A topology of so many operators, each with a name; source and sink are two of them.
fn chain(operators: usize) -> Result<TokenStream> {
    let mut text = "fn big(t: &mut Topology) { let s0 = t.source::<In>();".to_owned();
    for i in 1..operators - 1 {
        write!(text, "let s{i} = s{}.map_values(|v| v + 1);", i - 1)?;
    }
    write!(text, "s{}.sink::<Out>(); }}", operators - 2)?;
    Ok(text.parse()?)
}

/// Prints what a call takes; returns the least of the rounds, in milliseconds.
fn time(what: &str, calls: u32, mut call: impl FnMut() -> TokenStream) -> Result<f64> {
    let size = call().to_string().len();
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let before = spent()?;
        for _ in 0..calls {
            std::hint::black_box(call());
        }
        rounds.push((spent()? - before) as f64 / 1_000_000.0 / f64::from(calls));
    }
    let least = rounds.iter().copied().fold(f64::MAX, f64::min);
    let mean = rounds.iter().sum::<f64>() / ROUNDS as f64;
    println!("{what}: {least:.2} ms a call at least, {mean:.2} ms in the mean ({size} bytes of text)");
    Ok(least)
}

/// Nanoseconds of CPU of this thread.
fn spent() -> Result<u64> {
    // Linux brings the count up to date when the thread offers its place.
    std::thread::yield_now();
    let stat = fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(stat.split(' ').next().unwrap_or_default().parse()?)
}
