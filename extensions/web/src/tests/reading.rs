use std::time::Instant;

use drupe_extension_api::FaultCode;
use serde_json::json;

use super::support::{Server, answer, fetch, page, web};

/// What the tool makes of a page.
fn read(body: &str) -> String {
    let body = body.to_owned();
    let server = Server::start(move |_| page(&body));
    fetch(&web(json!({})), &server.url("/a/page")).expect("a page")
}

/// What it makes of a body of another type.
fn read_as(kind: &str, body: &[u8]) -> Result<String, drupe_extension_api::Fault> {
    let (kind, body) = (format!("content-type: {kind}"), body.to_vec());
    let server = Server::start(move |_| answer("200 OK", &kind, &body));
    fetch(&web(json!({})), &server.url("/"))
}

#[test]
fn a_page_is_its_title_its_address_and_its_text_with_whole_links() {
    let paragraph =
        "The library opens at nine and closes at six, on Sundays at noon, and nobody is turned away. "
            .repeat(8);
    let text = read(&format!(
        "<html><head><title>The  library</title><style>p {{}}</style></head><body>
         <nav><a href=/home>Home</a> <a href=/shop>Shop</a></nav>
         <article><h1>Hours</h1><p>{paragraph}<p>See <a href='../hours?x=1#sunday'>all hours</a>,
         <a href='javascript:alert(1)'>a script</a> or write to <a href='mailto:a@b.example'>us</a>.
         <p>{paragraph}<img src=/track.gif alt='a reading room'><img src=/pixel.gif></article>
         <script>alert('no')</script></body></html>"
    ));
    let (head, body) = text.split_once("\n\n").expect("a head and a text");
    assert!(head.contains("Title: The library\nAddress: http://127.0.0.1:"), "{head}");
    assert!(head.contains("/a/page\nType: text/html,") && head.contains("\nPage: 1 of 1"), "{head}");
    assert!(body.contains("opens at nine") && body.contains("(picture: a reading room)"), "{body}");
    assert!(body.contains("/hours?x=1#sunday)") && body.contains("[all hours](http://127.0.0.1:"), "{body}");
    for gone in ["javascript:", "alert", "track.gif", "pixel.gif", "Shop"] {
        assert!(!body.contains(gone), "{gone} is in {body}");
    }
}

#[test]
fn what_a_reader_does_not_see_is_left_out_and_that_is_told() {
    let hidden = [
        "<p hidden>SECRET</p>",
        "<p style='display:none'>SECRET</p>",
        "<p style='color:red; DISPLAY : NONE !important'>SECRET</p>",
        "<p style='visibility:hidden'>SECRET</p>",
        "<p style='opacity:0'>SECRET</p>",
        "<p style='font-size:0px'>SECRET</p>",
        "<p style='position:absolute;left:-9999px'>SECRET</p>",
        "<p style='text-indent:-9999em'>SECRET</p>",
        "<!-- SECRET -->",
        "<template>SECRET</template>",
        "<script>SECRET</script>",
        "<style>SECRET</style>",
        "<noscript>SECRET</noscript>",
        "<svg><text>SECRET</text></svg>",
        "<input type=hidden value=SECRET>",
        "<a href='data:text/plain,SECRET'>x</a>",
        "<a href='https://a.example/' title=SECRET>x</a>",
        "<img src=SECRET>",
        "<iframe srcdoc=SECRET></iframe>",
        "<p data-text=SECRET>x</p>",
    ];
    for piece in hidden {
        let text = read(&format!("<title>T</title><p>Shown before.</p>{piece}<p>Shown after.</p>"));
        assert!(!text.contains("SECRET"), "{piece}: {text}");
        assert!(text.contains("Shown before.") && text.contains("Shown after."), "{piece}: {text}");
    }
    let text = read("<p>Shown.<p hidden>a<p style='display:none'>b");
    assert!(text.contains("Note: 2 elements that are not shown were left out"), "{text}");
    let text = read("<p>in\u{200b}visi\u{202e}ble");
    assert!(
        text.contains("\n\ninvisible") && text.contains("Note: 2 characters that show nothing"),
        "{text}"
    );
    let text = read("<title>A\u{202e}\nPage: 9 of 9</title><p>x");
    assert!(text.contains("Title: A Page: 9 of 9\n"), "{text}");
}

#[test]
fn pages_that_are_made_to_cost_much_end_soon() {
    let pages = [
        ("deep", "<div>".repeat(4_000)),
        ("deep lists", "<ul><li>".repeat(2_000)),
        ("deep tables", "<table><tr><td>".repeat(5_000)),
        ("formatting", "<p><b><i><u><s>".repeat(2_000)),
        ("fonts", format!("{}{}", "<font a=1><font a=2><font a=3>".repeat(2_000), "<p>x".repeat(5_000))),
        ("links", "<a href=x>x".repeat(5_000)),
        ("attributes", format!("<p {}>x", (0..5_000).map(|n| format!("a{n} ")).collect::<String>())),
        ("many", "<p>x</p>".repeat(70_000)),
        ("comments", "<!--x-->".repeat(50_000)),
        ("entities", "&lt;&amp;&notanentity;".repeat(20_000)),
        ("one long line", "x".repeat(2 << 20)),
        ("closing", "</p></div></br>".repeat(20_000)),
        ("selects", "<select><option>x".repeat(10_000)),
        ("tables in nothing", "<table><b>x".repeat(2_000)),
        ("templates", "<template>".repeat(20_000)),
        ("quotes", "<a href=\"".repeat(60_000)),
    ];
    let bodies: std::collections::HashMap<String, String> =
        pages.iter().map(|(name, body)| (name.replace(' ', "-"), body.clone())).collect();
    let server = Server::start(move |request| {
        let path = request.split(' ').nth(1).unwrap_or_default();
        page(&bodies[&path[1..]])
    });
    let web = web(json!({}));
    for (name, _) in pages {
        let began = Instant::now();
        let outcome = fetch(&web, &server.url(&format!("/{}", name.replace(' ', "-"))));
        let took = began.elapsed();
        if let Err(fault) = outcome {
            assert!(
                fault.code == FaultCode::Other && fault.message.contains("was not read"),
                "{name}: {fault}"
            );
        }
        // The bound is eight seconds, looked at between steps.
        assert!(took.as_secs() < 20, "{name} took {took:?}");
    }
}

#[test]
fn encodings_are_those_that_are_said_marked_or_likely() {
    for (kind, body, expected) in [
        ("text/plain; charset=iso-8859-1", b"gr\xfcn".as_slice(), "grün"),
        ("text/plain", b"gr\xfcn", "grün"),
        ("text/plain", "grün".as_bytes(), "grün"),
        ("text/plain; charset=latin1", b"\xef\xbb\xbfgr\xc3\xbcn", "grün"),
        ("text/html", b"<meta charset=windows-1251><p>\xec\xe8\xf0", "мир"),
        ("text/html; charset=shift_jis", b"<p>\x93\xfa\x96{", "日本"),
        ("text/plain; charset=utf-16le", b"a\0b\0", "ab"),
        ("text/plain; charset=nonsense", b"plain", "plain"),
    ] {
        let text = read_as(kind, body).expect(kind);
        assert!(text.ends_with(&format!("\n\n{expected}")), "{kind}: {text}");
    }
}

#[test]
fn json_plain_text_and_feeds_are_read_and_other_types_are_refused_by_name() {
    for (kind, body, expected) in [
        ("application/json", r#"{"a": [1, 2]}"#, r#"{"a": [1, 2]}"#),
        ("application/problem+json", "{}", "{}"),
        ("text/markdown", "# Title\n\n* one", "# Title\n\n* one"),
        ("text/csv", "a,b\n1,2", "a,b\n1,2"),
        ("application/octet-stream", "only text", "only text"),
        ("application/xml", "<note><to>you</to></note>", "<note><to>you</to></note>"),
    ] {
        let text = read_as(kind, body.as_bytes()).expect(kind);
        assert!(text.ends_with(&format!("\n\n{expected}")), "{kind}: {text}");
    }
    let rss = "<?xml version='1.0'?><rss version='2.0'><channel><title>News</title><link>http://n.example/</link>
        <description>About &lt;b&gt;things&lt;/b&gt;.</description>
        <item><title>First &amp; best</title><link>http://n.example/1</link><pubDate>Tue, 24 Nov 2026 08:00:00 GMT</pubDate>
        <description>&lt;p&gt;What &lt;i&gt;happened&lt;/i&gt;.&lt;/p&gt;&lt;p hidden&gt;SECRET&lt;/p&gt;</description></item>
        <item><title>Second</title></item></channel></rss>";
    let atom = "<feed xmlns='http://www.w3.org/2005/Atom'><title>News</title><id>x</id><updated>2026-11-24T08:00:00Z</updated>
        <entry><id>1</id><title>First &amp; best</title><link href='http://n.example/1'/>
        <updated>2026-11-24T08:00:00Z</updated><summary>What happened.</summary></entry></feed>";
    for (kind, body) in [
        ("application/rss+xml", rss),
        ("text/xml", rss),
        ("application/octet-stream", rss),
        ("application/atom+xml", atom),
    ] {
        let text = read_as(kind, body.as_bytes()).expect(kind);
        let entry = "- [First & best](http://n.example/1), 2026-11-24\n  What happened.";
        assert!(
            text.contains("Title: News\n") && text.contains(entry) && !text.contains("SECRET"),
            "{kind}: {text}"
        );
    }
    for (kind, body) in [
        ("application/octet-stream", b"\0\x01\x02".as_slice()),
        ("image/png", b"x"),
        ("image/svg+xml", b"<svg/>"),
        ("video/mp4", b"x"),
        ("application/zip", b"PK"),
        ("application/rss+xml", b"no feed"),
    ] {
        let fault = read_as(kind, body).expect_err(kind);
        let named = fault.message.contains(kind)
            || fault.message.contains("no text")
            || fault.message.contains("no feed");
        assert!(named, "{kind}: {fault}");
    }
}

#[test]
fn a_feed_that_is_made_to_cost_much_is_bounded() {
    let bomb = format!(
        "<?xml version='1.0'?><!DOCTYPE x [<!ENTITY a '{}'><!ENTITY b '{}'><!ENTITY c '{}'>]><rss version='2.0'><channel><title>&c;</title></channel></rss>",
        "x".repeat(100),
        "&a;".repeat(100),
        "&b;".repeat(100)
    );
    let deep = format!("<rss version='2.0'><channel>{}", "<item>".repeat(100_000));
    let many = format!(
        "<rss version='2.0'><channel><title>T</title>{}</channel></rss>",
        "<item><title>x</title></item>".repeat(20_000)
    );
    for (name, body) in [("bomb", bomb), ("deep", deep), ("many", many)] {
        let began = Instant::now();
        let outcome = read_as("application/rss+xml", body.as_bytes());
        assert!(outcome.is_err() || outcome.is_ok_and(|text| text.len() < 12 << 10), "{name}");
        assert!(began.elapsed().as_secs() < 20, "{name}");
    }
}
