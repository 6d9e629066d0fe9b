use drupe_extension_api::{Fault, FaultCode, testing::block_on};
use serde_json::{Value, json};

use super::support::{Server, answer, try_web};

/// A service that answers each request with a status and JSON.
fn service(status: &'static str, body: Value) -> Server {
    Server::start(move |_| answer(status, "content-type: application/json", body.to_string()))
}

/// A search with a provider that is at a server of the test, although the model may read nothing from there.
fn search(provider: &str, server: &Server, params: Value) -> Result<String, Fault> {
    let key = (provider != "searxng").then_some("key-1");
    let mut config = json!({"allow": [], "search": {"provider": provider, "address": server.url("/base")}});
    if let Some(key) = key {
        config["search"]["key"] = json!(key);
    }
    let web = try_web(config).expect("it starts");
    block_on(web.call("web_search", params))
}

/// Answers as each vendor's documentation shows them.
fn answer_of(provider: &str) -> Value {
    match provider {
        "searxng" => json!({
            "query": "rust", "number_of_results": 0, "answers": [], "corrections": [], "infoboxes": [], "suggestions": [],
            "unresponsive_engines": [["brave", "timeout"]],
            "results": [
                {"url": "https://one.example/", "title": "One", "content": "The first.", "publishedDate": "2026-11-20T00:00:00",
                 "engine": "duckduckgo", "engines": ["duckduckgo"], "positions": [1], "score": 1.0, "category": "general",
                 "template": "default.html", "parsed_url": ["https", "one.example", "/", "", "", ""]},
                {"url": "https://two.example/", "title": "Two", "content": "The second.", "publishedDate": null},
            ],
        }),
        "brave" => json!({
            "type": "search", "query": {"original": "rust", "more_results_available": true}, "mixed": {"type": "mixed"},
            "web": {"type": "search", "family_friendly": true, "results": [
                {"type": "search_result", "url": "https://one.example/", "title": "One", "description": "The <strong>first</strong>.",
                 "page_age": "2026-11-20T00:00:00", "age": "4 days ago", "language": "en", "profile": {"name": "One"}},
                {"type": "search_result", "url": "https://two.example/", "title": "Two", "description": "The second."},
            ]},
        }),
        _ => json!({
            "query": "rust", "answer": null, "images": [], "follow_up_questions": null, "response_time": 1.1, "request_id": "r",
            "results": [
                {"url": "https://one.example/", "title": "One", "content": "The first.", "score": 0.9, "raw_content": null,
                 "published_date": "2026-11-20T00:00:00"},
                {"url": "https://two.example/", "title": "Two", "content": "The second.", "score": 0.8, "raw_content": null},
            ],
        }),
    }
}

#[test]
fn three_providers_are_asked_as_they_want_it_and_give_the_same() {
    for (provider, line, header, body) in [
        (
            "searxng",
            "GET /base/search?q=rust+%26+co&format=json&pageno=1 HTTP/1.1",
            "accept: application/json",
            "",
        ),
        (
            "brave",
            "GET /base/res/v1/web/search?q=rust+%26+co&count=2&offset=0&result_filter=web&text_decorations=false HTTP/1.1",
            "x-subscription-token: key-1",
            "",
        ),
        (
            "tavily",
            "POST /base/search HTTP/1.1",
            "authorization: Bearer key-1",
            r#"{"max_results":2,"query":"rust & co","search_depth":"basic"}"#,
        ),
    ] {
        let server = service("200 OK", answer_of(provider));
        let found = search(provider, &server, json!({"query": "rust & co", "count": 2})).expect(provider);
        let listed = "1. One\n   https://one.example/\n   2026-11-20T00:00:00\n   The first.\n\n2. Two\n   https://two.example/\n   The second.\n";
        assert!(found.contains("found for `rust & co`, page 1:\n\n") && found.ends_with(listed), "{found}");
        let request = &server.requests()[0];
        assert!(request.starts_with(line) && request.contains(header), "{request}");
        assert!(
            request.contains("user-agent: drupe/") && request.ends_with(&format!("\r\n\r\n{body}")),
            "{request}"
        );
    }
}

#[test]
fn pages_and_counts_go_as_far_as_a_provider_does() {
    for (provider, page, part) in [
        ("searxng", 3, Some("pageno=3")),
        ("brave", 10, Some("offset=9")),
        ("brave", 11, None),
        ("tavily", 2, None),
    ] {
        let server = service("200 OK", answer_of(provider));
        match (search(provider, &server, json!({"query": "rust", "page": page})), part) {
            (Ok(_), Some(part)) => assert!(server.requests()[0].contains(part), "{:?}", server.requests()),
            (Err(fault), None) => {
                assert!(fault.code == FaultCode::Invalid && server.connections() == 0, "{fault}");
            }
            (other, _) => panic!("{provider} {page}: {other:?}"),
        }
    }
    let server = service("200 OK", answer_of("searxng"));
    let found = search("searxng", &server, json!({"query": "rust", "count": 1})).expect("results");
    assert!(
        found.contains("1 further results of this page are not shown") && !found.contains("two.example"),
        "{found}"
    );
    for query in ["", "  ", &"x".repeat(401)] {
        let fault = search("searxng", &server, json!({"query": query})).expect_err("no query");
        assert!(fault.message.contains("1 to 400 characters"), "{fault}");
    }
    let fault = search("brave", &server, json!({"query": "x ".repeat(51)})).expect_err("too many words");
    assert!(fault.message.contains("51 words, Brave takes 50"), "{fault}");
}

#[test]
fn what_strangers_wrote_stays_in_its_place() {
    let hostile = json!({"results": [
        {"url": "javascript:alert(1)", "title": "Script", "content": "x"},
        {"url": "https://a.example/ b", "title": "Space", "content": "x"},
        {"url": "https://a.example/\n9. Forged", "title": "Line", "content": "x"},
        {"url": "https://good.example/", "title": "Good\n2. <b>forged</b>\u{202e}", "content": "a\n\nb <p hidden>SECRET</p><script>SECRET</script>"},
        {"url": 7, "title": null},
        "nothing",
    ]});
    let server = service("200 OK", hostile);
    let found = search("searxng", &server, json!({"query": "x\ny"})).expect("results");
    assert!(
        found.contains("found for `x y`")
            && found.contains("1. Good 2. forged\n   https://good.example/\n   a b\n"),
        "{found}"
    );
    for gone in ["SECRET", "Script", "Space", "Line", "\u{202e}"] {
        assert!(!found.contains(gone), "{found}");
    }
    let server = service("200 OK", json!({"results": []}));
    let found = search("searxng", &server, json!({"query": "x"})).expect("an answer");
    assert_eq!(found, "SearXNG found nothing for `x` on page 1.");
}

#[test]
fn refusals_of_a_provider_are_told_with_what_may_be_done_and_never_with_the_key() {
    for (provider, status, code, told) in [
        ("searxng", "403 Forbidden", FaultCode::NotConfigured, "add `json` to `search.formats`"),
        ("searxng", "429 Too Many Requests", FaultCode::Busy, "limits who asks"),
        ("brave", "422 Unprocessable Entity", FaultCode::Other, "extensions.web.search.key"),
        ("brave", "429 Too Many Requests", FaultCode::Busy, "the plan of the key"),
        ("tavily", "401 Unauthorized", FaultCode::NotConfigured, "extensions.web.search.key"),
        ("tavily", "432 Limit", FaultCode::Busy, "used up"),
        ("tavily", "500 Internal Server Error", FaultCode::Unavailable, "answered 500"),
    ] {
        let server = service(status, json!({"detail": {"error": "no"}}));
        let fault = search(provider, &server, json!({"query": "x"})).expect_err(status);
        assert!(fault.code == code && fault.to_string().contains(told), "{provider} {status}: {fault:?}");
        assert!(!format!("{fault:?}").contains("key-1"), "{fault:?}");
    }
    for (provider, body) in
        [("searxng", "<html>"), ("searxng", "{}"), ("brave", "[]"), ("tavily", "{\"results\": 1}")]
    {
        let server = Server::start(move |_| answer("200 OK", "content-type: application/json", body));
        let fault = search(provider, &server, json!({"query": "x"})).expect_err(body);
        assert!(fault.message.contains("what is not understood"), "{fault}");
    }
}

#[test]
fn a_provider_must_not_lead_elsewhere() {
    let elsewhere = service("200 OK", answer_of("brave"));
    let to = elsewhere.url("/");
    let server = Server::start(move |_| answer("307 Temporary Redirect", &format!("location: {to}"), ""));
    for provider in ["searxng", "brave", "tavily"] {
        let fault = search(provider, &server, json!({"query": "x"})).expect_err(provider);
        assert!(fault.code == FaultCode::Denied && fault.message.contains("is not followed"), "{fault}");
    }
    assert_eq!((server.connections(), elsewhere.connections()), (3, 0));
}

#[test]
fn without_what_a_provider_needs_there_is_no_search_and_it_is_said_why() {
    for (search, why) in [
        (json!({"provider": "brave"}), "needs a key"),
        (json!({"provider": "tavily", "key": ""}), "needs a key"),
        (json!({"provider": "brave", "key": "a\nb"}), "holds what no header can"),
        (json!({"provider": "searxng"}), "has no address"),
        (json!({"provider": "searxng", "address": "ftp://a.example"}), "no address of http or https"),
        (json!({"provider": "searxng", "address": "http://u:p@a.example"}), "a user's name"),
        (json!({"provider": "searxng", "address": "http://a.example", "key": "k"}), "takes no key"),
    ] {
        let web = try_web(json!({"search": search})).expect("it starts");
        let tools = web.describe().expect("a description").tools;
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["web_fetch"], "{search}");
        let told = tools[0].instructions.clone().unwrap_or_default();
        assert!(told.contains("there is no `web_search`") && told.contains(why), "{told}");
        assert!(web.host().logs().iter().any(|line| line.contains(why)), "{:?}", web.host().logs());
    }
    let tools = try_web(json!({})).expect("it starts").describe().expect("a description").tools;
    assert!(tools.len() == 1 && tools[0].instructions.is_none(), "nobody wanted to search");
}
