//! Whatever operators can do over the API they can do from the command line.

use crate::program::Folder;
use crate::serving::Serving;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Each operation below `/admin` that is not going away, and a verb that calls it. A route without a line here fails the
/// test, and so does a verb that calls something else.
const VERBS: [(&str, &str); 83] = [
    ("listAudit", "audit list"),
    ("auditHead", "audit verify"),
    ("listCheckpoints", "projections checkpoints"),
    ("setCheckpoint", "projections set-checkpoint orders 1"),
    ("listCircuitsForOperators", "circuits list"),
    ("listCircuitChanges", "circuits history"),
    ("getCircuitHistory", "circuits history mail"),
    ("putCircuit", "circuits set mail {\"failureThreshold\":3}"),
    ("forceCircuit", "circuits open mail --reason test"),
    ("releaseCircuit", "circuits release mail --reason test"),
    ("resetCircuit", "circuits reset mail --reason test"),
    ("deleteCircuit", "circuits delete mail"),
    ("getConfig", "config show"),
    ("listDeadLetterOperations", "dead-letters operations"),
    ("previewDeadLetterOperation", "dead-letters ignore --kind work"),
    ("getDeadLetterOperation", "dead-letters operation op-1"),
    ("cancelDeadLetterOperation", "dead-letters cancel op-1"),
    ("runDeadLetterOperation", "dead-letters run op-1"),
    ("listDeadLetters", "dead-letters list"),
    ("groupDeadLetters", "dead-letters groups"),
    ("getDeadLetterStats", "dead-letters stats"),
    ("getDeadLetter", "dead-letters show d1"),
    ("ignoreDeadLetter", "dead-letters ignore d1"),
    ("retryDeadLetter", "dead-letters retry d1"),
    ("listIntents", "intents list"),
    ("getIntent", "intents show i1"),
    ("abandonIntent", "intents abandon i1 --reason test"),
    ("putLimit", "limits set mail --rate 5 --period 1m"),
    ("deleteLimit", "limits delete mail"),
    ("listDeniedKeys", "limits denied mail"),
    ("getMetrics", "metrics"),
    ("listPoisonEvents", "projections poison"),
    ("getPoisonEventStats", "projections poison-stats"),
    ("ignorePoisonEvent", "projections ignore-poison orders e1"),
    ("unquarantineEvent", "projections unquarantine orders e1"),
    ("listProjectionLetters", "projections letters"),
    ("completeProjectionLetter", "projections complete run-1"),
    ("getProjectionLetterStats", "projections letter-stats"),
    ("getProjectionLetter", "projections letter orders e1"),
    ("ignoreProjectionLetter", "projections ignore orders e1"),
    ("prepareProjectionLetter", "projections take orders e1"),
    ("retryProjectionLetter", "projections retry orders e1"),
    ("runProjectionLetter", "projections run orders e1"),
    ("listProjections", "projections list"),
    ("getProjection", "projections show orders"),
    ("pauseProjection", "projections pause orders"),
    ("recoverProjection", "projections recover orders"),
    ("resumeProjection", "projections resume orders"),
    ("triggerReplay", "replay start orders"),
    ("triggerReplays", "replay start"),
    ("listReplays", "replay list"),
    ("getReplay", "replay show r1"),
    ("cancelReplay", "replay cancel r1"),
    ("pauseReplay", "replay pause r1"),
    ("resumeReplay", "replay resume r1"),
    ("listPublications", "publications list"),
    ("listPublicationLetters", "publications letters"),
    ("getPublicationLetterStats", "publications stats"),
    ("getPublicationLetter", "publications letter inventory e1"),
    ("ignorePublicationLetter", "publications ignore inventory e1"),
    ("retryPublicationLetter", "publications retry inventory e1"),
    ("systemState", "state"),
    ("listTokens", "token list"),
    ("createToken", "token create --name one --role reader"),
    ("revokeToken", "token revoke nobody"),
    ("rotateToken", "token rotate nobody"),
    ("signOutToken", "token sign-out nobody"),
    ("signOutEverywhere", "token sign-out --all"),
    ("getTrace", "trace corr-1"),
    ("listWork", "work list --state running"),
    ("getWorkDetails", "work show work-123"),
    ("cancelWorkItem", "work cancel work-123"),
    ("runWorkNow", "work run-now work-123"),
    ("retryWork", "work retry work-123"),
    ("getDurableFunctionRun", "work run-status run-123"),
    ("listWorkPools", "work pools"),
    ("getWorkPool", "work pools timers"),
    ("listPendingWorkpoolItems", "work list timers"),
    ("listPoolKeys", "work keys timers"),
    ("deleteWorkPool", "work pools delete nothing"),
    ("deleteWorkFunction", "work delete-function nothing"),
    ("pauseWorkPool", "work pause timers"),
    ("resumeWorkPool", "work resume timers"),
];

/// What the audit calls each operation, by its id, and whether it is to stay.
fn described(server: &Serving) -> BTreeMap<String, (String, bool)> {
    let answer = server.ask("GET /openapi.json");
    let description: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let mut actions = BTreeMap::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if path.starts_with("/admin/") {
                let id = operation["operationId"].as_str().unwrap().to_owned();
                let action = format!("{} {path}", method.to_uppercase());
                actions.insert(id, (action, operation["deprecated"] != true));
            }
        }
    }
    actions
}

#[test]
fn every_operation_of_the_admin_area_has_a_verb_that_calls_it() {
    let folder = Folder::new();
    folder.write(
        "mainstay.toml",
        "[limits.adminOperations]\nkind = \"fixed window\"\nrate = 1000000\nperiod = \"1h\"\n",
    );
    let token = folder.run("token create --name test --role admin").stdout.trim().to_owned();
    let server = Serving::start(&folder);
    let with = [("MAINSTAY_TOKEN", token.as_str())];
    let actions = described(&server);
    let named: BTreeSet<String> = VERBS.iter().map(|(id, _)| (*id).to_owned()).collect();
    let known: BTreeSet<String> = actions.keys().cloned().collect();
    assert!(named.is_subset(&known), "no operation is called so: {:?}", named.difference(&known));
    // What is going away needs no verb, and keeps those that it has.
    let lacking: Vec<_> = actions.iter().filter(|(id, (_, stays))| *stays && !named.contains(*id)).collect();
    assert!(lacking.is_empty(), "each operation has a verb in this table: {lacking:?}");

    let (mut told, mut in_vain) = (BTreeMap::new(), BTreeSet::new());
    for (id, verb) in VERBS {
        let answer = folder.run_with(&with, &format!("{verb} --json --server {}", server.url()));
        // There is nothing to act upon, so that many are refused; none may be misunderstood.
        assert!(answer.code != 2, "{verb}: {answer:?}");
        if answer.code == 0 && id != "auditHead" {
            serde_json::from_str::<Value>(&answer.stdout).unwrap_or_else(|_| panic!("{verb}: {answer:?}"));
        }
        if answer.code != 0 {
            in_vain.insert(actions[id].0.clone());
        }
        told.insert(id, answer.stderr);
    }
    // Reads are written down beside, a moment later.
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let audit =
            folder.run_with(&with, &format!("audit list --limit 1000 --json --server {}", server.url()));
        let mut written = BTreeSet::new();
        for entry in audit.json()["entries"].as_array().unwrap() {
            let action = entry["action"].as_str().unwrap().to_owned();
            let is_true = entry["outcome"] != "done" || !in_vain.contains(&action);
            assert!(is_true, "what was refused is not told to be done: {entry}");
            written.insert(action);
        }
        let missing: Vec<_> = actions
            .iter()
            .filter(|(id, (action, _))| named.contains(*id) && !written.contains(action))
            .map(|(id, _)| (id, &told[id.as_str()]))
            .collect();
        if missing.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "nobody called {missing:#?}");
    }
    server.stop("-TERM");
}
