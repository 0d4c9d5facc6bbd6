use super::*;
use std::io::Write;

/// Loads a configuration from a file's text and from environment variables.
fn load(text: &str, environment: &[(&str, &str)]) -> Result<Config, String> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let environment = environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
    let path = file.path().to_owned();
    Config::load(Sources { file: Some(path.clone()), environment, flags: Vec::new() }).map_err(|problems| {
        let told = problems
            .iter()
            .map(|problem| format!("[{}] {problem}\n  {}\n", problem.entry().code, problem.hint()));
        told.collect::<String>().replace(&path.display().to_string(), "mainstay.toml")
    })
}

fn refused(text: &str) -> String {
    load(text, &[]).unwrap_err()
}

#[test]
fn an_empty_file_is_valid_and_every_default_is_allowed() {
    let config = load("", &[]).unwrap();
    assert_eq!(config.entries().len(), settings().count());
    for entry in config.entries() {
        assert!(entry.place.is_none());
        assert!(entry.setting.kind.check(&entry.value).is_ok(), "{}", entry.setting.name());
    }
    store::options(&config);
    server::options(&config).unwrap();
    assert_eq!(server::url(&config), "http://127.0.0.1:7420");
}

#[test]
fn a_server_is_found_where_it_listens() {
    let url = |text: &str| server::url(&load(text, &[]).unwrap());
    assert_eq!(url("[server]\nlisten = \"0.0.0.0:1\"\ntlsCert = \"c.pem\""), "https://127.0.0.1:1");
    assert_eq!(url("[server]\nlisten = \"[::]:1\""), "http://[::1]:1");
    let half = load("[server]\ntlsCert = \"c.pem\"", &[]).unwrap();
    let refused = server::options(&half).unwrap_err();
    assert_eq!(refused.to_string(), "TLS: server.tlsKey: is missing, the other is set");
    insta::assert_snapshot!(refused_address(), @r#"
        [CONFIG_INVALID_VALUE] mainstay.toml:2:10: server.listen must be an address and a port, as in 127.0.0.1:7420, not the text "localhost"
          Leave it out to get the default, "127.0.0.1:7420".
        "#);
}

fn refused_address() -> String {
    refused("[server]\nlisten = \"localhost\"\n")
}

#[test]
fn every_setting_is_listed_where_it_says_and_is_documented() {
    for section in SECTIONS {
        for setting in section.settings {
            assert_eq!(setting.section, section.name);
            assert!(setting.doc.ends_with('.'), "{}", setting.name());
        }
    }
    let mut names: Vec<_> = settings().map(Setting::variable).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), settings().count());
    assert!(names.contains(&"MAINSTAY__STORE__BUSY_TIMEOUT_MS".to_owned()));
}

#[test]
fn the_environment_overrides_the_file() {
    let text = "[store]\nreaders = 2\nqueueLimit = 0x10\nmigrate = false\n";
    let config = load(text, &[("MAINSTAY__STORE__READERS", "8"), ("MAINSTAY_OTHER", "x")]).unwrap();
    let stored: Vec<_> = config.entries().iter().filter(|entry| entry.setting.section == "store").collect();
    let shown = |index: usize| {
        let entry = stored[index];
        (entry.setting.key, entry.value.to_string(), entry.place.as_ref().map_or("default", Place::kind))
    };
    assert_eq!(shown(5), ("readers", "8".to_owned(), "environment"));
    assert_eq!(shown(4), ("queueLimit", "16".to_owned(), "file"));
    assert_eq!(shown(8), ("migrate", "false".to_owned(), "file"));
    assert_eq!(shown(6), ("connections", "16".to_owned(), "default"));
}

#[test]
fn names_that_nobody_reads_are_told_with_what_was_meant() {
    insta::assert_snapshot!(
        refused("url = \"x\"\n[pools]\nlisten = \"x\"\n[sotre]\n[store]\nbussyTimeoutMs = 1\n  lsiten = 2\n"),
        @"
        [CONFIG_UNKNOWN_KEY] mainstay.toml:1:1: `url` stands outside of every section
          Put it below a line that says [store].
        [CONFIG_UNKNOWN_SECTION] mainstay.toml:2:2: section [pools] is not known to this version
          Known: [server], [store].
        [CONFIG_UNKNOWN_SECTION] mainstay.toml:4:2: section [sotre] is not known to this version
          Did you mean [store]? Known: [server], [store].
        [CONFIG_UNKNOWN_KEY] mainstay.toml:6:1: unknown key `bussyTimeoutMs` in [store]
          Did you mean `busyTimeoutMs`? It has: `url`, `busyTimeoutMs`, `transactionTimeoutMs`, `readTimeoutMs`, `queueLimit`, `readers`, `connections`, `walLimitBytes`, `migrate`.
        [CONFIG_UNKNOWN_KEY] mainstay.toml:7:3: unknown key `lsiten` in [store]
          It has: `url`, `busyTimeoutMs`, `transactionTimeoutMs`, `readTimeoutMs`, `queueLimit`, `readers`, `connections`, `walLimitBytes`, `migrate`.
        "
    );
}

#[test]
fn values_that_are_not_allowed_are_told_with_what_is() {
    insta::assert_snapshot!(
        refused(
            "[store]\nurl = \"sqlit:mainstay.db\"\nreaders = 65\nqueueLimit = 0\nmigrate = \"yes\"\n\
             connections = [1]\nreadTimeoutMs = 1.5\nwalLimitBytes = 99999999999999999999\n"
        ),
        @r#"
        [STORE_URL_INVALID] mainstay.toml:2:7: store URL "sqlit:mainstay.db": has the unknown scheme "sqlit"; did you mean sqlite: or postgres://?
          Write sqlite:FILE, sqlite::memory: or postgres://USER@HOST/DATABASE.
        [CONFIG_INVALID_VALUE] mainstay.toml:3:11: store.readers must be a whole number from 1 to 64, not 65
          Leave it out to get the default, 4.
        [CONFIG_INVALID_VALUE] mainstay.toml:4:14: store.queueLimit must be a whole number from 1 to 1000000, not 0
          Leave it out to get the default, 1024.
        [CONFIG_INVALID_VALUE] mainstay.toml:5:11: store.migrate must be true or false, not the text "yes"
          Leave it out to get the default, true.
        [CONFIG_INVALID_VALUE] mainstay.toml:6:15: store.connections must be a whole number from 1 to 1000, not a list
          Leave it out to get the default, 16.
        [CONFIG_INVALID_VALUE] mainstay.toml:7:17: store.readTimeoutMs must be a whole number from 1 to 3600000, not 1.5
          Leave it out to get the default, 60000.
        [CONFIG_INVALID_VALUE] mainstay.toml:8:17: store.walLimitBytes must be a whole number of at least 16777216, not 99999999999999999999
          Leave it out to get the default, 1073741824.
        "#
    );
    assert!(refused("store = 1").contains("[store] must be a section, not 1"));
    assert!(refused("[[store]]").contains("[store] must be a section, not a list"));
}

#[test]
fn what_is_not_toml_is_told_with_its_place() {
    insta::assert_snapshot!(refused("[store]\nurl = sqlite:mainstay.db\n"), @"
        [CONFIG_SYNTAX_INVALID] mainstay.toml:2:7: string values must be quoted, expected literal string
          Mend the line that is named; text stands in double quotes, and every line is `key = value` or `[section]`.
        ");
    insta::assert_snapshot!(refused("[store]\nreaders = 1\nreaders = 2\n"), @"
        [CONFIG_SYNTAX_INVALID] mainstay.toml:3:1: duplicate key
          Mend the line that is named; text stands in double quotes, and every line is `key = value` or `[section]`.
        ");
}

#[test]
fn variables_are_as_strict_as_the_file() {
    let environment = [
        ("MAINSTAY__STORE__URLL", "sqlite:a.db"),
        ("MAINSTAY__POOLS__LISTEN", "1"),
        ("MAINSTAY__STORE__READERS", "many"),
    ];
    insta::assert_snapshot!(load("", &environment).unwrap_err(), @r#"
        [CONFIG_UNKNOWN_KEY] environment variable MAINSTAY__POOLS__LISTEN is not known to this version
          Correct the name or remove it; docs/reference/configuration.md lists every key and variable.
        [CONFIG_UNKNOWN_KEY] environment variable MAINSTAY__STORE__URLL is not known to this version
          Did you mean MAINSTAY__STORE__URL?
        [CONFIG_INVALID_VALUE] MAINSTAY__STORE__READERS: store.readers must be a whole number from 1 to 64, not the text "many"
          Leave it out to get the default, 4.
        "#);
}

#[test]
fn a_password_is_never_shown() {
    let bad = refused("[store]\nurl = \"pg://ada:s3cret@h/d\"");
    assert!(!bad.contains("s3cret") && bad.contains("***"), "{bad}");
    let config = load("[store]\nurl = \"postgres://ada:s3cret@h/d\"", &[]).unwrap();
    let url = config.entry(&store::URL);
    assert_eq!(url.value.shown(url.setting.kind).to_string(), "\"postgres://ada:***@h/d\"");
    assert_eq!(config.text(&store::URL), "postgres://ada:s3cret@h/d");
}
