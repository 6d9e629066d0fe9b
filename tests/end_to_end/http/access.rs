//! Every route, and everybody who may not use it.

use serde_json::json;

use super::{daemon, daemon_with, door, token};
use crate::harness::{Daemon, model_server::ModelServer};

/// Each path, with a method that it has.
const ROUTES: &[(&str, &str)] = &[
    ("GET", "/"),
    ("GET", "/page/index.html"),
    ("GET", "/page/js/main.js"),
    ("POST", "/page/markdown"),
    ("POST", "/sign-out"),
    ("GET", "/readyz"),
    ("POST", "/control/agents.list"),
    ("GET", "/events?session=token.ci:1"),
    ("GET", "/stdio/acp"),
    ("GET", "/stdio/mcp"),
    ("GET", "/metrics"),
    ("POST", "/mcp"),
    ("GET", "/mcp"),
    ("DELETE", "/mcp"),
    ("GET", "/mcp/sse"),
    ("POST", "/mcp/messages?sessionId=x"),
    ("GET", "/mcp/ws"),
    ("GET", "/v1/agents"),
    ("GET", "/v1/agents/haiku"),
    ("GET", "/v1/agents/haiku/run?q=hello"),
    ("POST", "/v1/agents/haiku/run"),
    ("GET", "/v1/haiku?q=hello"),
    ("GET", "/v1/sessions"),
    ("POST", "/v1/sessions"),
    ("GET", "/v1/sessions/token.ci:1"),
    ("GET", "/v1/sessions/token.ci:1/messages"),
    ("POST", "/v1/sessions/token.ci:1/messages"),
    ("GET", "/v1/sessions/token.ci:1/events"),
    ("POST", "/v1/sessions/token.ci:1/stop"),
    ("POST", "/v1/sessions/token.ci:1/retry"),
    ("GET", "/v1/turns/t1"),
    ("POST", "/v1/turns/t1/stop"),
];

#[test]
fn every_route_refuses_who_is_not_known_and_what_a_browser_was_led_to() {
    let (_server, daemon) = daemon("");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci", "--may", "read,submit,direct"]));
    let (host, bearer) = (door.host(), format!("Bearer {ci}"));
    let evil = "http://evil.example.org";
    let upgrade = [("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")];
    for (method, path) in ROUTES {
        let ask = |headers: &[(&str, &str)]| door.open(method, path, headers, "").status;
        let known = [("host", host.as_str()), ("connection", "close")];
        assert_eq!(ask(&known), 401, "no token: {method} {path}");
        assert_eq!(
            ask(&[&known[..], &[("authorization", "Bearer drupe_wrong")]].concat()),
            401,
            "{method} {path}"
        );
        let good = ("authorization", bearer.as_str());
        for origin in [evil, "null", "http://localhost:1"] {
            assert_eq!(
                ask(&[&known[..], &[good, ("origin", origin)]].concat()),
                403,
                "{origin}: {method} {path}"
            );
        }
        for name in ["evil.example.org", "localhost", "127.0.0.1:1"] {
            assert_eq!(ask(&[("host", name), ("connection", "close"), good]), 403, "{name}: {method} {path}");
        }
        let led = [&[("host", host.as_str()), good, ("origin", evil)], &upgrade[..]].concat();
        assert_eq!(ask(&led), 403, "an upgrade: {method} {path}");
        if *method == "POST" || path.contains("?q=") {
            let cookie = format!("drupe={ci}");
            assert_eq!(ask(&[&known[..], &[("cookie", cookie.as_str())]].concat()), 403, "a form: {path}");
        }
    }
    assert_eq!(door.send("GET", "/healthz", &[], "").status, 200, "that it lives is no secret");
    assert!(door.send("GET", "/", &[], "").body.contains("drupe open"), "how one signs in is none either");
    assert_eq!(door.open("GET", "/healthz", &[("host", "evil.example.org")], "").status, 403);
    for (method, path, status) in
        [("GET", "/nothing", 404), ("DELETE", "/v1/agents", 405), ("PUT", "/control/status", 405)]
    {
        assert_eq!(
            door.send(method, path, &[("authorization", &bearer)], "").status,
            status,
            "{method} {path}"
        );
    }
}

#[test]
fn a_token_that_may_only_read_changes_nothing() {
    let (_server, daemon) = daemon("");
    let (door, reads) = (door(&daemon), token(&daemon, &["reads", "--may", "read"]));
    for (path, body) in [
        ("/v1/agents/haiku/run", json!({"task": "hello"})),
        ("/v1/sessions/token.reads/messages", json!({"text": "hello"})),
        ("/v1/sessions/token.reads/stop", json!({})),
        ("/control/turn.submit", json!({"session": "token.reads", "external_id": "1", "text": "hello"})),
        ("/control/approvals.list", json!({})),
        ("/control/tokens.new", json!({"name": "more", "may": ["operate"]})),
        ("/control/tokens.promise", json!({"name": "more", "may": ["operate"]})),
        ("/control/stop", json!({})),
    ] {
        let refused = door.post(&reads, path, &body);
        assert_eq!(refused.status, 403, "{path}: {refused:?}");
        assert_eq!(refused.json()["error"]["code"], "denied", "{path}");
    }
    assert_eq!(door.get(&reads, "/v1/agents").status, 200);
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
