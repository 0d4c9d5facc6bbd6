//! `mainstay audit`, alike on the store and through the server.

use crate::program::Folder;
use crate::serving::Serving;
use mainstay::store::Options;

/// A store that somebody worked on through a server: one token made, one that is not there revoked.
fn worked_on() -> (Folder, String) {
    let folder = Folder::new();
    let token = folder.run("token create --name test --role admin").stdout.trim().to_owned();
    let server = Serving::start(&folder);
    let with = [("MAINSTAY_TOKEN", token.as_str())];
    folder.run_with(&with, &format!("token create --name ci --role reader --server {}", server.url()));
    let gone = folder.run_with(&with, &format!("token revoke nobody --server {}", server.url()));
    gone.assert_failed(1, "TOKEN_NOT_FOUND");
    for verb in ["list --outcome done --json", "verify --json"] {
        let answer = folder.run_with(&with, &format!("audit {verb} --server {}", server.url()));
        assert_eq!(answer.code, 0, "{answer:?}");
    }
    server.stop("-TERM");
    (folder, token)
}

#[test]
fn what_was_done_is_listed_and_the_chain_is_whole() {
    let (folder, token) = worked_on();
    let done = folder.run("audit list --outcome done --json").json();
    assert!(done.to_string().contains("POST /admin/tokens") && !done.to_string().contains(&token));
    let refused = folder.run("audit list --outcome refused").stdout;
    assert!(refused.contains("TOKEN_NOT_FOUND") && refused.contains("/admin/tokens/nobody"), "{refused}");
    let head = folder.run("audit verify");
    assert!(head.code == 0 && head.stderr.contains("whole"), "{head:?}");
    let again = folder.run(&format!("audit verify --expect {} --json", head.stdout.trim()));
    assert_eq!(again.json()["isWhole"], true);
}

#[test]
fn a_chain_that_was_changed_is_not_whole() {
    let (folder, _) = worked_on();
    let head = folder.run("audit verify").stdout;
    let url = format!("sqlite:{}", folder.path().join("mainstay.db").display());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = Options::new(url).open().await.unwrap();
        let change = "UPDATE mainstay_audit SET user_id = 'somebody' WHERE number = 1";
        store.transact(async move |tx| tx.execute(change, &[]).await).await.unwrap();
        store.close().await;
    });
    folder.run("audit verify").assert_failed(1, "CLI_AUDIT_BROKEN");
    assert_eq!(folder.run(&format!("audit verify --json --expect {}", head.trim())).code, 1);
    let wrong = folder.run("audit verify --expect 5");
    assert!(wrong.code == 2 && wrong.stderr.contains("64 digits"), "{wrong:?}");
}
