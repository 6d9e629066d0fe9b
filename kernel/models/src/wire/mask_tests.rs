//! Keys in every encoding, and in part.

use super::*;

const KEY: &str = "sk-proj-Ab1_Cd2/Ef3+Gh4=Ij5&Kl6<Mn7>Op8\"Qr9'St0-Uv1_Wx2";

fn each(f: impl Fn(u8) -> String) -> String {
    KEY.bytes().map(f).collect()
}

fn encode(text: &str, last: &[u8; 2]) -> String {
    base64(text.as_bytes(), *last).into_iter().map(char::from).collect()
}

#[test]
fn base64_is_what_others_write() {
    for (text, expected) in
        [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("??>>", "Pz8+Pg")]
    {
        assert_eq!(encode(text, b"+/"), expected, "{text}");
    }
}

/// The key in each encoding that something between here and the provider may write.
fn encodings() -> Vec<(&'static str, String)> {
    let special = |byte: u8| !byte.is_ascii_alphanumeric() && !b"-_.".contains(&byte);
    let percent = |byte: u8| format!("%{byte:02X}");
    let html = |byte: u8| match byte {
        b'&' => "&amp;".to_owned(),
        b'<' => "&lt;".to_owned(),
        b'>' => "&gt;".to_owned(),
        b'"' => "&quot;".to_owned(),
        b'\'' => "&#39;".to_owned(),
        other => char::from(other).to_string(),
    };
    let plain = |byte: u8| char::from(byte).to_string();
    vec![
        ("plain", KEY.to_owned()),
        ("base64", encode(KEY, b"+/")),
        ("base64 for addresses", encode(KEY, b"-_")),
        ("base64 of a header", encode(&format!("Bearer {KEY}"), b"+/")),
        ("base64 of a name and it", encode(&format!("me:{KEY}"), b"+/")),
        ("hex", each(|byte| format!("{byte:02x}"))),
        ("hex in capitals", each(|byte| format!("{byte:02X}"))),
        ("address", each(|byte| if special(byte) { percent(byte) } else { plain(byte) })),
        ("address, all of it", each(percent)),
        ("address, small", each(|byte| format!("%{byte:02x}"))),
        ("address in an address", each(percent).replace('%', "%25")),
        ("HTML", each(html)),
        ("HTML, decimal", each(|byte| format!("&#{byte};"))),
        ("HTML, hexadecimal", each(|byte| format!("&#x{byte:X};"))),
        ("JSON", serde_json::to_string(KEY).unwrap_or_default().trim_matches('"').to_owned()),
        ("JSON with slashes", KEY.replace('"', "\\\"").replace('/', "\\/")),
        ("JSON, all of it", each(|byte| format!("\\u{:04x}", u32::from(byte)))),
        ("HTML in JSON", each(html).replace('&', "\\u0026")),
    ]
}

/// Whether a run of the key, in this encoding, is left of what is shown.
fn leaks(shown: &str, encoded: &str) -> bool {
    // Of a longer text in base64 what stands before the key is no secret.
    let before = ["Bearer ", "me:"].map(|start| encode(start, b"+/"));
    let before = before.iter().find(|start| encoded.starts_with(&start[..start.len() - 1]));
    let encoded = &encoded[before.map_or(0, |start| start.len() + 2)..];
    let run = SHORTEST_RUN.min(encoded.len());
    let unit = encoded.len() / KEY.len();
    // An encoding that takes more characters shows no more of the key in as many, and where it was cut some stand for
    // nothing.
    let length = run * unit.max(1) + 4 * unit + 10;
    encoded
        .as_bytes()
        .windows(length.min(encoded.len()))
        .any(|part| shown.as_bytes().windows(part.len()).any(|other| other == part))
}

#[test]
fn a_key_is_hidden_in_every_encoding_wherever_the_text_begins_and_ends() {
    let mask = Mask::of([KEY].into_iter());
    for (name, encoded) in encodings() {
        let text = format!("401: wrong key {encoded} was given");
        let whole = mask.apply(&text);
        assert!(whole.contains(MASK) && whole.ends_with(" was given"), "{name}: {whole}");
        assert!(!leaks(&whole, &encoded), "{name}: {whole}");
        for cut in (0..=text.len()).filter(|cut| text.is_char_boundary(*cut)) {
            for part in [&text[..cut], &text[cut..]] {
                let shown = mask.apply(part);
                assert!(!leaks(&shown, &encoded), "{name}, cut at {cut}: {shown}");
            }
        }
    }
}

#[test]
fn text_without_a_key_stays_as_it_is() {
    let mask = Mask::of([KEY, "none", "sk-12345"].into_iter());
    for text in [
        "",
        "none of the models",
        "süß 🍒 &amp; %41 \\u0041 \\",
        "&#1114112; %zz &nosuch;",
        "sk-1234",
        "100 %",
    ] {
        assert_eq!(mask.apply(text), text);
    }
    assert_eq!(mask.apply("a sk-12345 b"), "a [key] b");
    assert_eq!(Mask::default().apply(KEY), KEY);
}
