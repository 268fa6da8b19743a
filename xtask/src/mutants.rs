//! Faults put into the engine on purpose: the simulator must find each.
//!
//! A copy of the sources gets all of them at once, each behind a switch (`STOAT_MUTANT`), so that it is built once. What is
//! replaced must be there exactly once: a change of the engine that moves it has to move it here too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sh::{Context as _, Result, Steps, cargo, output, root};
use crate::sim::{listen, simulator};

/// A fault: its name, the file, what is replaced and by what.
struct Mutant {
    name: &'static str,
    changes: &'static [(&'static str, &'static str, &'static str)],
}

const SWITCH: &str = r#"

/// The fault that is switched on.
#[doc(hidden)]
pub fn mutant(name: &str) -> bool {
    static ON: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    ON.get_or_init(|| std::env::var("STOAT_MUTANT").ok()).as_deref() == Some(name)
}
"#;

const RUN: &str = "stoat-core/src/engine/run.rs";
const COMMIT: &str = "stoat-core/src/engine/run/commit.rs";

const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "offset-plus-one",
        changes: &[(
            COMMIT,
            "            record.set_input(&input.partition, *cut);",
            "            let mut cut = *cut;\n            cut.next += i64::from(crate::mutant(\"offset-plus-one\"));\n            \
             record.set_input(&input.partition, cut);",
        )],
    },
    Mutant {
        name: "stores-before-kafka",
        changes: &[(
            COMMIT,
            "        let op = cx.io.submit(Command::Transact(p.transaction.clone()));\n",
            "        if crate::mutant(\"stores-before-kafka\") {\n            \
             for (s, b) in store_batches(&self.known.targets, p.rows.clone(), &[], p.epoch, cx.wall, false) {\n                \
             let _ = cx.stores[s.0 as usize].apply(self.generation, &b);\n            }\n        }\n        \
             let op = cx.io.submit(Command::Transact(p.transaction.clone()));\n",
        )],
    },
    Mutant {
        name: "skip-alignment",
        changes: &[(
            RUN,
            "                    if p.frozen.len() == lanes {\n",
            "                    let early = crate::mutant(\"skip-alignment\") && p.frozen.len() + 1 == lanes;\n                    \
             if matches!(p.stage, Stage::Freezing) && (p.frozen.len() == lanes || early) {\n",
        )],
    },
    Mutant {
        name: "timer-on-wrong-lane",
        changes: &[(
            "stoat-core/src/timer/pending.rs",
            "            if lane_of(hash, self.lanes) != self.lane {\n",
            "            let mine = (self.lane + u32::from(crate::mutant(\"timer-on-wrong-lane\"))) % self.lanes;\n            \
             if lane_of(hash, self.lanes) != mine {\n",
        )],
    },
    Mutant {
        name: "reordered-partition",
        changes: &[(
            "stoat-core/src/engine/ingest.rs",
            "            input.buffer.push_back(Chunk { batch: Arc::new(fetched.batch), at: 0 });\n",
            "            let chunk = Chunk { batch: Arc::new(fetched.batch), at: 0 };\n            \
             if crate::mutant(\"reordered-partition\") {\n                input.buffer.push_front(chunk);\n            } else {\n                \
             input.buffer.push_back(chunk);\n            }\n",
        )],
    },
    Mutant {
        name: "dropped-epoch-on-abort",
        changes: &[(
            COMMIT,
            "            Remedy::Recover { look_first, counts } => recover(look_first, counts),\n",
            "            Remedy::Recover { .. } if e.kind == BrokerErrorKind::Abort && crate::mutant(\"dropped-epoch-on-abort\") => {\n                \
             self.committed(cx, Committed::default());\n                Ok(())\n            }\n            \
             Remedy::Recover { look_first, counts } => recover(look_first, counts),\n",
        )],
    },
    Mutant {
        name: "swallowed-fatal",
        changes: &[(
            RUN,
            "                Err(Self::fault(error))\n",
            "                if crate::mutant(\"swallowed-fatal\") { Ok(()) } else { Err(Self::fault(error)) }\n",
        )],
    },
    Mutant {
        name: "late-record-after-restart",
        changes: &[
            (
                RUN,
                "        let marked: Vec<Watermark> =\n            plan.subs.iter().map(|s| record.watermarks.get(&s.name).copied().unwrap_or(Timestamp::MIN)).collect();\n",
                "        let mut marked: Vec<Watermark> =\n            plan.subs.iter().map(|s| record.watermarks.get(&s.name).copied().unwrap_or(Timestamp::MIN)).collect();\n        \
             if crate::mutant(\"late-record-after-restart\") {\n            marked.fill(Timestamp::MIN);\n        }\n",
            ),
            (
                "stoat-core/src/engine/core.rs",
                "        let counts = plan.lane_counts();\n        let gates",
                "        let watermarks = if crate::mutant(\"late-record-after-restart\") {\n            \
             vec![Timestamp::MIN; watermarks.len()]\n        } else {\n            watermarks\n        };\n        \
             let counts = plan.lane_counts();\n        let gates",
            ),
        ],
    },
    Mutant {
        name: "timer-fired-twice",
        changes: &[(
            "stoat-core/src/timer/pending.rs",
            "        *self.rows.write(first.slot, first.time) = None;\n",
            "        if !crate::mutant(\"timer-fired-twice\") {\n            *self.rows.write(first.slot, first.time) = None;\n        }\n",
        )],
    },
    Mutant {
        name: "lost-dead-letter",
        changes: &[(
            "stoat-core/src/gate/lane.rs",
            "        self.emit(letters.sink, key, value, timestamp, headers);\n",
            "        if !crate::mutant(\"lost-dead-letter\") {\n            \
             self.emit(letters.sink, key, value, timestamp, headers);\n        }\n",
        )],
    },
];

/// Copies the sources, puts the faults in, and runs the simulator with each.
pub(crate) fn run(only: Option<&str>, seeds: u64) -> Result<()> {
    let copy = std::env::temp_dir().join(format!("stoat-mutants-{}", std::process::id()));
    let result = copied(&copy).and_then(|()| find_each(&copy, only, seeds));
    fs::remove_dir_all(&copy).context(|| format!("cannot remove {}", copy.display()))?;
    result
}

/// Copies the files of the project, changed ones as they are.
pub(crate) fn copy(to: &Path) -> Result<()> {
    let mut git = Command::new("git");
    git.current_dir(root()).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    for file in output(&mut git)?.split('\0').filter(|f| !f.is_empty()) {
        let (from, to) = (root().join(file), to.join(file));
        if from.is_file() {
            fs::create_dir_all(to.parent().ok_or("a file lies in a folder")?)
                .and_then(|()| fs::copy(&from, &to))
                .context(|| format!("cannot copy {file}"))?;
        }
    }
    Ok(())
}

fn copied(to: &Path) -> Result<()> {
    copy(to)?;
    let edit = |file: &str, change: &dyn Fn(String) -> Result<String>| {
        let path = to.join(file);
        let text = fs::read_to_string(&path).context(|| format!("cannot read {file}"))?;
        fs::write(&path, change(text)?).context(|| format!("cannot write {file}"))
    };
    edit("stoat-core/src/lib.rs", &|text| Ok(text + SWITCH))?;
    for Mutant { name, changes } in MUTANTS {
        for (file, from, into) in *changes {
            edit(file, &|text| match text.matches(from).count() {
                1 => Ok(text.replace(from, into)),
                n => Err(format!("`{name}`: what it replaces is {n} times in {file}, not once:\n{from}").into()),
            })?;
        }
    }
    Ok(())
}

fn find_each(copy: &Path, only: Option<&str>, seeds: u64) -> Result<()> {
    let steps = Steps::new(1);
    // A folder of its own: cargo tells two copies of a workspace apart by their times only, and would hand the tree what was
    // made of the copy.
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let run = |name: &str| {
        let mut cargo = cargo();
        cargo.current_dir(copy).env("CARGO_TARGET_DIR", target.join("mutants")).env("STOAT_MUTANT", name);
        cargo.env("STOAT_SIM_SEEDS", (seeds / 500).max(1).to_string());
        listen(simulator(cargo))
    };
    let (mut missed, mut table) = (Vec::new(), Vec::new());
    if only.is_none() {
        let told = run("none")?;
        if !told.passed {
            return Err("without a fault the simulator does not pass in the copy: see `cargo xtask sim`".into());
        }
        eprintln!("  without a fault {} seeds pass", told.seeds());
    }
    for Mutant { name, .. } in MUTANTS.iter().filter(|m| only.is_none_or(|o| o == m.name)) {
        let told = run(name)?;
        let line = match told.failed.first() {
            Some((test, seed)) => format!("  {name:<28} seed {seed:>6}  {test}"),
            None if !told.passed => format!("  {name:<28} found     by a test without a seed"),
            None => {
                missed.push(*name);
                format!("  {name:<28} not found in {} seeds", told.seeds())
            }
        };
        eprintln!("{line}  ({} tests with a failing seed)", told.failed.len());
        table.push(line);
    }
    println!("{}", table.join("\n"));
    eprintln!("  in {}", steps.elapsed());
    if missed.is_empty() { Ok(()) } else { Err(format!("the simulator did not find {}", missed.join(", ")).into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_can_still_be_put_in() {
        for Mutant { name, changes } in MUTANTS {
            for (file, from, _) in *changes {
                let text = fs::read_to_string(root().join(file)).unwrap();
                assert_eq!(text.matches(from).count(), 1, "`{name}` in {file}:\n{from}");
            }
        }
    }
}
