//! `mainstay state`: how everything is, on one page.

use crate::Result;
use crate::arguments::Global;
use crate::client::Call;
use crate::output::{print, print_json, table};
use clap::Args;
use serde_json::Value;

/// See how everything is: health, lag, dead letters and circuits
///
/// Asks the server, which needs a token (MAINSTAY_TOKEN or --token).
#[derive(Debug, Args)]
pub(crate) struct State {}

impl State {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let why = "no server holds the store, so there is nothing that runs";
        let told: Value = global.send_to_server(why, Call::new("GET /admin/system", &[])).await?;
        if global.json {
            return print_json(&told);
        }
        print(&shown(&told))
    }
}

fn shown(told: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut rows = Vec::new();
    for part in told["health"]["components"].as_array().into_iter().flatten() {
        let action = part["suggestedAction"].as_str().or(part["error"].as_str()).unwrap_or_default();
        rows.push(["part".to_owned(), text(&part["name"]), text(&part["status"]), action.to_owned()]);
    }
    for (name, lag) in told["projections"]["lags"].as_object().into_iter().flatten() {
        rows.push(["projection".to_owned(), name.clone(), format!("{lag} behind"), String::new()]);
    }
    for (name, state) in told["circuitBreakers"].as_object().into_iter().flatten() {
        rows.push(["circuit".to_owned(), name.clone(), text(state), String::new()]);
    }
    let mut page = format!("{}\n", text(&told["summary"]["status"]));
    for line in told["summary"]["critical"].as_array().into_iter().flatten() {
        page.push_str(&format!("! {}\n", text(line)));
    }
    page + &table(["WHAT", "NAME", "IS", "WHAT HELPS"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_wrong_comes_first() {
        let told = json!({
            "health": {"components": [{"name": "eventStore", "status": "healthy"},
                {"name": "deadLetters", "status": "degraded", "suggestedAction": "look at them"}]},
            "projections": {"lags": {"orderSummary": 500}},
            "circuitBreakers": {"payment": "open"},
            "summary": {"status": "degraded", "critical": ["orderSummary is 500 events behind"]},
        });
        let shown = shown(&told);
        assert!(shown.starts_with("degraded\n! orderSummary is 500 events behind\n"), "{shown}");
        for line in ["look at them", "500 behind", "payment"] {
            assert!(shown.contains(line), "{shown}");
        }
    }
}
