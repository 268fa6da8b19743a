//! What this process takes, from Linux' `/proc`.

use std::fs;

use stoat_core::prelude::*;

/// Resident memory, in bytes.
///
/// # Errors
/// Where `/proc` does not say it.
pub fn resident() -> Result<u64> {
    status("VmRSS")
}

/// The most resident memory since the start, or since [`begin_peak`], in bytes.
///
/// # Errors
/// Where `/proc` does not say it.
pub fn peak() -> Result<u64> {
    status("VmHWM")
}

/// Begins the peak anew.
///
/// # Errors
/// Where `/proc` does not allow it.
pub fn begin_peak() -> Result<()> {
    Ok(fs::write("/proc/self/clear_refs", "5")?)
}

/// Bytes as MiB.
pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// A line of `/proc/self/status`, in bytes.
fn status(line: &str) -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let found = status.lines().find_map(|l| l.strip_prefix(line)).unwrap_or_default();
    Ok(found.trim_matches([':', ' ', '\t']).trim_end_matches(" kB").parse::<u64>()? << 10)
}
