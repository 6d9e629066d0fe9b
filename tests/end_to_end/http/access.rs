//! Every route, and everybody who may not use it.

use serde_json::{Value, json};

use super::{daemon, daemon_with, door, token};
use crate::harness::{Daemon, model_server::ModelServer};

/// An operation of the document that the server gives of itself.
struct Asked {
    method: String,
    path: String,
    /// Whether it wants to know who asks.
    needs_credential: bool,
    /// The power that a method of the control API needs.
    needs: Option<String>,
}

/// All of them, with something in the place of each variable.
fn operations(document: &Value) -> Vec<Asked> {
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let path = [
                ("{session}", "token.ci:1"),
                ("{agent}", "haiku"),
                ("{model}", "haiku"),
                ("{turn}", "t1"),
                ("{response}", "resp_t1"),
                ("{file}", "js/main.js"),
                ("{name}", "none"),
                ("{embed}", "none"),
            ]
            .iter()
            .fold(path.clone(), |path, (name, value)| path.replace(name, value));
            assert!(!path.contains('{'), "{path} has a variable that nothing stands for");
            let wanted = operation["parameters"].as_array().into_iter().flatten();
            let wanted = wanted.filter(|one| one["in"] == "query" && one["required"] == true);
            let query: Vec<_> =
                wanted.map(|one| format!("{}=token.ci:1", one["name"].as_str().expect("a name"))).collect();
            let path = if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) };
            let says = operation["description"].as_str().unwrap_or_default();
            let needs = says.split_once("made with `").and_then(|(_, rest)| rest.split_once('`'));
            all.push(Asked {
                method: method.to_ascii_uppercase(),
                path,
                needs_credential: operation["security"] != json!([]),
                needs: needs.map(|(needs, _)| needs.to_owned()),
            });
        }
    }
    assert!(all.len() > 70, "all routes are there");
    all
}

/// What a token that may read is refused besides methods of the control API, with a body that could be: what comes before the
/// refusal is told otherwise.
const CHANGES: &[(&str, &str, &str)] = &[
    ("GET", "/v1/agents/haiku/run?q=hello", ""),
    ("GET", "/v1/haiku?q=hello", ""),
    ("POST", "/v1/agents/haiku/run", r#"{"task": "hello"}"#),
    ("POST", "/v1/sessions", r#"{"id": "token.ci:1", "agent": "haiku"}"#),
    ("POST", "/v1/sessions/token.ci:1/messages", r#"{"text": "hello"}"#),
    ("POST", "/v1/sessions/token.ci:1/stop", ""),
    ("DELETE", "/v1/sessions/token.ci:1", ""),
    ("POST", "/v1/turns/t1/stop", ""),
    (
        "POST",
        "/v1/chat/completions",
        r#"{"model": "haiku", "messages": [{"role": "user", "content": "hello"}]}"#,
    ),
    ("POST", "/v1/responses", r#"{"model": "haiku", "input": "hello"}"#),
    (
        "POST",
        "/v1/messages",
        r#"{"model": "haiku", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}"#,
    ),
    ("POST", "/v1/responses/resp_t1/cancel", ""),
    ("GET", "/metrics", ""),
];

/// Of the control API a door has no more than `operate` for the operator's own tokens.
const POWERS: [&str; 6] = ["read", "submit", "direct", "inspect", "extend", "operate"];

#[test]
fn every_route_of_the_document_refuses_who_is_not_known_and_what_a_browser_was_led_to() {
    let (_server, daemon) = daemon("");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci", "--may", "read,submit,direct"]));
    let (host, bearer) = (door.host(), format!("Bearer {ci}"));
    let all = operations(&door.get(&ci, "/openapi.json").json());
    let known = [("host", host.as_str()), ("connection", "close")];
    let good = ("authorization", bearer.as_str());
    let cookie = format!("drupe={ci}");
    let upgrade = [("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")];
    for Asked { method, path, needs_credential, .. } in &all {
        let ask = |headers: &[(&str, &str)]| door.open(method, path, headers, "").status;
        // A hook is asked for its signature, a sign-in for its code, and that it lives is no secret.
        let open = match path.split(['/', '?']).nth(1) {
            Some("hooks") => 401,
            Some("sign-in") => 403,
            // There is none, and whoever asks for a frame is nobody yet.
            Some("embed") => 404,
            _ => 200,
        };
        let unknown = if *needs_credential { 401 } else { open };
        assert_eq!(ask(&known), unknown, "no token: {method} {path}");
        let wrong = [&known[..], &[("authorization", "Bearer drupe_wrong")]].concat();
        assert_eq!(ask(&wrong), unknown, "a wrong token: {method} {path}");
        for origin in ["http://evil.example.org", "null", "http://localhost:1"] {
            let led = [&known[..], &[good, ("origin", origin)]].concat();
            assert_eq!(ask(&led), 403, "{origin}: {method} {path}");
            let led = [&[known[0], good, ("origin", origin)], &upgrade[..]].concat();
            assert_eq!(ask(&led), 403, "an upgrade of {origin}: {method} {path}");
        }
        for name in ["evil.example.org", "localhost", "127.0.0.1:1"] {
            assert_eq!(ask(&[("host", name), known[1], good]), 403, "{name}: {method} {path}");
        }
        if *needs_credential && (method != "GET" || path.contains("q=")) {
            let form = [&known[..], &[("cookie", cookie.as_str())]].concat();
            assert_eq!(ask(&form), 403, "a form: {method} {path}");
        }
    }
    assert!(door.send("GET", "/", &[], "").body.contains("drupe open"), "how one signs in is no secret");
    for (method, path, status) in
        [("GET", "/nothing", 404), ("DELETE", "/v1/agents", 405), ("PUT", "/control/status", 405)]
    {
        let answer = door.send(method, path, &[good], "");
        assert_eq!(answer.status, status, "{method} {path}");
        assert!(answer.json()["error"]["code"].is_string(), "{answer:?}");
    }
}

#[test]
fn a_token_has_of_each_route_what_it_was_made_for() {
    let (_server, daemon) = daemon("");
    let door = door(&daemon);
    let reads = token(&daemon, &["ci", "--may", "read"]);
    let bearer = format!("Bearer {reads}");
    let all = operations(&door.get(&reads, "/openapi.json").json());
    let changes =
        |method: &str, path: &str| CHANGES.iter().find(|(one, at, _)| *one == method && *at == path);
    for Asked { method, path, needs, .. } in all.iter().filter(|one| one.needs_credential) {
        // These do not end by themselves, end the token, or begin something else.
        if path.contains("events") || path == "/control/tokens.leave" || path.starts_with("/mcp") {
            continue;
        }
        let path = path.replace("?q=token.ci:1", "?q=hello");
        let change = changes(method, &path);
        let body = change.map_or("", |(_, _, body)| *body);
        let answer = door.send(method, &path, &[("authorization", &bearer)], body);
        let refused = match needs.as_deref().filter(|needs| POWERS.contains(needs)) {
            Some(needs) => needs != "read",
            None => change.is_some(),
        };
        assert_eq!(answer.status == 403, refused, "{method} {path}: {answer:?}");
    }
    for (method, path, _) in CHANGES {
        let known = all
            .iter()
            .any(|one| one.method == *method && one.path.replace("?q=token.ci:1", "?q=hello") == *path);
        assert!(known, "{method} {path} is no operation");
    }
    assert_eq!(
        door.post(&reads, "/control/tokens.promise", &json!({"name": "more", "may": ["operate"]})).status,
        403
    );
}

#[test]
fn a_link_signs_a_browser_in_once_and_the_token_ends_with_its_revocation() {
    let (_server, daemon) = daemon("");
    let door = door(&daemon);
    let link = daemon.says(&["open"]);
    let path =
        link.trim().strip_prefix(&format!("http://{}", door.host())).expect("a link to the door").to_owned();
    let entered = door.send("GET", &path, &[], "");
    assert_eq!((entered.status, entered.header("location")), (303, Some("/")), "{entered:?}");
    let cookie = entered.header("set-cookie").expect("a cookie");
    for attribute in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    let cookie = cookie.split(';').next().expect("a pair").to_owned();
    assert_eq!(door.send("GET", &path, &[], "").status, 403, "a link is good once");
    assert_eq!(door.send("GET", "/sign-in?code=drupe_made_up", &[], "").status, 403);
    let page = [("cookie", cookie.as_str()), ("x-drupe-request", "1")];
    let who = door.send("POST", "/control/whoami", &page, "").json();
    assert!(who["name"].as_str().is_some_and(|name| name.starts_with("token `page-")), "{who}");
    assert_eq!(door.send("POST", "/control/status", &page, "").json()["state"], "ready");
    // What an extension may not do by itself, it passes on.
    assert_eq!(door.send("POST", "/control/tokens.list", &page, "").status, 200);
    let name = who["name"].as_str().and_then(|name| name.split('`').nth(1)).expect("a name");
    daemon.says(&["token", "revoke", name]);
    assert_eq!(door.send("POST", "/control/whoami", &page, "").status, 401);
}

#[test]
fn to_sign_out_ends_the_token_of_the_page_and_no_other() {
    let (_server, daemon) = daemon("");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci", "--may", "read"]));
    let link = daemon.says(&["open"]);
    let path = link.trim().strip_prefix(&format!("http://{}", door.host())).expect("a link to the door");
    let entered = door.send("GET", path, &[], "");
    let cookie = entered.header("set-cookie").and_then(|cookie| cookie.split(';').next()).expect("a cookie");
    let page = [("cookie", cookie), ("x-drupe-request", "1")];
    assert_eq!(door.send("POST", "/control/whoami", &page, "").status, 200);
    assert_eq!(
        door.send("POST", "/sign-out", &[("cookie", cookie)], "").status,
        403,
        "a form of another page"
    );
    let left = door.send("POST", "/sign-out", &page, "");
    assert_eq!(left.status, 303, "{left:?}");
    assert!(left.header("set-cookie").is_some_and(|cookie| cookie.contains("Max-Age=0")), "{left:?}");
    assert_eq!(
        door.send("POST", "/control/whoami", &page, "").status,
        401,
        "whoever copied the cookie has nothing"
    );
    assert!(!daemon.says(&["token", "list"]).contains("page-"), "{}", daemon.says(&["token", "list"]));
    // A program keeps what it shows, and can give it up by itself.
    let bearer = format!("Bearer {ci}");
    assert_eq!(door.send("POST", "/sign-out", &[("authorization", &bearer)], "").status, 303);
    assert_eq!(door.get(&ci, "/readyz").status, 200);
    assert_eq!(door.post(&ci, "/control/tokens.leave", &json!({})).status, 200);
    assert_eq!(door.get(&ci, "/readyz").status, 401);
    let operator = daemon.client().ask("tokens.leave", json!({}));
    assert!(operator.is_err_and(|said| said.contains("no named token")));
}

#[test]
fn a_page_that_the_operator_allows_may_read_answers_and_no_other() {
    let server = ModelServer::obedient();
    let daemon =
        daemon_with(&server, &[("DRUPE_EXTENSIONS__HTTP__ORIGINS", "[https://app.example.org]")], "");
    let door = door(&daemon);
    let asked = ("access-control-request-method", "POST");
    let first = |origin| door.send("OPTIONS", "/v1/chat/completions", &[("origin", origin), asked], "");
    let allowed = first("https://app.example.org");
    assert_eq!(allowed.status, 204, "{allowed:?}");
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://app.example.org"));
    assert_eq!(allowed.header("access-control-allow-credentials"), None, "never with the cookie of the page");
    let other = first("https://other.example.org");
    assert_eq!((other.status, other.header("access-control-allow-origin")), (403, None));
}

#[test]
fn it_is_reached_by_the_names_that_the_operator_gives_and_its_cookie_is_for_a_proxy_with_tls_alone() {
    let server = ModelServer::obedient();
    let [hosts, behind] = ["HOSTS", "BEHIND_PROXY"].map(|key| format!("DRUPE_EXTENSIONS__HTTP__{key}"));
    let daemon = daemon_with(&server, &[(&hosts, "[drupe.example.org]"), (&behind, "true")], "");
    let door = door(&daemon);
    let of = |host: &str| door.open("GET", "/healthz", &[("host", host)], "").status;
    assert_eq!(["drupe.example.org", "other.example.org"].map(of), [200, 403]);
    let link = daemon.says(&["open"]);
    let path = link.trim().strip_prefix(&format!("http://{}", door.host())).expect("a link to the door");
    let entered = door.send("GET", path, &[], "");
    let cookie = entered.header("set-cookie").expect("a cookie");
    assert!(cookie.contains("; Secure"), "{cookie}");
}

#[test]
fn it_does_not_listen_to_the_network_without_a_proxy() {
    let mut daemon = Daemon::home("");
    daemon.variable("DRUPE_EXTENSIONS__HTTP__ENABLED", "true");
    daemon.variable("DRUPE_EXTENSIONS__HTTP__ADDRESS", "0.0.0.0:0");
    daemon.run();
    let (state, reason) = daemon.extension("http");
    assert_eq!(state, "disabled", "{reason}");
    assert!(reason.contains("without TLS") && reason.contains("behind_proxy"), "{reason}");
}

#[test]
fn an_address_that_is_none_or_taken_is_told() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = taken.local_addr().expect("it is open").to_string();
    for (address, said) in
        [("localhost", "no address and port"), (address.as_str(), "nothing can listen there")]
    {
        let mut daemon = Daemon::home("");
        daemon.variable("DRUPE_EXTENSIONS__HTTP__ENABLED", "true");
        daemon.variable("DRUPE_EXTENSIONS__HTTP__ADDRESS", address);
        daemon.run();
        let (state, reason) = daemon.extension("http");
        assert_eq!(state, "failed", "{reason}");
        assert!(reason.contains(said) && reason.contains("`address`"), "{reason}");
    }
}
