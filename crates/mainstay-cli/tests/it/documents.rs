//! What the documents point at exists: other documents, and the tests that keep the invariants.

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files below `folder` that end in `suffix`.
fn files(folder: &Path, suffix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => files(&path, suffix),
            false => Vec::from_iter(path.to_string_lossy().ends_with(suffix).then_some(path)),
        })
        .collect()
}

/// The documents of the repository's root and of docs/.
fn documents() -> Vec<PathBuf> {
    let of_the_root = fs::read_dir(root()).expect("the root").map(|entry| entry.expect("an entry").path());
    let of_the_root = of_the_root.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    of_the_root.chain(files(&root().join("docs"), ".md")).collect()
}

/// The targets of `[text](target)` that are not on the web.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    targets.filter(|target| !target.starts_with("http"))
}

/// The anchors that a document's headings make.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let anchor = |heading: &str| {
        let kept = heading.to_lowercase().replace(' ', "-");
        kept.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect()
    };
    text.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(' ')).map(anchor).collect()
}

#[test]
fn links_lead_somewhere() {
    let documents = documents();
    assert!(documents.len() > 10);
    for document in documents {
        let text = fs::read_to_string(&document).unwrap();
        for link in links(&text) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target =
                if file.is_empty() { document.clone() } else { document.with_file_name("").join(file) };
            assert!(target.exists(), "{} links to {link}", document.display());
            let is_there =
                || anchors(&fs::read_to_string(&target).unwrap()).iter().any(|known| known == anchor);
            assert!(anchor.is_empty() || is_there(), "{} links to {link}", document.display());
        }
    }
}

#[test]
fn the_tests_named_in_the_architecture_exist() {
    let architecture = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = architecture.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    // Files and folders have a dot or a slash; a name with underscores is a test.
    let names: Vec<&str> = rows.flat_map(|(_, kept_by)| kept_by.split('`').skip(1).step_by(2)).collect();
    let tests = names.iter().filter(|name| name.contains('_') && !name.contains(['.', '/']));
    let sources: Vec<String> =
        files(&root().join("crates"), ".rs").iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    for test in tests.clone() {
        let definition = format!("fn {test}(");
        assert!(sources.iter().any(|source| source.contains(&definition)), "there is no test {test}");
    }
    assert!(tests.count() > 20, "the table of invariants was not read");
}
