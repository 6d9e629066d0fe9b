//! Whether services take the secrets of an extension: by the requests that its manifest names, which change nothing.
//!
//! What a service is, and how it is asked, the manifest says. A secret goes nowhere but to the hosts that it is bound to.

use drupe_config::{Config, Manifest};
use drupe_extension_api::{
    Fault,
    wire::{OutwardRequest, OutwardResponse},
};
use drupe_outward::{BoundValue, OutwardClient, host_of};
use serde_json::Value;

/// Time for one request, for which somebody waits.
const REQUEST_MS: u64 = 15_000;
/// Characters of what a service says.
const SAID: usize = 200;

/// What became of a secret that was tried.
#[derive(Debug, PartialEq, Eq)]
pub enum TriedSecret {
    Taken,
    /// The service does not take it.
    Refused(String),
    /// Nothing is known: the service could not be asked, or had no answer to that.
    Unknown(String),
}

/// Tries all bound secrets of an extension that have a value and a way to try it, each by its name.
pub fn try_all(manifest: &Manifest, config: &Config) -> Vec<(String, TriedSecret)> {
    // A configuration that does not hold together is told of elsewhere.
    let settings = manifest.effective_config(config).unwrap_or_default();
    let mut tried = Vec::new();
    for (bound, secret) in manifest.resolve_bound(&config.overlay) {
        let Some(trial) = &bound.trial else { continue };
        let mut hosts = bound.hosts.clone();
        let mut url = trial.url.clone();
        for key in &bound.addresses {
            let Some(address) = settings.get(key).and_then(Value::as_str) else { continue };
            hosts.extend(host_of(address));
            if let Some(rest) = url.strip_prefix(&format!("{{{key}}}")) {
                url = format!("{}{rest}", address.trim_end_matches('/'));
            }
        }
        let mut request = OutwardRequest::new(&trial.method, url).filling_path();
        for (name, text) in &trial.headers {
            request = request.header(name, text);
        }
        if trial.method == "POST" {
            request = request.body("");
        }
        request.timeout_ms = REQUEST_MS;
        let value = BoundValue { name: &bound.name, value: secret.expose().trim() };
        let answer = OutwardClient::send_alone(&request, [(Some(value), hosts.as_slice())].into_iter());
        let judged = judge(answer, trial.good.as_deref(), trial.fault.as_deref(), value.value);
        tried.push((bound.name.clone(), judged));
    }
    tried
}

/// What an answer says of a secret. `good` and `fault` are places in it.
fn judge(
    answer: Result<OutwardResponse, Fault>,
    good: Option<&str>,
    fault: Option<&str>,
    secret: &str,
) -> TriedSecret {
    // What is said may repeat the secret.
    let line = |text: &str| {
        let text = if secret.is_empty() { text.to_owned() } else { text.replace(secret, "…") };
        text.chars().filter(|c| !c.is_control()).take(SAID).collect::<String>()
    };
    let OutwardResponse { status, body, .. } = match answer {
        Ok(answer) => answer,
        Err(fault) => return TriedSecret::Unknown(line(&fault.to_string())),
    };
    let body: Value = serde_json::from_str(&body).unwrap_or_default();
    let is_taken = match good {
        Some(good) => body.pointer(good) == Some(&Value::Bool(true)),
        None => (200..300).contains(&status),
    };
    if is_taken {
        return TriedSecret::Taken;
    }
    let why = match fault.and_then(|fault| body.pointer(fault)?.as_str()) {
        Some(said) => format!("it says: {}", line(said)),
        None => format!("it answers with status {status}"),
    };
    // Who is overloaded, leads elsewhere or answers something else has not looked at it.
    let looked = match good {
        Some(good) => body.pointer(good).is_some(),
        None => true,
    };
    match looked && (200..500).contains(&status) && !(300..400).contains(&status) && status != 429 {
        true => TriedSecret::Refused(why),
        false => TriedSecret::Unknown(why),
    }
}

#[cfg(test)]
mod tests {
    use drupe_extension_api::FaultCode;

    use super::*;

    #[test]
    fn an_answer_says_whether_a_secret_is_taken_and_what_is_no_answer_says_nothing() {
        let answered = |status, body: &str, good| {
            let answer = OutwardResponse { status, headers: Vec::new(), body: body.to_owned() };
            judge(Ok(answer), good, Some("/error"), "s3cr3t-1")
        };
        let refused = |why: &str| TriedSecret::Refused(why.to_owned());
        let unknown = |why: &str| TriedSecret::Unknown(why.to_owned());
        let good = Some("/ok");
        assert_eq!(answered(200, r#"{"ok":true}"#, good), TriedSecret::Taken);
        assert_eq!(answered(204, "", None), TriedSecret::Taken);
        assert_eq!(
            answered(200, r#"{"ok":false,"error":"invalid\u001b_auth"}"#, good),
            refused("it says: invalid_auth")
        );
        assert_eq!(answered(401, r#"{"ok":false,"error":"no s3cr3t-1"}"#, good), refused("it says: no …"));
        assert_eq!(answered(403, "", None), refused("it answers with status 403"));
        for (status, body, good) in [
            (200, "<html>", good),
            (200, r#"{"ok":"true"}"#, Some("/no")),
            (502, "", good),
            (429, r#"{"ok":false}"#, good),
            (302, "", None),
            (500, "", None),
        ] {
            assert_eq!(
                answered(status, body, good),
                unknown(&format!("it answers with status {status}")),
                "{body}"
            );
        }
        let away = Fault::new(FaultCode::Unavailable, "nobody is there, s3cr3t-1");
        assert_eq!(judge(Err(away), good, None, "s3cr3t-1"), unknown("nobody is there, …"));
    }
}
