//! The program `faults` with `--chaos`, and what it needs.

use crate::install::FOR_KAFKA_BROKER;
use crate::sh::{Result, run as run_command};
use crate::suite::Machine;
use crate::{install, kafka};

/// Builds the examples as users run them, fetches Kafka's jars and lets chaos loose.
pub(crate) fn run(install: bool, arguments: &[String]) -> Result<()> {
    install::require(FOR_KAFKA_BROKER, install)?;
    let machine = Machine::prepare(install, None)?;
    let jars = kafka::jars()?;
    run_command(machine.cargo().args(["build", "--release", "--package", "stoat-examples", "--bins"]))?;
    let mut faults = machine.cargo();
    faults.args(["run", "--quiet", "--release", "--package", "stoat-examples", "--bin", "faults", "--", "--chaos"]);
    run_command(faults.args(arguments).env("STOAT_TEST_KAFKA_JARS", jars))
}
