//! TLS to PostgreSQL: when it is asked for, the server must be who it says it is.

use mainstay_store::{Options, Store};
use mainstay_testkit::postgres::{Postgres, Private};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

#[test]
fn a_server_with_the_right_certificate_is_trusted_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let server = Postgres::private().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let plain = server.url().to_owned();
        let refused = open(&plain, "sslmode=require").await.unwrap_err();
        assert_eq!(refused.code(), "STORE_OPEN_FAILED", "the server has no TLS yet: {refused}");

        let right = folder.path().join("right.pem");
        give_certificate(&server, &right).await;
        let with = |authority: &Path| format!("sslmode=verify-full&sslrootcert={}", authority.display());
        let store = open(&plain, &with(&right)).await.unwrap();
        let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        let is_encrypted: bool = store.read(async |tx| tx.query_one(sql, &[]).await?.get(0)).await.unwrap();
        assert!(is_encrypted);

        let wrong = folder.path().join("wrong.pem");
        let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(&wrong, other.cert.pem()).unwrap();
        let refused = open(&plain, &with(&wrong)).await.unwrap_err();
        assert_eq!(refused.code(), "STORE_OPEN_FAILED", "{refused}");
        assert!(refused.to_string().contains("certificate"), "{refused}");
        open(&plain, "sslmode=disable").await.unwrap();
    });
}

async fn open(url: &str, tls: &str) -> mainstay_store::Result<Store> {
    Options::new(format!("{url}?{tls}")).connections(2).busy_timeout(Duration::from_secs(10)).open().await
}

/// Makes a certificate for the server, lets the server write it into its own folder, and turns TLS on.
async fn give_certificate(server: &Private, authority: &Path) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(authority, made.cert.pem()).unwrap();
    let (client, connection) = tokio_postgres::connect(server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let folder: String = client.query_one("SHOW data_directory", &[]).await.unwrap().get(0);
    for (name, pem) in [("server.crt", made.cert.pem()), ("server.key", made.signing_key.serialize_pem())] {
        let copy =
            format!("COPY (SELECT unnest(string_to_array('{}', chr(10)))) TO '{folder}/{name}'", pem.trim());
        client.batch_execute(&copy).await.unwrap();
        // The server refuses a key that others can read.
        std::fs::set_permissions(format!("{folder}/{name}"), Permissions::from_mode(0o600)).unwrap();
    }
    client.batch_execute("ALTER SYSTEM SET ssl = on").await.unwrap();
    client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    // The reload is a signal: it is in force once a new connection says so.
    loop {
        let (client, connection) =
            tokio_postgres::connect(server.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        if client.query_one("SHOW ssl", &[]).await.unwrap().get::<_, String>(0) == "on" {
            return;
        }
    }
}
