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
fn appends_are_measured_and_read_back() {
    let folder = Folder::new();
    let report = folder.run("bench events --seconds 1 --callers 1,4 --json").json();
    let measurements = report["measurements"].as_array().unwrap();
    assert_eq!(measurements.iter().map(|one| one["callers"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 4]);
    let appended: f64 = measurements.iter().map(|one| one["perSecond"].as_f64().unwrap()).sum();
    assert!(measurements.iter().all(|one| one["failed"] == 0), "every tag is new: {report}");
    // Those of the warm-up were appended too.
    assert!(report["reading"]["events"].as_f64().unwrap() >= appended.floor(), "{report}");
    assert!(report["reading"]["perSecond"].as_f64().unwrap() > 0.0, "{report}");
    assert_eq!(folder.files(), [""; 0]);

    // A second time on the same log: its tags are others, and only its own events are read.
    let again = |folder: &Folder| {
        folder.run("bench events --seconds 1 --callers 1 --store sqlite:mine.db --json").json()
    };
    let (first, second) = (again(&folder), again(&folder));
    assert_eq!(second["measurements"][0]["failed"], 0);
    let last = folder.run("events read --all --json --store sqlite:mine.db").stdout.lines().count() as u64;
    let events = |report: &serde_json::Value| report["reading"]["events"].as_u64().unwrap();
    assert_eq!(events(&first) + events(&second), last);
}

#[test]
fn work_is_measured() {
    let folder = Folder::new();
    let report = folder.run("bench work --thousands 1 --starts 5 --json").json();
    assert!(report["durability"].as_str().unwrap().contains("synchronous=FULL"), "{report}");
    let work = &report["work"];
    assert_eq!(work["items"], 1000);
    for figure in ["enqueuedPerSecond", "workedPerSecond", "startP50Ms", "startP99Ms"] {
        assert!(work[figure].as_f64().unwrap() > 0.0, "{report}");
    }
    assert!(report.get("measurements").is_none());
    assert_eq!(folder.files(), [""; 0]);
    let told = folder.run("bench work --thousands 1 --starts 1").stdout;
    assert!(told.contains("\nWorking them, at most 1000 at once: "), "{told}");
}

#[test]
fn limits_are_measured() {
    let folder = Folder::new();
    let report = folder.run("bench limits --seconds 1 --callers 1,4 --json").json();
    for measurement in report["measurements"].as_array().unwrap() {
        assert!(measurement["perSecond"].as_f64().unwrap() > 0.0 && measurement["failed"] == 0, "{report}");
    }
    assert!(report["inMemoryPerSecond"].as_f64().unwrap() > 1_000.0, "{report}");
    assert_eq!(folder.files(), [""; 0]);
}

#[test]
fn a_replay_is_measured() {
    let folder = Folder::new();
    let report = folder.run("bench replay --events 2500 --json").json();
    assert!(report["durability"].as_str().unwrap().contains("synchronous=FULL"), "{report}");
    let replay = &report["replay"];
    assert_eq!((&replay["events"], &replay["rows"]), (&2500.into(), &2500.into()), "{report}");
    for figure in ["appendedPerSecond", "replayedPerSecond"] {
        assert!(replay[figure].as_f64().unwrap() > 0.0, "{report}");
    }
    assert_eq!(folder.files(), [""; 0]);

    // A second time on the same store: only its own events are replayed, and its table is gone again.
    for _ in 0..2 {
        let told = folder.run("bench replay --events 150 --store sqlite:mine.db").stdout;
        assert!(told.contains("fsync on every commit"), "{told}");
        assert!(told.contains("\nReplaying them into 150 rows, 2000 to a commit: "), "{told}");
    }
    let events = folder.run("events read --all --json --store sqlite:mine.db").stdout.lines().count();
    assert_eq!(events, 300);
}

#[test]
fn publications_are_measured_and_each_came_once() {
    let folder = Folder::new();
    let report = folder.run("bench publications --events 150 --at-once 8 --json").json();
    assert!(report["durability"].as_str().unwrap().contains("synchronous=FULL"), "{report}");
    let publications = report["publications"].as_array().unwrap();
    assert_eq!(publications.iter().map(|one| one["targetMs"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 10]);
    for one in publications {
        assert_eq!((&one["events"], &one["requests"], &one["atOnce"]), (&150.into(), &150.into(), &8.into()));
        for figure in ["publishedPerSecond", "deliveredPerSecond"] {
            assert!(one[figure].as_f64().unwrap() > 0.0, "{report}");
        }
    }
    // Eight at once, each of which takes 10 ms, cannot be more.
    assert!(publications[1]["deliveredPerSecond"].as_f64().unwrap() <= 800.0, "{report}");
    assert_eq!(folder.files(), [""; 0]);

    // A second time on the same store: its events are others.
    for _ in 0..2 {
        let told = folder.run("bench publications --events 20 --target-ms 0 --store sqlite:mine.db").stdout;
        assert!(told.contains("fsync on every commit"), "{told}");
        assert!(
            told.contains("\nDelivering them, at most 64 at once, to a target that answers at once: "),
            "{told}"
        );
    }
}

#[test]
fn what_operators_ask_for_is_measured_over_what_they_have() {
    let folder = Folder::new();
    let report = folder.run("bench operate --events 2000 --letters 30 --times 2 --json").json();
    let operate = &report["operate"];
    assert_eq!((&operate["events"], &operate["letters"]), (&2000.into(), &30.into()));
    assert!(operate["appendedPerSecond"].as_f64().unwrap() > 0.0, "{report}");
    let answers = operate["answers"].as_array().unwrap();
    for path in ["/health/ready", "/metrics", "/console", "/console/dead-letters"] {
        let answer = answers.iter().find(|answer| answer["path"] == path).unwrap();
        for figure in ["bytes", "mostMs", "quietP50Ms", "quietLongestMs", "busyP50Ms", "busyLongestMs"] {
            assert!(answer[figure].as_f64().unwrap() > 0.0, "{answer}");
        }
    }
    let pages = operate["pages"].as_array().unwrap();
    let list = |list: &str| pages.iter().find(|one| one["list"] == list).unwrap();
    let page = list("/v1/events?order=backward")["page"].as_u64().unwrap();
    assert!(page >= 40, "2000 events, and those that came meanwhile: {report}");
    assert_eq!(list("/admin/dead-letters")["page"], 1);
    assert!(list("/admin/audit")["page"].as_u64().unwrap() >= 40, "{report}");
    let bytes = operate["transferredBytes"].as_u64().unwrap();
    assert!(bytes > 10_000 && bytes < 200_000, "{report}");
    assert_eq!(folder.files(), [""; 0]);
    let checked = folder.run("bench operate --events 10 --letters 0 --times 1 --json --check");
    // On a busy machine something may be: what is told and what came of it must agree.
    let told: serde_json::Value = serde_json::from_str(&checked.stdout).unwrap();
    let is_over = !told["operate"]["over"].as_array().unwrap().is_empty();
    assert_eq!((checked.code, checked.stderr.contains("CLI_OVER_LIMIT")), (i32::from(is_over), is_over));
    let told = folder.run("bench operate --events 10 --letters 0 --times 1").stdout;
    assert!(told.contains("\nOver 10 events and 0 dead letters, in milliseconds; busy: beside "), "{told}");
    assert!(told.contains("\n| /metrics  ") && told.contains("\n| /console/events?tag=bench:7 "), "{told}");
}

#[test]
fn refuses_numbers_that_make_no_sense() {
    for arguments in [
        "bench store --callers 0",
        "bench store --seconds 0",
        "bench store --callers many",
        "bench events --callers 0",
        "bench work --thousands 0",
        "bench work --starts 0",
        "bench replay --events 0",
        "bench publications --events 0",
        "bench publications --at-once 0",
    ] {
        assert_eq!(Folder::new().run(arguments).code, 2, "{arguments}");
    }
}
