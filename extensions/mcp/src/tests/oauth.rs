//! Signing in: what works, and what somebody hostile would try.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use drupe_extension_api::{
    prelude::*,
    testing::{Harness, Setup, block_on},
};
use serde_json::{Value, json};

use super::{issuer::*, played::*};
use crate::Mcp;

const BACK: &str = "http://127.0.0.1:4711/callback";

/// A folder of a test, gone at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("drupe-mcp-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn begun(setup: Setup<Mcp>) -> Harness<Mcp> {
    block_on(setup.start()).expect("it starts")
}

/// A server that wants to know who asks, and everything in its place.
fn wanting(issuer: &Issuer, folder: &Folder) -> Harness<Mcp> {
    let name = issuer.begin();
    let url = issuer.server(&name);
    let harness = begun(setup(json!({"h": {"url": url}}), json!({})).data_folder(&folder.0));
    until("it wants to know who asks", || state(&harness, "h")["state"] == "sign_in");
    harness
}

fn login(harness: &Harness<Mcp>) -> Result<Value, Fault> {
    ask(harness, "login", json!({"server": "h", "redirect": BACK}))
}

fn comes_back(harness: &Harness<Mcp>, response: &str) -> Result<Value, Fault> {
    ask(harness, "login_response", json!({"server": "h", "response": response}))
}

fn signs_in(harness: &Harness<Mcp>) -> Value {
    let begun = login(harness).expect("it begins");
    comes_back(harness, &visits(begun["address"].as_str().expect("an address"))).expect("it ends well")
}

fn says(harness: &Harness<Mcp>, session: &str) -> Result<String, Fault> {
    calls(harness, session, "h__say", json!({}))
}

#[test]
fn who_signed_in_is_known_until_they_sign_out_and_nobody_reads_a_token() {
    let (issuer, folder) = (Issuer::default(), Folder::new("in"));
    let harness = wanting(&issuer, &folder);
    let begun = login(&harness).expect("it begins");
    assert_eq!(begun["scopes"], json!(["read", "use"]), "what the server wants, and not all that there is");
    let told = comes_back(&harness, &visits(begun["address"].as_str().expect("one"))).expect("it ends well");
    assert!(told["error"].is_null() && !told.to_string().contains("-token-"), "{told}");
    until("it tells its tools", || offered(&harness) == ["h__say"]);
    assert_eq!(says(&harness, "s").as_deref(), Ok("by [secret]"), "a token is in no answer");
    let now = state(&harness, "h");
    assert!(now["state"] == "ready" && !now.to_string().contains("-token-"), "{now}");
    {
        let all = issuer.lock();
        let wanted = &all.registered[0];
        assert_eq!(
            (&wanted["redirect_uris"][0], &wanted["application_type"]),
            (&json!(BACK), &json!("native"))
        );
        let resource = now["signed_in"]["resource"].as_str().expect("one");
        assert!(
            all.asked_authorizations[0]["resource"] == resource
                && all.asked_tokens[0]["resource"] == resource
        );
    }
    let file = folder.0.join("tokens.json");
    assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
    let url = harness_url(&harness, &folder);
    drop(harness);
    // Another start knows it still.
    let harness = self::begun(setup(json!({"h": {"url": url}}), json!({})).data_folder(&folder.0));
    assert_eq!(says(&harness, "s").as_deref(), Ok("by [secret]"));
    assert_eq!(issuer.lock().asked_tokens.len(), 1);
    let out = ask(&harness, "logout", json!({"server": "h"})).expect("it ends");
    assert_eq!(out, json!({"signed_in": true, "revoked": true}));
    assert_eq!(issuer.lock().revoked.len(), 2, "what is renewed by, too");
    assert!(!fs::read_to_string(&file).expect("a file").contains("token-"));
    let fault = says(&harness, "s").expect_err("nobody is signed in");
    assert!(fault.message.contains("`drupe mcp login h`"), "{fault}");
    assert_eq!(ask(&harness, "logout", json!({"server": "h"})).expect("nothing")["signed_in"], false);
}

/// The address under which a server was signed in to.
fn harness_url(harness: &Harness<Mcp>, folder: &Folder) -> String {
    drop(state(harness, "h"));
    let text = fs::read_to_string(folder.0.join("tokens.json")).expect("a file");
    let kept: Value = serde_json::from_str(&text).expect("JSON");
    kept["h"]["url"].as_str().expect("an address").to_owned()
}

#[test]
fn what_comes_back_from_somebody_else_is_sent_nowhere() {
    let (issuer, folder) = (Issuer::default(), Folder::new("mixed"));
    let harness = wanting(&issuer, &folder);
    let fault = comes_back(&harness, "?code=x&state=y").expect_err("nobody is signing in");
    assert!(fault.message.contains("nobody is signing in"), "{fault}");
    let begun = login(&harness).expect("it begins");
    let right = visits(begun["address"].as_str().expect("an address"));
    let with = |name: &str, value: Option<&str>| {
        let mut url = url::Url::parse(&right).expect("an address");
        let pairs: Vec<(String, String)> =
            url.query_pairs().into_owned().filter(|(key, _)| key != name).collect();
        url.query_pairs_mut().clear().extend_pairs(pairs);
        if let Some(value) = value {
            url.query_pairs_mut().append_pair(name, value);
        }
        url.to_string()
    };
    for (response, says) in [
        (with("state", Some("guessed")), "`state`"),
        (with("state", None), "`state`"),
        (with("iss", Some("http://127.0.0.1:1")), "another issuer"),
        (with("iss", None), "does not say from whom"),
        (format!("{}&error=spoken&error_description=to+you", with("iss", Some("x"))), "another issuer"),
        (format!("{right}&code=other"), "twice"),
        ("http://127.0.0.1:4711/callback".to_owned(), "no answer of a sign-in"),
        ("x".repeat(20_000), "too long"),
    ] {
        let fault = comes_back(&harness, &response).expect_err(says);
        assert!(fault.message.contains(says) && !fault.to_string().contains("spoken"), "{response}: {fault}");
    }
    assert!(issuer.lock().asked_tokens.is_empty(), "no code was sent anywhere");
    // None of these ended the sign-in of whoever is at it.
    comes_back(&harness, &right).expect("it ends well");
    let fault = comes_back(&harness, &right).expect_err("once");
    assert!(fault.message.contains("nobody is signing in"), "{fault}");
    // Somebody who was refused is told so by the one who was asked.
    let begun = login(&harness).expect("it begins");
    let address = url::Url::parse(begun["address"].as_str().expect("one")).expect("an address");
    let state = address.query_pairs().find(|(name, _)| name == "state").expect("a state").1.into_owned();
    let refused = format!("error=access_denied&state={state}&iss={}", begun["issuer"].as_str().expect("one"));
    let fault = comes_back(&harness, &refused).expect_err("refused");
    assert!(fault.message.contains("access_denied"), "{fault}");
}

#[test]
fn what_is_published_must_fit_before_anybody_is_sent_anywhere() {
    let (issuer, folder) = (Issuer::default(), Folder::new("published"));
    let harness = wanting(&issuer, &folder);
    let led = listens(|_| (302, "location: http://127.0.0.1:1/\r\n".into(), String::new()));
    for (of_server, key, value, says) in [
        (true, "resource", json!("https://bank.example/mcp"), "which it is not"),
        (true, "authorization_servers", json!(["http://bank.example"]), "not `https`"),
        (true, "authorization_servers", json!([led]), "nothing is published"),
        (true, "authorization_servers", json!([]), "nothing is published"),
        (false, "issuer", json!("https://bank.example"), "of the issuer"),
        (false, "token_endpoint", json!("http://bank.example/token"), "not `https`"),
        (false, "authorization_endpoint", json!("file:///etc/passwd"), "not `https`"),
        (false, "code_challenge_methods_supported", Value::Null, "PKCE"),
        (false, "registration_endpoint", Value::Null, "register drupe there by hand"),
    ] {
        let changed = |of: &mut Issued| match of_server {
            true => of.resource.insert(key, value.clone()),
            false => of.issuer.insert(key, value.clone()),
        };
        changed(&mut issuer.lock());
        let fault = login(&harness).expect_err(says);
        assert!(fault.to_string().contains(says), "{key}: {fault}");
        let mut all = issuer.lock();
        all.resource.clear();
        all.issuer.clear();
    }
    for (server, redirect, says) in
        [("h", "https://evil.example:1/x", "of this machine"), ("none", BACK, "no MCP server")]
    {
        let fault = ask(&harness, "login", json!({"server": server, "redirect": redirect})).expect_err(says);
        assert!(fault.to_string().contains(says), "{fault}");
    }
    assert!(issuer.lock().registered.is_empty() && issuer.lock().asked_authorizations.is_empty());
}

#[test]
fn a_token_that_ends_is_renewed_once_however_many_want_it() {
    let (issuer, folder) = (Issuer::default(), Folder::new("renewed"));
    let harness = wanting(&issuer, &folder);
    signs_in(&harness);
    until("it tells its tools", || offered(&harness) == ["h__say"]);
    for session in ["a", "b", "c"] {
        says(&harness, session).expect("it is good");
    }
    // The server takes it no more; all of them find out at the same time.
    issuer.lock().good.clear();
    std::thread::scope(|scope| {
        for session in ["a", "b", "c"] {
            let harness = &harness;
            scope.spawn(move || says(harness, session).expect("another one is made"));
        }
    });
    assert_eq!(issuer.lock().asked_tokens.len(), 2, "one to begin with, one for all three");
    let resource = issuer.lock().asked_tokens[1]["resource"].clone();
    assert_eq!(state(&harness, "h")["signed_in"]["resource"], resource);
    // One that is said to end is renewed before it is shown.
    issuer.lock().lasts = Some(0);
    issuer.lock().good.clear();
    says(&harness, "a").expect("a third");
    let came = issuer.lock().came.len();
    says(&harness, "a").expect("a fourth");
    let now = {
        let all = issuer.lock();
        (all.came.len() - came, all.asked_tokens.len())
    };
    assert_eq!(now, (1, 4));
    // What it is renewed by is worth nothing any more.
    issuer.lock().renewing.clear();
    let fault = says(&harness, "a").expect_err("nothing is left");
    assert!(
        fault.code == FaultCode::Unauthenticated && fault.message.contains("`drupe mcp login h`"),
        "{fault}"
    );
    assert_eq!(state(&harness, "h")["state"], "sign_in");
    assert!(!fs::read_to_string(folder.0.join("tokens.json")).expect("a file").contains("token-"));
    issuer.lock().lasts = None;
    signs_in(&harness);
    says(&harness, "a").expect("it is good");
}

#[test]
fn what_a_token_does_not_allow_is_named_and_asked_for_by_the_next_sign_in() {
    let (issuer, folder) = (Issuer::default(), Folder::new("more"));
    let harness = wanting(&issuer, &folder);
    signs_in(&harness);
    until("it tells its tools", || offered(&harness) == ["h__say"]);
    let fault = calls(&harness, "a", "h__say", json!({"text": "more"})).expect_err("it needs another scope");
    assert!(fault.code == FaultCode::Denied && fault.message.contains("`write`"), "{fault}");
    assert!(fault.to_string().contains("`drupe mcp login h`"), "{fault}");
    assert_eq!(state(&harness, "h")["state"], "ready", "it is well otherwise");
    says(&harness, "a").expect("the rest goes on");
    assert_eq!(signs_in(&harness)["scopes"], json!(["read", "use", "write"]));
    calls(&harness, "a", "h__say", json!({"text": "more"})).expect("it is allowed");
}

#[test]
fn a_token_goes_to_no_other_server() {
    let (issuer, folder) = (Issuer::default(), Folder::new("other"));
    let harness = wanting(&issuer, &folder);
    signs_in(&harness);
    let url = harness_url(&harness, &folder);
    drop(harness);
    let other = Issuer::default();
    let elsewhere = other.server(&other.begin());
    // The same name with another address, and the same address under another name.
    let servers = json!({"h": {"url": elsewhere}, "x": {"url": url}});
    let harness = begun(setup(servers, json!({})).data_folder(&folder.0));
    // The operator agrees to the other address.
    let fault = ask(&harness, "approve", json!({"server": "h"})).expect_err("it wants to know who asks");
    assert!(fault.message.contains("`drupe mcp login h`"), "{fault}");
    until("both want to know", || {
        state(&harness, "h")["state"] == "sign_in" && state(&harness, "x")["state"] == "sign_in"
    });
    assert!(!other.lock().came.is_empty() && other.lock().came.iter().all(String::is_empty));
    drop(harness);
    // What an operator registered by hand is of one issuer.
    let oauth = json!({"client_id": "c", "issuer": "https://bank.example", "client_secret": "s3cr3t-s3cr3t"});
    let harness = begun(setup(json!({"h": {"url": url, "oauth": oauth}}), json!({})).data_folder(&folder.0));
    ask(&harness, "approve", json!({"server": "h"})).expect_err("it wants to know who asks");
    let fault = login(&harness).expect_err("the issuer is another");
    assert!(fault.message.contains("`https://bank.example` of `oauth.issuer`"), "{fault}");
    assert!(state(&harness, "h")["signed_in"].is_null(), "what was made for another client is not used");
}
