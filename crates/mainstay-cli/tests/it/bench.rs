//! `mainstay bench`.

use crate::program::Folder;

#[test]
fn measures_and_leaves_nothing() {
    let folder = Folder::new();
    let report = folder.run("bench store --seconds 1 --callers 1,4 --json").json();
    assert!(report["durability"].as_str().unwrap().contains("synchronous=FULL"), "{report}");
    let measurements = report["measurements"].as_array().unwrap();
    assert_eq!(measurements.iter().map(|one| one["callers"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 4]);
    for measurement in measurements {
        assert!(measurement["perSecond"].as_f64().unwrap() > 0.0, "{measurement}");
        assert_eq!(measurement["failed"], 0);
    }
    assert_eq!(folder.files(), [""; 0]);
}

#[test]
fn refuses_numbers_that_make_no_sense() {
    for arguments in ["bench store --callers 0", "bench store --seconds 0", "bench store --callers many"] {
        assert_eq!(Folder::new().run(arguments).code, 2, "{arguments}");
    }
}
