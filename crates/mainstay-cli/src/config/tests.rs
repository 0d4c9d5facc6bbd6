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

/// None of the values is the default of any setting, and no two are alike.
#[test]
fn every_setting_of_health_arrives_where_it_is_meant() {
    let text = "[health]\nmaxLag = 11\nmaxLetters = 12\nprojectionPoolDepth = 13\ndcbRetryPoolDepth = 14\n\
        eventReplayPoolDepth = 15\n";
    assert_eq!(text.lines().count(), 1 + health::SECTION.settings.len(), "each setting is given");
    let rules = health::rules(&load(text, &[]).unwrap());
    assert_eq!((rules.max_lag, rules.max_letters), (11, 12));
    let depths: Vec<_> = rules.max_depth.iter().map(|(pool, depth)| (pool.as_str(), *depth)).collect();
    assert_eq!(depths, [("dcbRetryPool", 14), ("eventReplayPool", 15), ("projectionPool", 13)]);
    let usual = health::rules(&load("", &[]).unwrap());
    assert!(usual.max_depth.is_empty(), "a depth that is not given is left to the pool");
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
        refused("url = \"x\"\n[plools]\nlisten = \"x\"\n[sotre]\n[store]\nbussyTimeoutMs = 1\n  lsiten = 2\n"),
        @"
        [CONFIG_UNKNOWN_KEY] mainstay.toml:1:1: `url` stands outside of every section
          Put it below a line that says [store].
        [CONFIG_UNKNOWN_SECTION] mainstay.toml:2:2: section [plools] is not known to this version
          Did you mean [pools]? Known: [server], [access], [store], [work], [egress], [publications], [deadLetters], [health], [tracing], [pools.NAME], [functions.NAME], [targets.NAME], [crons.NAME], [limits.NAME], [circuits.NAME].
        [CONFIG_UNKNOWN_SECTION] mainstay.toml:4:2: section [sotre] is not known to this version
          Did you mean [store]? Known: [server], [access], [store], [work], [egress], [publications], [deadLetters], [health], [tracing], [pools.NAME], [functions.NAME], [targets.NAME], [crons.NAME], [limits.NAME], [circuits.NAME].
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

const SHOP: &str = r#"
[egress]
allow = ["127.0.0.0/8", "10.20.0.0/16"]
[pools.emailPool]
maxParallelism = 7
retry = { maxAttempts = 3, initialBackoffMs = 100, base = 2 }
logLevel = "INFO"
ratePerSecond = 50
[pools.plain]
[functions.sendEmail]
url = "http://127.0.0.1:9000/send?token=t0k"
timeoutMs = 500
secret = ["env:MAINSTAY_TEST_NEW", "0ld"]
circuit = "sendgrid"
[crons.nightly]
schedule = { cron = "30 2 * * *", timeZone = "Europe/Berlin" }
pool = "emailPool"
function = "sendEmail"
args = { to = ["ada", "grace"], at = 2027-01-15, share = 0.5, urgent = true }
key = "nightly"
missed = "catchUp"
[crons.often]
schedule.everyMs = 1000
pool = "plain"
function = "sendEmail"
"#;

#[test]
fn tables_become_pools_functions_and_crons() {
    let config = load(SHOP, &[]).unwrap();
    let json = |value: &dyn erased::Json| value.json();
    let pools: Vec<_> = config.pools().iter().map(|pool| (pool.name(), json(pool))).collect();
    insta::assert_snapshot!(pools[0].1, @r#"{"logLevel":"INFO","maxParallelism":7,"ratePerSecond":50,"retry":{"base":2.0,"initialBackoffMs":100,"maxAttempts":3,"maxBackoffMs":30000}}"#);
    assert_eq!((pools[0].0, pools[1].0), ("emailPool", "plain"));
    assert_eq!(json(&config.pools()[1]), json(&Pool::new("plain")));
    assert_eq!(config.functions()[0].name, "sendEmail");
    insta::assert_snapshot!(json(&config.crons()[0]), @r#"{"args":{"at":"2027-01-15","share":0.5,"to":["ada","grace"],"urgent":true},"function":"sendEmail","key":"nightly","missed":"catchUp","pool":"emailPool","schedule":{"cron":"30 2 * * *","timeZone":"Europe/Berlin"}}"#);
    assert_eq!(json(&config.crons()[1])["schedule"]["everyMs"], 1000);
    assert_eq!(json(&config.crons()[1])["args"], serde_json::Value::Null);
    assert!(egress::rules(&config).check("10.20.1.1".parse().unwrap()).is_ok());
    assert!(egress::rules(&config).check("10.21.1.1".parse().unwrap()).is_err());
    let overridden = load(SHOP, &[("MAINSTAY__EGRESS__ALLOW", "192.168.0.0/16, ::1")]).unwrap();
    assert_eq!(overridden.list(&egress::ALLOW), ["192.168.0.0/16", "::1"]);
}

/// Anything as JSON.
mod erased {
    pub(super) trait Json {
        fn json(&self) -> serde_json::Value;
    }

    impl<T: serde::Serialize> Json for T {
        fn json(&self) -> serde_json::Value {
            serde_json::to_value(self).unwrap()
        }
    }
}

#[test]
fn what_a_table_cannot_say_is_told_with_its_place() {
    insta::assert_snapshot!(
        refused(
            "[pools.a]\nmaxParallelism = 0\nmaxParalelism = 1\nretry = { maxAttempts = 0, bases = 2 }\nlogLevel = \"LOUD\"\n\
             [pools.\"b c\"]\n[pools]\nd = 5\n[functions.f]\nsecret = [\"a\", \"b\", \"c\"]\n[functions.g]\nurl = 5\n\
             timeoutMs = \"1s\"\n[crons.h]\nschedule = \"daily\"\n[egress]\nallow = [\"10.1.0.0/8\"]\n"
        ),
        @r#"
            [CONFIG_INVALID_VALUE] mainstay.toml:2:18: pools.a.maxParallelism must be a whole number from 1 to 10000, not 0
              Leave it out to get the default: 10.
            [CONFIG_UNKNOWN_KEY] mainstay.toml:3:1: unknown key `maxParalelism` in [pools.a]
              Did you mean `maxParallelism`? It has: `maxParallelism`, `retry`, `logLevel`, `ratePerSecond`.
            [CONFIG_INVALID_VALUE] mainstay.toml:4:25: pools.a.retry.maxAttempts must be a whole number from 1 to 4294967295, not 0
              Leave it out to get the default: 5.
            [CONFIG_UNKNOWN_KEY] mainstay.toml:4:28: unknown key `bases` in [pools.a.retry]
              Did you mean `base`? It has: `maxAttempts`, `initialBackoffMs`, `base`, `maxBackoffMs`.
            [CONFIG_INVALID_VALUE] mainstay.toml:5:12: pools.a.logLevel must be "TRACE" or "DEBUG" or "INFO" or "WARN" or "ERROR", not the text "LOUD"
              Leave it out to get the default: "WARN".
            [CONFIG_INVALID_VALUE] mainstay.toml:6:8: "pools.b c" is no name: it must be 1 to 128 letters, digits or . _ - : /
              Choose another name: it is how work refers to it.
            [CONFIG_INVALID_VALUE] mainstay.toml:8:1: [pools.d] must be a section, not 5
              Write [pools.d] on a line of its own.
            [CONFIG_MISSING_KEY] mainstay.toml:9:12: [functions.f] lacks `url`, which must be the URL of an endpoint
              Write `url = …`. Where it is: `http://` or `https://`. Only public addresses are reached, and those that `[egress]` allows.
            [CONFIG_INVALID_VALUE] mainstay.toml:10:10: functions.f.secret must be a text such as "env:NAME", or a list of two, not a list
              Leave it out to get the default: not signed.
            [CONFIG_INVALID_VALUE] mainstay.toml:12:7: functions.g.url must be the URL of an endpoint, not 5
              Where it is: `http://` or `https://`. Only public addresses are reached, and those that `[egress]` allows.
            [CONFIG_INVALID_VALUE] mainstay.toml:13:13: functions.g.timeoutMs must be a whole number from 1 to 86400000, not the text "1s"
              Leave it out to get the default: 10000.
            [CONFIG_MISSING_KEY] mainstay.toml:14:8: [crons.h] lacks `pool`, which must be the name of a pool
              Write `pool = …`. Into which pool.
            [CONFIG_MISSING_KEY] mainstay.toml:14:8: [crons.h] lacks `function`, which must be the name of a function
              Write `function = …`. What is to be done.
            [CONFIG_INVALID_VALUE] mainstay.toml:15:12: crons.h.schedule must be a table of cron, timeZone, everyMs, fromMs, not the text "daily"
              When: `cron` with five fields (minute, hour, day, month, weekday), six with the second first, or a nickname such as `@daily`, in a `timeZone` of the IANA database, UTC unless given; or `everyMs`, counted from `fromMs`.
            [CONFIG_INVALID_VALUE] mainstay.toml:17:9: egress.allow: "10.1.0.0/8" begins inside a range; write 10.0.0.0/8, or 10.1.0.0 for the one address
              Write a value that the message allows, or leave the setting out to get its default.
            "#
    );
    insta::assert_snapshot!(refused("[egress]\nallow = \"10.0.0.0/8\"\n[pools]\nretry = []\n"), @r#"
        [CONFIG_INVALID_VALUE] mainstay.toml:2:9: egress.allow must be a list of ranges of addresses, as in ["10.0.0.0/8"], not the text "10.0.0.0/8"
          Leave it out to get the default, [].
        [CONFIG_INVALID_VALUE] mainstay.toml:4:1: [pools.retry] must be a section, not a list
          Write [pools.retry] on a line of its own.
        "#);
    assert!(refused("pools = 1").contains("[pools] must be a section, not 1"));
}

#[test]
fn what_a_table_means_is_looked_at_too() {
    insta::assert_snapshot!(
        refused(
            "[functions.a]\nurl = \"ftp://127.0.0.1/x\"\n[functions.b]\nurl = \"http://ada:s3cret@127.0.0.1/x\"\n\
             [functions.c]\nurl = \"127.0.0.1\"\n"
        ),
        @r#"
            [CONFIG_INVALID_VALUE] mainstay.toml:2:7: functions.a: url: "ftp://127.0.0.1/x" is no URL of a function; one looks like https://example.com/send
              Write a value that the message allows, or leave the setting out to get its default.
            [CONFIG_INVALID_VALUE] mainstay.toml:4:7: functions.b: url: credentials do not belong into the URL; calls are signed with `secret`
              Write a value that the message allows, or leave the setting out to get its default.
            [CONFIG_INVALID_VALUE] mainstay.toml:6:7: functions.c: url: "127.0.0.1" is no URL of a function; one looks like https://example.com/send
              Write a value that the message allows, or leave the setting out to get its default.
            "#
    );
    let cron = |schedule: &str| format!("[crons.c]\nschedule = {schedule}\npool = \"p\"\nfunction = \"f\"\n");
    insta::assert_snapshot!(refused(&cron("{ cron = \"99 * * * *\" }")), @r#"
        [CONFIG_INVALID_VALUE] mainstay.toml:2:12: crons.c: schedule: minute "99": a value is a number from 0 to 59
          Write a value that the message allows, or leave the setting out to get its default.
        "#);
    insta::assert_snapshot!(refused(&cron("{ cron = \"* * * * *\", timeZone = \"Mars/Base\" }")), @r#"
        [CONFIG_INVALID_VALUE] mainstay.toml:2:12: crons.c: schedule: "Mars/Base" is no time zone; zones have names such as UTC or Europe/Berlin
          Write a value that the message allows, or leave the setting out to get its default.
        "#);
    for schedule in [
        "{}",
        "{ timeZone = \"UTC\" }",
        "{ cron = \"@daily\", everyMs = 5 }",
        "{ cron = \"@daily\", fromMs = 5 }",
    ] {
        assert!(
            refused(&cron(schedule)).contains("either everyMs (and fromMs), or cron (and timeZone)"),
            "{schedule}"
        );
    }
}

#[test]
fn every_table_of_the_reference_is_one_and_says_what_its_fields_are_for() {
    for collection in COLLECTIONS {
        let text = format!("{}\n[egress]\nallow = [\"127.0.0.0/8\"]\n", collection.example);
        let config = load(&text, &[]).unwrap();
        assert_eq!(config.tables()[0].collection.name, collection.name);
        for field in collection.fields {
            assert!(field.doc.ends_with('.'), "{}", field.key);
        }
    }
}

#[test]
fn secrets_are_taken_from_the_environment_and_not_shown() {
    let config = load(SHOP, &[]).unwrap();
    let client = || endpoint::client(egress::rules(&config));
    let refused = config.functions()[0].connect(client()).unwrap_err();
    assert!(
        refused.to_string().ends_with("the variable MAINSTAY_TEST_NEW is not set, or not text"),
        "{refused}"
    );
    let secret = config.tables().iter().find_map(|table| table.given.entry("secret")).unwrap();
    assert_eq!(endpoint::shown(&secret.value), serde_json::json!(["env:MAINSTAY_TEST_NEW", "***"]));
    let plain = SHOP.replace("[\"env:MAINSTAY_TEST_NEW\", \"0ld\"]", "\"0ld\"");
    let plain = load(&plain, &[]).unwrap();
    let function = plain.functions()[0].connect(client()).unwrap();
    assert!(!format!("{function:?}").contains("0ld"), "{function:?}");
}

#[test]
fn tables_become_limits_and_circuits() {
    let text = "[limits.mail]\nrate = 100\nperiod = \"1m\"\ncapacity = 150\nshards = 50\n[limits.admin]\n\
         kind = \"fixed window\"\nrate = 10\nperiod = \"1h\"\nmaxReserved = 5\nstart = 60000\n\
         [circuits.sendgrid]\nfailureThreshold = 10\nmetricsOnly = true\n[circuits.slow]\nwindowCalls = 20\n\
         slowAfterMs = 500\nslowPercent = 80\n";
    let config = load(text, &[]).unwrap();
    let json = |value: &dyn erased::Json| value.json();
    assert_eq!((config.limits()[0].name.as_str(), config.circuits()[1].name.as_str()), ("mail", "slow"));
    insta::assert_snapshot!(json(&config.limits()[0].definition), @r#"{"capacity":150.0,"kind":"token bucket","period":"1m","rate":100.0,"shards":50}"#);
    insta::assert_snapshot!(json(&config.limits()[1].definition), @r#"{"capacity":10.0,"kind":"fixed window","maxReserved":5,"period":"1h","rate":10.0,"shards":1,"start":60000}"#);
    insta::assert_snapshot!(json(&config.circuits()[0].settings), @r#"{"failureThreshold":10,"initialBackoffMs":250,"maxRetries":3,"metricsOnly":true,"probeTimeoutMs":60000,"resetTimeoutMs":30000,"successThreshold":1}"#);
    insta::assert_snapshot!(json(&config.circuits()[1].settings), @r#"{"initialBackoffMs":250,"maxRetries":3,"minimumCalls":10,"probeTimeoutMs":60000,"resetTimeoutMs":30000,"slowAfterMs":500,"slowPercent":80.0,"successThreshold":1,"windowCalls":20}"#);
    insta::assert_snapshot!(refused(
        "[limits.a]\nrate = 1\nperiod = \"soon\"\n[limits.b]\nkind = \"fixed window\"\nrate = 1.5\nperiod = \"1s\"\n\
         [circuits.c]\nwindowCalls = 5\nfailureThreshold = 5\n"
    ), @r#"
        [CONFIG_INVALID_VALUE] mainstay.toml:3:10: limits.a: period: is written like 500ms, 1s, 5m, 1h or 30d
          Write a value that the message allows, or leave the setting out to get its default.
        [CONFIG_INVALID_VALUE] mainstay.toml:4:9: limits.b: the rate of a window must be a whole number
          Write a value that the message allows, or leave the setting out to get its default.
        [CONFIG_INVALID_VALUE] mainstay.toml:8:11: circuits.c: failureThreshold and a window exclude each other
          Write a value that the message allows, or leave the setting out to get its default.
        "#);
    insta::assert_snapshot!(refused("[circuits.c]\nmetricsOnly = 1\n[limits.d]\nrate = 1\n"), @r#"
        [CONFIG_INVALID_VALUE] mainstay.toml:2:15: circuits.c.metricsOnly must be true or false, not 1
          Leave it out to get the default: false.
        [CONFIG_MISSING_KEY] mainstay.toml:3:9: [limits.d] lacks `period`, which must be a time, as in "1m"
          Write `period = …`. How long a period is: `500ms`, `1s`, `5m`, `1h`, `30d`.
        "#);
}

#[test]
fn b_164_a_target_that_says_nothing_is_tried_again_five_times_from_100_ms_on() {
    let retry = |text: &str| {
        let config =
            load(&format!("[targets.inventory]\nurl = \"http://127.0.0.1:9001/\"\n{text}"), &[]).unwrap();
        let retry = config.targets()[0].retry;
        (retry.max_retries, retry.initial_backoff_ms, retry.base)
    };
    assert_eq!(retry(""), (5, 100, 2.0));
    assert_eq!(retry("retry = {}"), (5, 100, 2.0));
    assert_eq!(retry("retry = { maxRetries = 1 }"), (1, 100, 2.0));
    assert_eq!(retry("retry = { initialBackoffMs = 7, base = 1.5 }"), (5, 7, 1.5));
}

#[test]
fn names_of_the_platform_are_refused_in_every_table() {
    for name in ["mainstay.replay.tidy", "MAINSTAY.x", " Mainstay.x "] {
        for collection in COLLECTIONS {
            let told = refused(&format!("[{}.\"{name}\"]\n", collection.name));
            assert!(told.starts_with("[NAME_RESERVED] mainstay.toml:1:"), "{}: {told}", collection.name);
        }
        let cron = |pool: &str, function: &str| {
            format!("[crons.a]\nschedule = {{ everyMs = 1 }}\npool = \"{pool}\"\nfunction = \"{function}\"\n")
        };
        let called = |kind: &str| format!("[{kind}.a]\nurl = \"https://a.example\"\ncircuit = \"{name}\"\n");
        for text in [cron(name, "f"), cron("p", name), called("functions"), called("targets")] {
            let told = refused(&text);
            assert!(told.starts_with("[NAME_RESERVED] mainstay.toml:"), "{text}: {told}");
        }
    }
}
