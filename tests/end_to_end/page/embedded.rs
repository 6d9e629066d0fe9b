//! A chat in a page of another site, as its visitor meets it: the site and the daemon are two origins.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    sync::{Arc, Mutex},
};

use serde_json::json;

use super::{
    ENTER,
    browser::{Browser, DESK},
};
use crate::http::embeds::{SECRET, embedded, sign};

/// A site with one page, which has the script of a daemon, and with a path that signs its visitor. It serves until the test
/// process ends.
struct Site {
    origin: String,
    /// For whom it signs, and for how many seconds.
    visitor: Arc<Mutex<(String, i64)>>,
    /// Where its daemon is.
    door: Arc<Mutex<String>>,
}

fn site() -> Site {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let origin = format!("http://{}", listener.local_addr().expect("it has one"));
    let visitor = Arc::new(Mutex::new(("ann".to_owned(), 600)));
    let door = Arc::new(Mutex::new(String::new()));
    let (signs, daemon) = (Arc::clone(&visitor), Arc::clone(&door));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = BufReader::new(stream);
            let mut request = String::new();
            while stream.read_line(&mut request).is_ok_and(|read| read > 2) {}
            let (kind, body) = match request.split(' ').nth(1) {
                Some("/token") => {
                    let (name, seconds) = signs.lock().expect("no test panics with it").clone();
                    ("text/plain", sign(SECRET, "shop", &name, seconds))
                }
                _ => ("text/html", page(&daemon.lock().expect("no test panics with it"))),
            };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            let _ = stream.get_mut().write_all(answer.as_bytes());
        }
    });
    Site { origin, visitor, door }
}

fn page(door: &str) -> String {
    format!(
        "<!doctype html><html lang=en><title>A shop</title><h1>A shop</h1>\
         <script src=\"http://{door}/embed.js\" data-embed=shop data-visitor-url=/token \
         data-title=\"Ask <b>us</b>\" data-greeting=\"What are you looking for?\"></script>"
    )
}

#[test]
fn a_visitor_of_a_site_chats_in_its_page_and_finds_the_conversation_again() {
    let Some(browser) = Browser::open(DESK) else { return };
    let site = site();
    let (_server, daemon, door) = embedded(&site.origin);
    *site.door.lock().expect("it is free") = door.host();
    let open = || {
        browser.go(&site.origin);
        browser.until("document.querySelector('button[aria-expanded=false]')");
        browser.click("button");
        browser.frame(Some(0));
        browser.until("document.querySelector('#message')?.disabled === false");
    };
    open();
    browser.shows("#title", "Ask <b>us</b>");
    browser.shows(".greeting", "What are you looking for?");
    browser.write("#message", &format!("a *red* <img src=x onerror=owned=1>{ENTER}"));
    browser.shows(".turn .prose em", "red");
    browser.shows(".turn .asked", "<img src=x");
    let found = browser.eval("return [document.querySelectorAll('main img').length, typeof owned]");
    assert_eq!(found, json!([0, "undefined"]));
    let sessions = daemon.client().ask("sessions.list", json!({})).expect("it answers");
    assert_eq!(sessions[0]["id"], "token.shop:ann:chat", "{sessions}");

    // The same visitor comes again, and then another one.
    browser.frame(None);
    open();
    browser.shows(".turn .prose em", "red");
    browser.frame(None);
    *site.visitor.lock().expect("it is free") = ("bob".into(), 600);
    open();
    browser.shows(".greeting", "What are you looking for?");
    assert_eq!(browser.eval("return document.querySelectorAll('.turn').length"), 0);
    let log = browser.log();
    assert!(log.iter().all(|line| line.contains("favicon") || line.contains("404")), "{log:?}");
}

#[test]
fn a_token_that_has_run_out_is_asked_for_anew_and_no_other_site_shows_the_frame() {
    let Some(browser) = Browser::open(DESK) else { return };
    let site = site();
    let (_server, _daemon, door) = embedded(&site.origin);
    *site.door.lock().expect("it is free") = door.host();
    // It holds for some seconds more, as clocks may differ.
    *site.visitor.lock().expect("it is free") = ("ann".into(), -20);
    browser.go(&site.origin);
    browser.until("document.querySelector('button[aria-expanded=false]')");
    browser.click("button");
    browser.frame(Some(0));
    browser.until("document.querySelector('#message')?.disabled === false");
    *site.visitor.lock().expect("it is free") = ("ann".into(), 600);
    let refused = "fetch('/control/whoami', {method: 'POST', headers: {Authorization: 'Bearer a.b.c'}}).then(a => a.status)";
    assert_eq!(browser.eval(&format!("return {refused}")), 401);
    // What it bore is refused from now on.
    browser.eval("return import('/page/js/control.js').then(control => control.bear('a.b.c'))");
    browser.write("#message", &format!("still here{ENTER}"));
    browser.shows(".turn .prose", "still here");

    let other = self::site();
    *other.door.lock().expect("it is free") = door.host();
    browser.frame(None);
    browser.go(&other.origin);
    browser.until("document.querySelector('button[aria-expanded=false]')");
    browser.log();
    browser.click("button");
    let refused = crate::harness::until("the browser refuses", || {
        Some(browser.log().join("\n")).filter(|log| log.contains("frame-ancestors"))
    });
    assert!(refused.is_some(), "another site may not show it");
}
