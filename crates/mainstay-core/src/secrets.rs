//! What is secret by its name, in documents that somebody else made.

use serde_json::Value;

/// What stands in place of a secret.
pub const HIDDEN: &str = "[hidden]";

/// Parts of names under which secrets are given.
const NAMES: [&str; 14] = [
    "secret",
    "password",
    "passwd",
    "passphrase",
    "token",
    "authorization",
    "bearer",
    "cookie",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
    "signature",
    "cvv",
];

/// Whole names under which secrets are given; as parts of names they are ordinary words. The lease of a pull worker has one.
const WHOLE_NAMES: [&str; 1] = ["lease"];

/// Whether a member of this name is a secret, however it is spelled: `apiKey`, `API-Key`, `client_secret`.
pub fn is_secret(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let plain = plain.to_ascii_lowercase();
    NAMES.iter().any(|secret| plain.contains(secret)) || WHOLE_NAMES.contains(&&*plain)
}

/// Hides every member that is a secret by its name; whether there was one.
pub fn hide(document: &mut Value) -> bool {
    let mut is_found = false;
    match document {
        Value::Array(items) => {
            for item in items {
                is_found |= hide(item);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                if is_secret(name) && !member.is_null() {
                    *member = HIDDEN.into();
                    is_found = true;
                } else {
                    is_found |= hide(member);
                }
            }
        }
        _ => {}
    }
    is_found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_that_are_secret_by_their_names_are_hidden_wherever_they_stand() {
        let mut document = json!({
            "order": 1, "client_secret": "canary", "nested": [{"API-Key": "canary", "password": {"a": "canary"}}],
            "Authorization": ["canary"], "token": null, "lease": "1.canary", "leaseMs": 5, "release": "2.0",
        });
        assert!(hide(&mut document));
        let hidden = json!({
            "order": 1, "client_secret": HIDDEN, "nested": [{"API-Key": HIDDEN, "password": HIDDEN}],
            "Authorization": HIDDEN, "token": null, "lease": HIDDEN, "leaseMs": 5, "release": "2.0",
        });
        assert_eq!(document, hidden);
        assert!(!hide(&mut json!({"order": {"id": [1, "token"]}})), "names count, not texts");
    }
}
