use std::sync::Arc;

use drupe_extension_api::FaultCode;

use super::support::{Fake, Server, answer, fetcher, get, page};
use crate::{address, reach::AllowList};

const PUBLIC: &str = "93.184.216.34";

/// A public host whose path says where it leads to.
fn leading() -> (Server, Arc<Fake>) {
    let server = Server::start(|request| {
        let path = request.split(' ').nth(1).unwrap_or_default();
        match path.strip_prefix("/to/") {
            Some(location) => answer("302 Found", &format!("location: {location}"), ""),
            None => match path.strip_prefix("/chain/").and_then(|left| left.parse::<u32>().ok()) {
                Some(left) if left > 0 => {
                    answer("301 Moved Permanently", &format!("location: {}", left - 1), "")
                }
                _ => page("<title>There</title><p>You are there."),
            },
        }
    });
    let fake = Arc::<Fake>::default()
        .name("public.example", &[&[PUBLIC]])
        .name("evil.example", &[&["10.0.0.1"]])
        .place(&format!("{PUBLIC}:80"), &server);
    (server, fake)
}

#[test]
fn a_redirect_to_what_is_not_public_is_not_followed() {
    let (server, fake) = leading();
    let fetcher = fetcher(&fake, &[]);
    let hostile = [
        "http://127.0.0.1/",
        "http://127.0.0.1:22/",
        "//127.0.0.1/",
        "\\\\127.0.0.1\\",
        "/\\127.0.0.1/",
        "http://0x7f.1/",
        "http://2130706433/",
        "//0177.1/",
        "http://localhost/",
        "http://169.254.169.254/latest/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://evil.example/",
        "http://user@public.example/",
        "ftp://public.example/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "http://",
        "https://127.0.0.1/",
        "http://134744072/",
    ];
    for (number, location) in (1..).zip(hostile) {
        let fault = get(&fetcher, &format!("http://public.example/to/{location}")).err().expect(location);
        assert!(matches!(fault.code, FaultCode::Denied | FaultCode::Invalid), "{location}: {fault:?}");
        assert_eq!(server.connections(), number, "{location}");
    }
    assert!(fake.connected().iter().all(|to| *to == format!("{PUBLIC}:80")), "{:?}", fake.connected());
}

#[test]
fn five_redirects_are_followed_and_no_more_and_each_is_looked_up_anew() {
    let (server, fake) = leading();
    let fetcher = fetcher(&fake, &[]);
    let there = get(&fetcher, "http://public.example/chain/5#part").map_err(|fault| panic!("{fault}"));
    assert_eq!(
        there.map(|fetched| fetched.url.to_string()).ok().as_deref(),
        Some("http://public.example/chain/0")
    );
    assert_eq!((server.connections(), fake.resolved().len()), (6, 6));
    let fault = get(&fetcher, "http://public.example/chain/6").err().expect("six");
    assert!(fault.message.contains("more than 5 redirects"), "{fault}");
    assert_eq!(server.connections(), 12);
}

#[test]
fn nothing_leads_from_https_to_http() {
    let base = "https://public.example/a/".parse().expect("an address");
    let allowed = AllowList::default();
    let fault = address::join(&base, "http://public.example/", &allowed).expect_err("it is less safe");
    assert!(fault.message.contains("from https to http"), "{fault}");
    let next = address::join(&base, "../b?c#d", &allowed).map(|url| url.to_string());
    assert_eq!(next.as_deref(), Ok("https://public.example/b?c"));
}
