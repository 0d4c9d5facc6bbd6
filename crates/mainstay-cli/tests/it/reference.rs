//! The generated pages under docs/.

use crate::program::Folder;

#[test]
fn the_committed_pages_are_what_would_be_generated_now() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let answer = Folder::new().run(&format!("reference --check --root {root}"));
    assert_eq!(answer.code, 0, "run `cargo run -- reference`: {}", answer.stderr);
}

#[test]
fn checking_writes_nothing_and_lists_what_differs() {
    let folder = Folder::new();
    let answer = folder.run("reference --check");
    answer.assert_failed(1, "CLI_REFERENCE_STALE");
    assert!(
        answer
            .stderr
            .contains("docs/reference/cli.md, docs/reference/configuration.md, docs/errors/README.md")
    );
    assert_eq!(folder.files(), [""; 0]);
    assert_eq!(folder.run("reference").code, 0);
    assert_eq!(folder.run("reference --check").code, 0);
}
