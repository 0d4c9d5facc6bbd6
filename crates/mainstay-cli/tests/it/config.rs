//! `mainstay config check`.

use crate::program::Folder;

#[test]
fn without_a_file_everything_is_default() {
    let folder = Folder::new();
    let answer = folder.run("config check");
    assert_eq!(answer.code, 0, "{answer:?}");
    insta::assert_snapshot!(answer.stdout, @r#"
        [server]
        listen = "127.0.0.1:7420"        # default
        tlsCert = ""                     # default
        tlsKey = ""                      # default
        insecure = false                 # default
        maxConnections = 1024            # default
        maxConnectionsPerAddress = 256   # default
        tokenShare = 50                  # default
        tenantShare = 75                 # default
        headerTimeoutMs = 10000          # default
        requestTimeoutMs = 30000         # default
        bodyTimeoutMs = 10000            # default
        shutdownGraceMs = 10000          # default
        maxBodyBytes = 1048576           # default
        requestsPerSecond = 0            # default
        requestBurst = 100               # default
        proxies = []                     # default
        proxyHeader = "X-Forwarded-For"  # default

        [access]
        tokenLifeMs = 31536000000  # default
        maxTokenLifeMs = 0         # default
        sessionLifeMs = 43200000   # default
        sessionIdleMs = 3600000    # default
        auditV1 = false            # default

        [store]
        url = "sqlite:mainstay.db"    # default
        busyTimeoutMs = 5000          # default
        transactionTimeoutMs = 10000  # default
        readTimeoutMs = 60000         # default
        queueLimit = 1024             # default
        readers = 4                   # default
        connections = 16              # default
        walLimitBytes = 1073741824    # default
        migrate = true                # default

        [work]
        maxPools = 1000  # default

        [egress]
        allow = []  # default

        [publications]
        keepDeliveredDays = 30      # default
        ignoreLettersAfterDays = 0  # default
        letterRetries = 0           # default
        letterBackoffMs = 60000     # default

        [deadLetters]
        workRetries = 0              # default
        onCompleteRetries = 0        # default
        appendRetries = 0            # default
        projectionRetries = 0        # default
        quarantinedEventRetries = 0  # default
        initialBackoffMs = 60000     # default
        backoffBase = 2              # default
        maxBackoffMs = 86400000      # default
        ignoreAfterDays = 0          # default
        intervalMs = 60000           # default

        [health]
        maxLag = 100              # default
        maxLetters = 10           # default
        projectionPoolDepth = 0   # default
        dcbRetryPoolDepth = 0     # default
        eventReplayPoolDepth = 0  # default

        [tracing]
        otlpEndpoint = ""         # default
        otlpHeaders = ""          # default
        serviceName = "mainstay"  # default
        sampleRatio = 1.0         # default
        "#);
    insta::assert_snapshot!(answer.stderr, @"The configuration is valid; read: no configuration file, environment, flags.");
    assert_eq!(folder.files(), [""; 0]);
}

#[test]
fn flags_override_the_environment_which_overrides_the_file() {
    let folder = Folder::new();
    folder.write("mainstay.toml", "[store]\nurl = \"sqlite:file.db\"\nreaders = 2\nconnections = 3\n");
    let environment = [("MAINSTAY__STORE__URL", "sqlite:variable.db"), ("MAINSTAY__STORE__READERS", "8")];
    let answer = folder.run_with(&environment, "config check --store postgres://ada:s3cret@db/main");
    insta::assert_snapshot!(answer.stdout, @r#"
        [server]
        listen = "127.0.0.1:7420"        # default
        tlsCert = ""                     # default
        tlsKey = ""                      # default
        insecure = false                 # default
        maxConnections = 1024            # default
        maxConnectionsPerAddress = 256   # default
        tokenShare = 50                  # default
        tenantShare = 75                 # default
        headerTimeoutMs = 10000          # default
        requestTimeoutMs = 30000         # default
        bodyTimeoutMs = 10000            # default
        shutdownGraceMs = 10000          # default
        maxBodyBytes = 1048576           # default
        requestsPerSecond = 0            # default
        requestBurst = 100               # default
        proxies = []                     # default
        proxyHeader = "X-Forwarded-For"  # default

        [access]
        tokenLifeMs = 31536000000  # default
        maxTokenLifeMs = 0         # default
        sessionLifeMs = 43200000   # default
        sessionIdleMs = 3600000    # default
        auditV1 = false            # default

        [store]
        url = "postgres://ada:***@db/main"  # --store
        busyTimeoutMs = 5000                # default
        transactionTimeoutMs = 10000        # default
        readTimeoutMs = 60000               # default
        queueLimit = 1024                   # default
        readers = 8                         # MAINSTAY__STORE__READERS
        connections = 3                     # mainstay.toml:4:15
        walLimitBytes = 1073741824          # default
        migrate = true                      # default

        [work]
        maxPools = 1000  # default

        [egress]
        allow = []  # default

        [publications]
        keepDeliveredDays = 30      # default
        ignoreLettersAfterDays = 0  # default
        letterRetries = 0           # default
        letterBackoffMs = 60000     # default

        [deadLetters]
        workRetries = 0              # default
        onCompleteRetries = 0        # default
        appendRetries = 0            # default
        projectionRetries = 0        # default
        quarantinedEventRetries = 0  # default
        initialBackoffMs = 60000     # default
        backoffBase = 2              # default
        maxBackoffMs = 86400000      # default
        ignoreAfterDays = 0          # default
        intervalMs = 60000           # default

        [health]
        maxLag = 100              # default
        maxLetters = 10           # default
        projectionPoolDepth = 0   # default
        dcbRetryPoolDepth = 0     # default
        eventReplayPoolDepth = 0  # default

        [tracing]
        otlpEndpoint = ""         # default
        otlpHeaders = ""          # default
        serviceName = "mainstay"  # default
        sampleRatio = 1.0         # default
        "#);
    let settings = folder.run_with(&environment, "config check --json").json();
    assert_eq!(settings["file"], "mainstay.toml");
    insta::assert_snapshot!(settings["settings"]["store"]["url"], @r#"{"place":"MAINSTAY__STORE__URL","source":"environment","value":"sqlite:variable.db"}"#);
    insta::assert_snapshot!(settings["settings"]["store"]["migrate"], @r#"{"place":null,"source":"default","value":true}"#);
}

#[test]
fn a_file_can_be_named() {
    let folder = Folder::new();
    folder.write("mainstay.toml", "[store]\nreaders = 2\n");
    folder.write("other.toml", "");
    let answer = folder.run("--config other.toml config check --json").json();
    assert_eq!(answer["settings"]["store"]["readers"]["source"], "default");
    folder.run("--config missing.toml config check").assert_failed(2, "CONFIG_NOT_FOUND");
    folder.run("--config / config check").assert_failed(2, "CONFIG_UNREADABLE");
}

#[test]
fn mistakes_are_told_with_line_column_and_hint() {
    let folder = Folder::new();
    folder
        .write("mainstay.toml", "[store]\nbussyTimeoutMs = 10\nreaders = 0\n\n[plumbing]\nlisten = \"x\"\n");
    let answer = folder.run("config check");
    assert_eq!((answer.code, answer.stdout.as_str()), (2, ""));
    insta::assert_snapshot!(answer.stderr, @"
        error[CONFIG_UNKNOWN_KEY]: mainstay.toml:2:1: unknown key `bussyTimeoutMs` in [store]
        hint: Did you mean `busyTimeoutMs`? It has: `url`, `busyTimeoutMs`, `transactionTimeoutMs`, `readTimeoutMs`, `queueLimit`, `readers`, `connections`, `walLimitBytes`, `migrate`.
        error[CONFIG_INVALID_VALUE]: mainstay.toml:3:11: store.readers must be a whole number from 1 to 64, not 0
        hint: Leave it out to get the default, 4.
        error[CONFIG_UNKNOWN_SECTION]: mainstay.toml:5:2: section [plumbing] is not known to this version
        hint: Known: [server], [access], [store], [work], [egress], [publications], [deadLetters], [health], [tracing], [pools.NAME], [functions.NAME], [targets.NAME], [crons.NAME], [limits.NAME], [circuits.NAME].
        ");
}

#[test]
fn with_json_a_mistake_is_one_line() {
    let folder = Folder::new();
    let answer = folder.run_with(&[("MAINSTAY__STORE__RAEDERS", "1")], "config check --json");
    assert_eq!((answer.code, answer.stdout.as_str()), (2, ""));
    insta::assert_snapshot!(answer.stderr, @r#"{"code":"CONFIG_UNKNOWN_KEY","message":"environment variable MAINSTAY__STORE__RAEDERS is not known to this version","hint":"Did you mean MAINSTAY__STORE__READERS?"}"#);
}

#[test]
fn every_verb_minds_the_configuration() {
    let folder = Folder::new();
    folder.write("mainstay.toml", "[store]\nurl = 5\n");
    for verb in ["migrate", "demo", "config check"] {
        folder.run(verb).assert_failed(2, "CONFIG_INVALID_VALUE");
    }
    assert_eq!(folder.files(), ["mainstay.toml"]);
}

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    let folder = Folder::new();
    assert_eq!(folder.run("migrat").code, 2);
    assert_eq!(folder.run("").code, 2);
    let answer = folder.run("migrat --json");
    insta::assert_snapshot!(answer.stderr, @r#"{"code":"CLI_USAGE_INVALID","message":"unrecognized subcommand 'migrat'","hint":"Run `mainstay help`, or the verb with --help."}"#);
    let help = folder.run("migrate --help");
    assert_eq!((help.code, help.stderr.as_str()), (0, ""));
    assert!(help.stdout.contains("Usage: mainstay migrate"), "no colours in a pipe: {}", help.stdout);
}

#[test]
fn tables_are_shown_without_their_secrets() {
    let folder = Folder::new();
    folder.write(
        "mainstay.toml",
        "[pools.mail]\nmaxParallelism = 3\nretry = { maxAttempts = 2 }\n[functions.send]\n\
         url = \"http://example.com/send\"\nsecret = [\"s3cret\", \"env:OLD_ONE\"]\n[egress]\nallow = [\"10.0.0.0/8\"]\n",
    );
    let answer = folder.run("config check");
    let tables = &answer.stdout[answer.stdout.find("[egress]").unwrap()..];
    insta::assert_snapshot!(tables, @r#"
        [egress]
        allow = ["10.0.0.0/8"]  # mainstay.toml:8:9

        [publications]
        keepDeliveredDays = 30      # default
        ignoreLettersAfterDays = 0  # default
        letterRetries = 0           # default
        letterBackoffMs = 60000     # default

        [deadLetters]
        workRetries = 0              # default
        onCompleteRetries = 0        # default
        appendRetries = 0            # default
        projectionRetries = 0        # default
        quarantinedEventRetries = 0  # default
        initialBackoffMs = 60000     # default
        backoffBase = 2              # default
        maxBackoffMs = 86400000      # default
        ignoreAfterDays = 0          # default
        intervalMs = 60000           # default

        [health]
        maxLag = 100              # default
        maxLetters = 10           # default
        projectionPoolDepth = 0   # default
        dcbRetryPoolDepth = 0     # default
        eventReplayPoolDepth = 0  # default

        [tracing]
        otlpEndpoint = ""         # default
        otlpHeaders = ""          # default
        serviceName = "mainstay"  # default
        sampleRatio = 1.0         # default

        [pools.mail]
        maxParallelism = 3           # mainstay.toml:2:18
        retry = { maxAttempts = 2 }  # mainstay.toml:3:9

        [functions.send]
        url = "http://example.com/send"  # mainstay.toml:5:7
        secret = ["***", "env:OLD_ONE"]  # mainstay.toml:6:10
        "#);
    let json = folder.run("config check --json").json();
    insta::assert_snapshot!(json["settings"]["functions"]["send"]["secret"], @r#"{"place":"mainstay.toml:6:10","source":"file","value":["***","env:OLD_ONE"]}"#);
}

#[test]
fn where_spans_go_is_checked_and_what_may_be_secret_is_not_repeated() {
    let folder = Folder::new();
    folder.write(
        "mainstay.toml",
        "[tracing]\notlpEndpoint = \"http://me:hunter2@collector:4318\"\notlpHeaders = \"x-key=hunter2\"\n\
         serviceName = \"\"\nsampleRatio = 1.5\n",
    );
    let answer = folder.run("config check");
    answer.assert_failed(2, "CONFIG_INVALID_VALUE");
    insta::assert_snapshot!(answer.stderr, @r#"
        error[CONFIG_INVALID_VALUE]: mainstay.toml:2:16: tracing.otlpEndpoint must be the URL of a collector without a password or a query, as in http://127.0.0.1:4318, or empty, not something else
        hint: Leave it out to get the default, "".
        error[CONFIG_INVALID_VALUE]: mainstay.toml:3:15: tracing.otlpHeaders must be env: and the name of a variable, as in "env:OTLP_HEADERS", or empty, not something else
        hint: Leave it out to get the default, "".
        error[CONFIG_INVALID_VALUE]: mainstay.toml:4:15: tracing.serviceName must be a name of 1 to 128 bytes, not the text ""
        hint: Leave it out to get the default, "mainstay".
        error[CONFIG_INVALID_VALUE]: mainstay.toml:5:15: tracing.sampleRatio must be a number from 0 to 1, not 1.5
        hint: Leave it out to get the default, 1.0.
        "#);
    folder.write(
        "mainstay.toml",
        "[tracing]\notlpEndpoint = \"http://127.0.0.1:1\"\notlpHeaders = \"env:NOT_THERE\"\n",
    );
    assert_eq!(
        folder.run("config check").code,
        0,
        "what is in the environment is looked at by whoever serves"
    );
    let answer = folder.run("serve --listen 127.0.0.1:0");
    answer.assert_logged(2, "CONFIG_INVALID_VALUE");
    assert!(
        answer.stderr.contains("mainstay.toml:3:15: tracing.otlpHeaders: the variable NOT_THERE"),
        "{answer:?}"
    );
    let secret = [("NOT_THERE", "x-key: hunter2")];
    let answer = folder.run_with(&secret, "serve --listen 127.0.0.1:0");
    answer.assert_logged(2, "CONFIG_INVALID_VALUE");
    assert!(!answer.stderr.contains("hunter2"), "{answer:?}");
}

/// Every block of TOML in the documents that are written by hand is a configuration.
#[test]
fn the_configurations_in_the_documents_are_valid() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut count = 0;
    for document in [
        "README.md",
        "docs/concepts/work.md",
        "docs/operations/work.md",
        "docs/operations/server.md",
        "docs/operations/tracing.md",
    ] {
        let text = std::fs::read_to_string(root.join(document)).unwrap();
        for block in text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
            let folder = Folder::new();
            folder.write("mainstay.toml", block);
            let answer = folder.run("config check");
            assert_eq!(answer.code, 0, "{document}: {answer:?}");
            count += 1;
        }
    }
    assert!(count > 0);
}
