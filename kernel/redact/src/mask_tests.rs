//! Keys in every encoding, and in part.

use super::*;

const KEY: &str = "sk-proj-Ab1_Cd2/Ef3+Gh4=Ij5&Kl6<Mn7>Op8\"Qr9'St0-Uv1_Wx2";

fn each(f: impl Fn(u8) -> String) -> String {
    KEY.bytes().map(f).collect()
}

fn list(between: &str, f: impl Fn(u8) -> String) -> String {
    KEY.bytes().map(f).collect::<Vec<_>>().join(between)
}

/// In digits of so many bits, of this alphabet.
fn encode(text: &str, bits: usize, alphabet: &str) -> String {
    let all: Vec<u8> = text.bytes().flat_map(|byte| (0..8).rev().map(move |n| byte >> n & 1)).collect();
    let digit =
        |part: &[u8]| (0..bits).fold(0, |n, at| n << 1 | usize::from(part.get(at).copied().unwrap_or(0)));
    all.chunks(bits).map(|part| char::from(alphabet.as_bytes()[digit(part)])).collect()
}

const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

fn base64(text: &str, last: &str) -> String {
    encode(text, 6, &format!("{LETTERS}{}0123456789{last}", LETTERS.to_lowercase()))
}

fn base32(text: &str) -> String {
    encode(text, 5, &format!("{LETTERS}234567"))
}

/// A dump of so many bytes a line, with the place before and the text behind it.
fn dump(width: usize, pairs: usize) -> String {
    let line = |(n, line): (usize, &[u8])| {
        let groups =
            line.chunks(pairs).map(|part| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        let text = String::from_utf8_lossy(line);
        format!("{:08x}: {}  {text}\n", n * width, groups.collect::<Vec<_>>().join(" "))
    };
    KEY.as_bytes().chunks(width).enumerate().map(line).collect()
}

/// Lines of so many characters.
fn wrapped(text: &str, width: usize, between: &str) -> String {
    let lines: Vec<_> =
        text.as_bytes().chunks(width).map(|part| String::from_utf8_lossy(part).into_owned()).collect();
    lines.join(between)
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
    let small = |byte: u8| format!("{byte:02x}");
    vec![
        ("plain", KEY.to_owned()),
        ("capitals", KEY.to_uppercase()),
        ("wrapped", wrapped(KEY, 7, "\n")),
        ("in parts", wrapped(KEY, 9, "\" + \"")),
        ("spaced", list(" ", plain)),
        ("UTF-16", list("\0", plain)),
        ("base64", base64(KEY, "+/")),
        ("base64 for addresses", base64(KEY, "-_")),
        ("base64 of a header", base64(&format!("Bearer {KEY}"), "+/")),
        ("base64 of a name and it", base64(&format!("me:{KEY}"), "+/")),
        ("base64, wrapped", wrapped(&base64(KEY, "+/"), 20, "\r\n")),
        ("base64, wrapped in JSON", wrapped(&base64(KEY, "+/"), 20, "\\n")),
        ("base64 of base64", base64(&base64(KEY, "+/"), "+/")),
        ("base64 of base64 of base64", base64(&base64(&base64(KEY, "+/"), "+/"), "+/")),
        ("base64 of hex", base64(&each(small), "+/")),
        ("base64 in an address", base64(KEY, "+/").replace('+', "%2B").replace('/', "%2F")),
        ("base32", base32(KEY)),
        ("base32, small", base32(KEY).to_lowercase()),
        ("hex", each(small)),
        ("hex in capitals", each(|byte| format!("{byte:02X}"))),
        ("hex, mixed", each(|byte| format!("{:x}{:X}", byte >> 4, byte & 15))),
        ("hex of hex", each(small).bytes().map(small).collect()),
        ("hex with colons", list(":", small)),
        ("hex with blanks", list(" ", small)),
        ("hex, a line each", list("\n", small)),
        ("hex, wrapped in JSON", list("\\n", small)),
        ("hex as numbers", list(", ", |byte| format!("0x{byte:02X}"))),
        ("hex as a string", each(|byte| format!("\\x{byte:02x}"))),
        ("a dump of 16", dump(16, 2)),
        ("a dump of 8", dump(8, 1)),
        ("a dump of 4", dump(4, 1)),
        ("a list of bytes", format!("[{}]", list(", ", |byte| byte.to_string()))),
        ("a list of bytes, dense", list(",", |byte| byte.to_string())),
        ("octal numbers", list(" ", |byte| format!("{byte:03o}"))),
        ("octal escapes", each(|byte| format!("\\{byte:03o}"))),
        ("bits", list(" ", |byte| format!("{byte:08b}"))),
        ("address", each(|byte| if special(byte) { percent(byte) } else { plain(byte) })),
        ("address, all of it", each(percent)),
        ("address, small", each(|byte| format!("%{byte:02x}"))),
        ("address in an address", each(percent).replace('%', "%25")),
        ("address in an address in an address", each(percent).replace('%', "%2525")),
        ("mail", each(|byte| format!("={byte:02X}"))),
        ("HTML", each(html)),
        ("HTML, decimal", each(|byte| format!("&#{byte};"))),
        ("HTML, hexadecimal", each(|byte| format!("&#x{byte:X};"))),
        ("JSON", serde_json::to_string(KEY).unwrap_or_default().trim_matches('"').to_owned()),
        ("JSON with slashes", KEY.replace('"', "\\\"").replace('/', "\\/")),
        ("JSON, all of it", each(|byte| format!("\\u{:04x}", u32::from(byte)))),
        ("JSON in JSON", each(|byte| format!("\\\\u{:04X}", u32::from(byte)))),
        ("characters by number", each(|byte| format!("\\u{{{byte:x}}}"))),
        ("HTML in JSON", each(html).replace('&', "\\u0026")),
    ]
}

/// Whether a run of the key, in this encoding, is left of what is shown.
fn leaks(shown: &str, encoded: &str) -> bool {
    // Of a longer text in base64 what stands before the key is no secret.
    let before = ["Bearer ", "me:"].map(|start| base64(start, "+/"));
    let before = before.iter().find(|start| encoded.starts_with(&start[..start.len() - 1]));
    let encoded = &encoded[before.map_or(0, |start| start.len() + 2)..];
    let unit = encoded.len().div_ceil(KEY.len());
    // An encoding that takes more characters shows no more of the key in as many, and where it was cut some stand for
    // nothing.
    let length = (SHORTEST_RUN + 4) * unit + 10;
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
        assert!(whole.starts_with("401: wrong key "), "{name}: {whole}");
        assert!(!leaks(&whole, &encoded), "{name}: {whole}");
        // Each cut near the ends of the key, and some in the middle of it.
        let cuts =
            (0..=text.len()).filter(|at| text.is_char_boundary(*at) && (at % 5 == 0 || at % text.len() < 48));
        for cut in cuts {
            for part in [&text[..cut], &text[cut..]] {
                let shown = mask.apply(part);
                assert!(!leaks(&shown, &encoded), "{name}, cut at {cut}: {shown}");
            }
        }
    }
}

#[test]
fn text_without_a_key_stays_as_it_is() {
    let mask = Mask::of([KEY, "none", "sk-12345", "customer-success"].into_iter());
    for text in [
        "",
        "none of the models",
        "süß 🍒 &amp; %41 \\u0041 \\",
        "&#1114112; %zz &nosuch; \\u{} \\u{110000} =g 0x",
        "sk-1234",
        "100 %",
        "our customer success team",
        "7465 7374 696e 67 [116, 101, 115, 116, 105, 110, 103, 33, 33] dGhpcyBpcyBhIHRlc3Qgb2Ygbm90aGluZw==",
    ] {
        assert_eq!(mask.apply(text), text);
    }
    assert_eq!(mask.apply("a sk-12345 b"), "a [secret] b");
    assert_eq!(Mask::default().apply(KEY), KEY);
}

#[test]
fn a_key_in_a_long_text_is_hidden_wherever_its_parts_are_cut() {
    let mask = Mask::of([KEY].into_iter());
    for (name, encoded) in encodings() {
        let before = WINDOW - encoded.len() / 2;
        let text = format!("{}{encoded}{}", "ü ".repeat(before / 3), " ü".repeat(WINDOW / 2));
        let shown = mask.apply(&text);
        assert!(shown.contains(MASK) && !leaks(&shown, &encoded), "{name}");
    }
}

#[test]
fn the_work_is_bounded_and_what_is_too_much_of_it_is_not_shown() {
    let mask = Mask::of([KEY].into_iter());
    let nested = (0..12).fold("x".repeat(600), |text, _| base64(&text, "+/"));
    let prose = "The request was refused, since the model is busy. ".repeat(320);
    for (text, stays) in [(prose, true), (nested, false), ("%25".repeat(5_000), false)] {
        let text = &text[..text.len().min(16 << 10)];
        let shown = mask.apply(text);
        assert!(shown == text || !stays && shown.starts_with("(this"), "{}", &shown[..100]);
    }
}
