//! Which field an error of serde is about.

use serde_path_to_error::Path;

/// The field as a client would write it: `events[0].type`. Nothing when it is about the whole.
pub(super) fn name(path: &Path, message: &str) -> Option<String> {
    let path = path.to_string();
    let outer = (path != "." && path != "?").then_some(path);
    // What is missing is noticed by the object around it, and so is what is unknown.
    let inner = ["missing field `", "unknown field `", "duplicate field `"]
        .iter()
        .find_map(|start| message.strip_prefix(start)?.split_once('`'))
        .map(|(field, _)| field);
    match (outer, inner) {
        (Some(outer), Some(inner)) if outer != inner && !outer.ends_with(&format!(".{inner}")) => {
            Some(format!("{outer}.{inner}"))
        }
        (Some(outer), _) => Some(outer),
        (None, inner) => inner.map(str::to_owned),
    }
}
