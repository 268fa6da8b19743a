use super::ByteStore;
use super::overlay::{KeyBytes, Overlay};
use crate::error::Result;

/// One row of a merged scan.
pub(crate) enum Merged<'a, V> {
    /// As the overlay has it, decoded.
    Decoded(&'a V),
    /// As the store has it, in the local layout.
    Stored(&'a [u8]),
}

/// Visits all keys with `from <= key < to` in order: those entries of the overlay that `own` accepts hide the store's
/// rows, deleted ones too. Ends when the visitor says `false`.
pub(crate) fn merged<V>(
    overlay: &Overlay<V>,
    own: impl Fn(&[u8]) -> bool,
    bytes: &dyn ByteStore,
    from: Option<&[u8]>,
    to: Option<&[u8]>,
    mut visit: impl FnMut(&[u8], Merged<'_, V>) -> Result<bool>,
) -> Result<()> {
    let inside = |k: &[u8]| from.is_none_or(|f| f <= k) && to.is_none_or(|t| k < t) && own(k);
    let mut written: Vec<(&KeyBytes, Option<&V>)> = overlay.entries().filter(|(k, _)| inside(k)).collect();
    written.sort_unstable_by(|a, b| a.0.cmp(b.0));
    let mut written = written.into_iter().peekable();
    let mut result = Ok(true);

    bytes.scan(from, to, &mut |key, value| {
        while let Some((k, v)) = written.next_if(|(k, _)| k.as_slice() < key) {
            if let Some(v) = v {
                result = visit(k, Merged::Decoded(v));
                if !matches!(result, Ok(true)) {
                    return false;
                }
            }
        }
        result = match written.next_if(|(k, _)| k.as_slice() == key) {
            Some((k, Some(v))) => visit(k, Merged::Decoded(v)),
            Some((_, None)) => Ok(true),
            None => visit(key, Merged::Stored(value)),
        };
        matches!(result, Ok(true))
    })?;
    if !result? {
        return Ok(());
    }
    for (k, v) in written {
        if let Some(v) = v
            && !visit(k, Merged::Decoded(v))?
        {
            break;
        }
    }
    Ok(())
}

/// The smallest byte string above all that begin with `prefix`; `None`: there is none.
pub(crate) fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Some(end);
        }
    }
    None
}
