use drupe_extension_api::{EffectClass, FaultCode};
use serde_json::json;

use super::support::{Server, answer, fetch, page, try_web, web};

#[test]
fn both_tools_only_read_reach_out_and_give_what_strangers_wrote() {
    let web = web(json!({"search": {"provider": "searxng", "address": "http://127.0.0.1:1"}}));
    let tools = web.describe().expect("a description").tools;
    assert_eq!(tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["web_fetch", "web_search"]);
    for tool in tools {
        let labels = &tool.annotations;
        assert!(labels.read_only && labels.outward && labels.reads_untrusted && !labels.destructive);
        assert_eq!(labels.effect, EffectClass::Pure);
        assert!(tool.instructions.is_none());
    }
}

#[test]
fn a_request_says_who_asks_and_nothing_of_anybody() {
    let server = Server::start(|_| answer("200 OK", "content-type: text/plain\nset-cookie: a=b", "x"));
    let web = web(json!({"cache_minutes": 0}));
    for _ in 0..2 {
        fetch(&web, &server.url("/path?q=1#part")).expect("a page");
    }
    for request in server.requests() {
        let agent = concat!("user-agent: drupe/", env!("CARGO_PKG_VERSION"), " (web extension)\r\n");
        assert!(request.starts_with("GET /path?q=1 HTTP/1.1\r\n") && request.contains(agent), "{request}");
        for never in ["cookie:", "referer:", "authorization:", "part"] {
            assert!(!request.contains(never), "{request}");
        }
    }
}

#[test]
fn statuses_are_told_by_their_meaning() {
    let server = Server::start(|request| {
        let path = request.split(' ').nth(1).unwrap_or_default();
        answer(&format!("{} X", &path[1..]), "content-type: text/html", "<p>Body.")
    });
    let web = web(json!({}));
    for (status, code) in [
        (404, FaultCode::NotFound),
        (410, FaultCode::NotFound),
        (401, FaultCode::Denied),
        (403, FaultCode::Denied),
        (429, FaultCode::Busy),
        (500, FaultCode::Unavailable),
        (418, FaultCode::Other),
        // A redirect that leads nowhere.
        (302, FaultCode::Other),
    ] {
        let fault = fetch(&web, &server.url(&format!("/{status}"))).expect_err("no page");
        assert!(fault.code == code && fault.message.contains(&format!("answered {status}")), "{fault:?}");
    }
}

#[test]
fn an_empty_page_says_that_it_is_empty() {
    let server = Server::start(|_| page(""));
    let text = fetch(&web(json!({})), &server.url("/")).expect("a page");
    assert!(text.contains("Page: 1 of 1") && text.ends_with("\n\n(there is no text)"), "{text}");
}

#[test]
fn a_wrong_configuration_is_refused_by_name() {
    for (config, named) in [
        (json!({"allowed": []}), "allowed"),
        (json!({"allow": ["http://a.example"]}), "`allow` holds"),
        (json!({"page_bytes": 1}), "page_bytes"),
        (json!({"search": {"provider": "bing"}}), "bing"),
    ] {
        let fault = try_web(config).expect_err(named);
        assert!(fault.message.contains(named), "{fault}");
    }
}
