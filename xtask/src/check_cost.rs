//! What topologies cost `cargo check`: a crate with so many of them against the same crate without.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::sh::{Context as _, Result, cargo, output, root};

/// What all topologies share.
const SHARED: &str = r#"
use stoat_core::prelude::*;

#[derive(Key, Clone, Debug, PartialEq, Eq, Hash)]
#[key(codec = Utf8)]
pub struct Id(pub String);

#[source(topic = "in", key = Id, value = u64)]
pub struct In;

#[sink(topic = "out", key = Id, value = u64)]
pub struct Out;

#[processor(input = (Id, u64), output = u64)]
pub struct Sum {
    #[state]
    sum: Keyed<u64>,
    #[timer]
    idle: Timer,
}

#[handlers]
impl Sum {
    #[process]
    fn on_record(&mut self, r: Record<Id, u64>, cx: &mut Context<Self>) -> Result<()> {
        self.idle.set(r.timestamp)?;
        let sum = self.sum.get()?.copied().unwrap_or(0) + r.value;
        self.sum.put(sum)?;
        cx.forward(sum)
    }

    #[on_timer(idle)]
    fn close(&mut self, _fired: Fired<Id>, cx: &mut Context<Self>) -> Result<()> {
        self.sum.take()?.map_or(Ok(()), |sum| cx.forward(sum))
    }
}
"#;

/// Whether the streams between the steps have names, at which types forget the steps before.
#[derive(Clone, Copy)]
enum Form {
    Named,
    OneChain,
}

/// One topology of 28 operators: a source, 25 steps without state, a processor, a sink.
fn topology(i: usize, form: Form) -> String {
    let mut text = format!("\n#[topology]\npub fn topology_{i}(t: &mut Topology) {{\n    let s0 = t.source::<In>();\n");
    let mut at = "s0".to_owned();
    for n in 1..=6 {
        let steps = format!(
            "{at}.map_values(|v| v + {n}).filter(|_, v| *v > {i}).peek(|_, _| {{}}).filter_not(|_, v| *v == {n})"
        );
        at = match form {
            Form::Named => {
                let _ = writeln!(text, "    let s{n} = {steps};");
                format!("s{n}")
            }
            Form::OneChain => steps,
        };
    }
    let _ = writeln!(text, "    {at}.map_values(|v| v).process::<Sum>().sink::<Out>();\n}}");
    text
}

/// Seconds of processor time that the programs run from here have taken so far.
fn spent() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat").context(|| "cannot read /proc/self/stat".to_owned())?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // Fields 16 and 17 of proc(5), counted from the first behind the name; in hundredths on every Linux that we know.
    let ticks = [13, 14].map(|i| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or_default());
    Ok((ticks[0] + ticks[1]) / 100.0)
}

/// Prints what 1, 10 and 50 topologies add to `cargo check`.
pub(crate) fn print() -> Result<()> {
    let crate_dir = root().join("target/check-cost");
    let source = crate_dir.join("src/lib.rs");
    let write = |path: &Path, text: &str| fs::write(path, text).context(|| format!("cannot write {}", path.display()));
    fs::create_dir_all(crate_dir.join("src")).context(|| format!("cannot make {}", crate_dir.display()))?;
    let manifest = "[package]\nname = \"check-cost\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
                    stoat-core = { path = \"../../stoat-core\", default-features = false }\n";
    write(&crate_dir.join("Cargo.toml"), manifest)?;
    fs::copy(root().join("Cargo.lock"), crate_dir.join("Cargo.lock"))
        .context(|| "cannot copy Cargo.lock".to_owned())?;
    let check = |n: usize, form: Form| -> Result<f64> {
        let program: String = (0..n).fold(SHARED.to_owned(), |text, i| text + &topology(i, form));
        let mut least = f64::MAX;
        for round in 0..4 {
            // Another text, so that it is checked again; the first round may build dependencies.
            write(&source, &format!("{program}\n// {round}\n"))?;
            let before = spent()?;
            output(cargo().current_dir(&crate_dir).args(["check", "--quiet"]).env("CARGO_INCREMENTAL", "0"))?;
            if round > 0 {
                least = least.min(spent()? - before);
            }
        }
        Ok(least)
    };
    let without = check(0, Form::Named)?;
    println!("without topologies: {without:.2} s of processor time");
    for (form, words) in [(Form::Named, "a name for every fourth"), (Form::OneChain, "in one chain")] {
        for n in [1, 10, 50] {
            let with = check(n, form)?;
            println!("{n} topologies of 28 operators, {words}: {with:.2} s, {:.3} s each", (with - without) / n as f64);
        }
    }
    Ok(())
}
