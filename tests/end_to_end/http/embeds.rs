//! Chats in pages of other sites: whom a site signs, what they reach, and what their pages are given.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use super::{client::Door, door, token};
use crate::harness::{Daemon, model_server::ModelServer, unique};

/// What the site signs with.
pub const SECRET: &str = "a secret that has thirty-two bytes";

/// A daemon with an agent, and with a chat for the pages of a site. Its first start is for the token that the settings name.
pub fn embedded(origin: &str) -> (ModelServer, Daemon, Door) {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    daemon.write("extensions/haiku.md", "---\ndescription: Writes haikus.\n---\nYou write haikus.\n");
    daemon.run();
    let token = token(&daemon, &["shop", "--agents", "haiku", "--per-day-each", "3runs"]);
    let embed = json!({"token": token, "secret": SECRET, "origins": [origin], "per_minute": 5});
    daemon.says(&["stop"]);
    daemon.ended();
    daemon.variable("DRUPE_EXTENSIONS__HTTP__ENABLED", "true");
    let http = json!({"address": "127.0.0.1:0", "embeds": {"shop": embed}});
    daemon.write("drupe.yaml", &format!("{}extensions: {{http: {http}}}\n", server.config()));
    daemon.run();
    let door = door(&daemon);
    (server, daemon, door)
}

/// A token for a visitor, as a site signs it, for so many seconds.
pub fn sign(secret: &str, embed: &str, name: &str, seconds: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs();
    let claims = json!({"aud": embed, "sub": name, "exp": now.saturating_add_signed(seconds)});
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(json!({"alg": "HS256", "typ": "JWT"})), part(claims));
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key");
    mac.update(signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

#[test]
fn a_visitor_whom_a_site_has_signed_converses_in_sessions_of_their_own() {
    let (_server, _daemon, door) = embedded("https://shop.example.org");
    let [ann, bob] = ["ann", "bob"].map(|name| sign(SECRET, "shop", name, 60));
    let who = door.get(&ann, "/readyz").json();
    assert_eq!(
        (&who["sessions"], &who["may"]),
        (&json!("token.shop:ann"), &json!(["read", "submit", "direct"]))
    );
    let ask = |who: &str, method: &str, params: Value| door.post(who, &format!("/control/{method}"), &params);
    let write = |who: &str, session: &str| {
        let submit = json!({"session": session, "external_id": unique(), "text": "hello", "model": "none", "agent": "other"});
        let taken = ask(who, "turn.submit", submit);
        if taken.status != 200 {
            return taken;
        }
        ask(who, "turn.wait", json!({"turn": taken.json()["turn"], "brief": false}))
    };
    let said = write(&ann, "token.shop:ann:chat").json();
    assert_eq!(said["status"], "success", "{said}");
    let told: Vec<&String> = said.as_object().expect("a turn").keys().collect();
    assert_eq!(
        told,
        ["content", "input", "session", "status", "turn"],
        "how it came about is not for visitors"
    );
    let shown = ask(&ann, "sessions.show", json!({"id": "token.shop:ann:chat", "brief": false})).json();
    assert_eq!(shown["turns"][0], said);
    for (method, params) in [
        ("sessions.show", json!({"id": "token.shop:ann:chat"})),
        ("turn.wait", json!({"turn": said["turn"]})),
        ("turn.stop", json!({"turn": said["turn"]})),
    ] {
        let refused = ask(&bob, method, params);
        assert!([403, 404].contains(&refused.status), "{method}: {}", refused.body);
    }
    assert_eq!(door.get(&bob, "/events?session=token.shop:ann:chat").status, 403);
    for (method, path) in [
        ("POST", "/control/status"),
        ("POST", "/control/agents.template"),
        ("POST", "/control/items.show"),
        ("POST", "/control/trace.show"),
        ("POST", "/control/tokens.leave"),
        ("POST", "/mcp"),
        ("GET", "/mcp/ws"),
        ("GET", "/stdio/mcp"),
        ("POST", "/v1/messages"),
        ("POST", "/v1/agents/haiku/run"),
        ("GET", "/v1/sessions/token.shop:ann:chat"),
    ] {
        let bearer = format!("Bearer {ann}");
        assert_eq!(door.send(method, path, &[("authorization", &bearer)], "").status, 403, "{method} {path}");
    }
    // The other visitors of the site have their own share of a day.
    let ended: Vec<Value> = (0..3).map(|_| write(&ann, "token.shop:ann:chat").json()).collect();
    let ends: Vec<&Value> = ended.iter().map(|turn| &turn["status"]).collect();
    assert_eq!(ends, ["success", "success", "error"], "three runs a day: {ended:?}");
    assert_eq!((&ended[2]["class"], &ended[2]["content"]), (&json!("budget"), &json!("")));
    assert_eq!(write(&bob, "token.shop:bob:chat").json()["status"], "success");
    // A minute may begin meanwhile, and no other one.
    let mut last = (0..11).map(|_| write(&ann, "token.shop:ann:chat"));
    assert!(
        last.any(|said| said.status == 429 && said.body.contains("messages a minute")),
        "too many of them"
    );
}

#[test]
fn nobody_is_a_visitor_whom_no_site_has_signed_for_now() {
    let (_server, _daemon, door) = embedded("https://shop.example.org");
    for (wrong, why) in [
        (sign("another secret that is as long as it", "shop", "ann", 60), "signed"),
        (sign(SECRET, "other", "ann", 60), "signed"),
        (sign(SECRET, "shop", "ann", -60), "run out"),
        (sign(SECRET, "shop", "ann", 48 * 3600), "24 hours"),
    ] {
        let refused = door.get(&wrong, "/readyz");
        assert!(
            refused.status == 401 && refused.body.contains(why),
            "{why}: {} {}",
            refused.status,
            refused.body
        );
    }
}

#[test]
fn a_frame_is_shown_by_pages_of_its_site_alone_and_the_script_is_anybodys() {
    let (_server, _daemon, door) = embedded("https://shop.example.org");
    let frame = door.send("GET", "/embed/shop", &[], "");
    let policy = frame.header("content-security-policy").unwrap_or_default();
    assert!(frame.status == 200 && policy.contains("frame-ancestors https://shop.example.org;"), "{policy}");
    assert!(policy.contains("script-src 'self'") && policy.contains("default-src 'none'"), "{policy}");
    assert_eq!(door.send("GET", "/embed/other", &[], "").status, 404);
    let script = door.send("GET", "/embed.js", &[], "");
    assert_eq!((script.status, script.header("cross-origin-resource-policy")), (200, Some("cross-origin")));
    for needed in ["/page/embed/chat.js", "/page/js/stream.js", "/page/css/conversation.css"] {
        assert_eq!(door.send("GET", needed, &[], "").status, 200, "{needed}");
    }
    assert_eq!(door.send("GET", "/page/js/conversation.js", &[], "").status, 401);
    let evil = [("origin", "https://shop.example.org")];
    assert_eq!(
        door.send("GET", "/embed/shop", &evil, "").status,
        403,
        "a page that shows it does not read it"
    );
}
