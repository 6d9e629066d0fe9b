use super::{LONGEST, markdown};

/// What each text becomes.
fn check(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(markdown(text).trim_end(), *expected, "{text}");
    }
}

/// What must stand in no answer, whatever the text.
fn harmless(text: &str) -> String {
    let html = markdown(text);
    let lower = html.to_lowercase();
    let tags: Vec<&str> = lower.split('<').skip(1).filter_map(|rest| rest.split('>').next()).collect();
    for tag in &tags {
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        for bad in
            ["script", "img", "iframe", "style", "svg", "math", "object", "embed", "form", "input", "base"]
        {
            assert_ne!(name, bad, "{text}\n{html}");
        }
        for bad in [" on", "javascript:", "data:", "style=", "src=", " id="] {
            assert!(!tag.contains(bad), "{bad} in {text}\n{html}");
        }
    }
    html
}

#[test]
fn what_people_write_becomes_what_they_mean() {
    check(&[
        ("a *b* **c** `d` ~~e~~", "<p>a <em>b</em> <strong>c</strong> <code>d</code> <del>e</del></p>"),
        ("# One\n\n- a\n- b", "<h3>One</h3>\n<ul>\n<li>a</li>\n<li>b</li>\n</ul>"),
        ("3. c", "<ol start=\"3\">\n<li>c</li>\n</ol>"),
        (
            "```rust\nlet a = 1 < 2;\n```",
            "<pre><code class=\"language-rust\">let a = 1 &lt; 2;\n</code></pre>",
        ),
        ("- [x] done\n- [ ] open", "<ul>\n<li>☑ done</li>\n<li>☐ open</li>\n</ul>"),
        ("a<br>b", "<p>a<br>\nb</p>"),
    ]);
    let table = markdown("|a|b|\n|-|-:|\n|1|2|\n");
    assert!(table.contains("<th>b</th>") && table.contains("<td>2</td>"), "{table}");
}

#[test]
fn a_link_tells_nothing_of_the_page_and_leads_to_the_web_or_to_mail_alone() {
    let rel = "target=\"_blank\" rel=\"noopener noreferrer nofollow\"";
    check(&[
        ("[a](https://b.example/c)", &format!("<p><a href=\"https://b.example/c\" {rel}>a</a></p>")),
        (
            "<mailto:a@b.example>",
            &format!("<p><a href=\"mailto:a@b.example\" {rel}>mailto:a@b.example</a></p>"),
        ),
    ]);
    for target in [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "java\tscript:alert(1)",
        "&#106;avascript:alert(1)",
        "data:text/html,x",
        "vbscript:x",
        "file:///etc/passwd",
        "//b.example",
        "/control/stop",
        "#/s/x",
        "blob:x",
    ] {
        for text in [format!("[a]({target})"), format!("[a](<{target}>)"), format!("[a]\n\n[a]: <{target}>")]
        {
            assert!(!harmless(&text).contains("href"), "{text}");
        }
    }
}

#[test]
fn html_in_a_text_is_shown_and_not_obeyed() {
    check(&[
        ("a <script>alert(1)</script>", "<p>a &lt;script&gt;alert(1)&lt;/script&gt;</p>"),
        ("<b onclick=x>a</b>", "<p>&lt;b onclick=x&gt;a&lt;/b&gt;</p>"),
    ]);
    for text in [
        "<img src=x onerror=alert(1)>",
        "<svg><animate attributeName=href to=javascript:alert(1)>",
        "<math><annotation-xml encoding='text/html'><script>x</script>",
        "<div\n\n<style>*{display:none}</style>",
        "<!-- --><script>x",
        "<br onclick=alert(1)>",
        "```\"><script>alert(1)</script>\nx\n```",
        "[a](https://b.example \"\\\" onclick=alert(1)\")",
        "`</code><script>`",
    ] {
        harmless(text);
    }
}

#[test]
fn an_image_is_a_link_to_it_and_is_not_fetched() {
    let html = harmless("![a *b*](https://b.example/c.png)");
    assert!(
        html.contains(">a <em>b</em></a>") && html.contains("href=\"https://b.example/c.png\""),
        "{html}"
    );
    let html = harmless("[![a](https://b.example/c.png)](https://d.example)");
    assert!(html.contains("href=\"https://d.example\"") && !html.contains("c.png"), "{html}");
    assert!(!harmless("![a](data:image/png;base64,AAAA)").contains("href"));
}

#[test]
fn what_is_not_closed_ends_with_the_text() {
    for text in [
        "<div><p>",
        "**a",
        "`a",
        "```\na",
        "[a](",
        "![",
        "> - 1. *",
        "|a|\n|-",
        "<a href=\"",
        "&",
        "&#",
        "\0",
    ] {
        harmless(text);
    }
}

/// Nothing here measures time: what took its square would not end.
#[test]
fn a_megabyte_of_what_is_nested_ends() {
    for piece in ["> ", "*a_ "] {
        harmless(&(piece.repeat(1024 * 1024 / piece.len()) + "a"));
    }
    for piece in [
        ">",
        "*",
        "- ",
        "[",
        "<div>",
        "* ",
        "1. ",
        "**a",
        "![",
        "[a](",
        "`",
        "<",
        "<a ",
        "~~a ",
        "|a",
        "a***",
        "\\",
        "&lt;",
        "  ",
        "[a]: b\n",
        "_*",
        "\n> - ",
        "<!--",
        "<![CDATA[",
        "<?",
    ] {
        harmless(&(piece.repeat(64 * 1024 / piece.len()) + "a"));
    }
}

#[test]
fn what_is_nested_too_deeply_is_flat_and_its_text_stays() {
    let html = harmless(&format!("{}deep *down*", "> ".repeat(1000)));
    assert!(
        html.matches("<blockquote>").count() < 40 && html.contains("deep") && html.contains("down"),
        "{html}"
    );
    assert_eq!(html.matches("<blockquote>").count(), html.matches("</blockquote>").count());
}

#[test]
fn a_text_of_no_reasonable_length_is_shown_as_it_is() {
    let html = harmless(&"*a* ".repeat(LONGEST / 4 + 1));
    assert!(html.starts_with("<p>*a* ") && !html.contains("<em>"));
}
