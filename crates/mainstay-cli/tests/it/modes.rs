//! Files that the program creates are its user's alone, whatever the umask is.
#![cfg(unix)]

use crate::program::{Folder, command};
use crate::serving::Serving;
use mainstay_testkit::postgres::Postgres;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// The program with a umask that takes nothing away, in a process of its own: a umask is that of a whole process.
fn permissive(folder: &Folder, arguments: &str) -> Command {
    let program = command(folder, arguments);
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 000; exec \"$0\" \"$@\""]).arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.current_dir(folder.path());
    shell
}

fn run(folder: &Folder, arguments: &str) -> String {
    let output = permissive(folder, arguments).output().unwrap();
    assert!(output.status.success(), "{arguments}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The mode of everything in a folder, by name.
fn modes(folder: &Folder) -> BTreeMap<String, u32> {
    let entries = std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap);
    let mode = |entry: std::fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().permissions().mode() & 0o777)
    };
    entries.map(mode).collect()
}

#[test]
fn every_file_is_its_users_alone_whatever_the_umask() {
    let folder = Folder::new();
    run(&folder, "token create --name ci --role admin --file admin.token");
    let token = std::fs::read_to_string(folder.path().join("admin.token")).unwrap();
    assert!(token.starts_with("mst_") && token.trim().len() == 85, "{token}");
    run(&folder, "backup night");
    run(&folder, "restore night --store sqlite:new.db");
    let server = Serving::listening({
        let mut serve = permissive(&folder, "serve --json --listen 127.0.0.1:0");
        serve.stderr(std::process::Stdio::null());
        serve
    });
    let names = [
        "admin.token",
        "mainstay.db",
        "mainstay.db-owner",
        "mainstay.db-shm",
        "mainstay.db-wal",
        "new.db",
        "night",
    ];
    let expected: BTreeMap<String, u32> = names.iter().map(|name| ((*name).to_owned(), 0o600)).collect();
    assert_eq!(modes(&folder), expected);
    drop(server);

    let database = Postgres::shared().unwrap().database().unwrap();
    run(&folder, &format!("token list --store {}", database.url()));
    run(&folder, &format!("backup dump --store {}", database.url()));
    assert_eq!(modes(&folder)["dump"], 0o600);
}

#[test]
fn a_folder_of_the_demo_is_its_users_alone() {
    let folder = Folder::new();
    let ended = permissive(&folder, "demo --keep kept --for 1 --listen 127.0.0.1:0 --json").output().unwrap();
    assert_eq!(modes(&folder)["kept"], 0o700, "{ended:?}");
}

#[test]
fn a_wider_mode_is_reported_with_what_mends_it_and_left() {
    let folder = Folder::new();
    run(&folder, "token create --name ci --role admin");
    let file = folder.path().join("mainstay.db");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let answer = folder.run("token list");
    assert!(
        answer.stderr.contains("mainstay.db")
            && answer.stderr.contains("0644")
            && answer.stderr.contains("chmod 600"),
        "{answer:?}"
    );
    assert_eq!(modes(&folder)["mainstay.db"], 0o644);
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(folder.run("token list").stderr, "");
    // Whoever can write to the folder can put another database there.
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let answer = folder.run("token list");
    assert!(answer.stderr.contains("0777") && answer.stderr.contains("chmod go-w"), "{answer:?}");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
}

#[test]
fn a_secret_takes_no_files_place_and_a_refused_token_leaves_no_file() {
    let folder = Folder::new();
    folder.write("there", "mine");
    folder.run("token create --name ci --role admin --file there").assert_failed(1, "CLI_IO_FAILED");
    assert_eq!(std::fs::read_to_string(folder.path().join("there")).unwrap(), "mine");
    assert_eq!(folder.run("token create --name ci --role worker --file new").code, 2);
    assert!(!folder.path().join("new").exists());
    let listed = folder.run("token list --json").json();
    assert_eq!(listed["tokens"].as_array().unwrap().len(), 0);
}
