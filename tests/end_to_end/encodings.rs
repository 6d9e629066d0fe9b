//! A secret as programs write it.

fn each(text: &str, f: impl Fn(u8) -> String) -> String {
    text.bytes().map(f).collect()
}

fn list(text: &str, between: &str, f: impl Fn(u8) -> String) -> String {
    text.bytes().map(f).collect::<Vec<_>>().join(between)
}

/// In digits of so many bits, of this alphabet.
fn digits(text: &str, bits: usize, alphabet: &str) -> String {
    let all: Vec<u8> = text.bytes().flat_map(|byte| (0..8).rev().map(move |n| byte >> n & 1)).collect();
    let digit =
        |part: &[u8]| (0..bits).fold(0, |n, at| n << 1 | usize::from(part.get(at).copied().unwrap_or(0)));
    all.chunks(bits).map(|part| char::from(alphabet.as_bytes()[digit(part)])).collect()
}

fn base64(text: &str) -> String {
    digits(text, 6, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
}

/// A secret in each encoding that programs write it in.
pub fn encodings(secret: &str) -> Vec<String> {
    let small = |byte: u8| format!("{byte:02x}");
    vec![
        secret.to_owned(),
        secret.to_uppercase(),
        base64(secret),
        base64(secret).replace('+', "-").replace('/', "_"),
        base64(&base64(secret)),
        digits(secret, 5, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"),
        each(secret, small),
        each(secret, |byte| format!("{byte:02X}")),
        each(secret, |byte| format!("{:x}{:X}", byte >> 4, byte & 15)),
        list(secret, " ", small),
        list(secret, ":", small),
        list(secret, "\n", small),
        list(secret, ", ", |byte| byte.to_string()),
        list(secret, ", ", |byte| format!("0x{byte:02x}")),
        list(secret, " ", |byte| format!("{byte:03o}")),
        each(secret, |byte| format!("%{byte:02X}")),
        each(secret, |byte| format!("%25{byte:02x}")),
        each(secret, |byte| format!("\\u{:04x}", u32::from(byte))),
        each(secret, |byte| format!("\\x{byte:02x}")),
        each(secret, |byte| format!("&#{byte};")),
        each(secret, |byte| format!("={byte:02X}")),
        list(secret, " ", |byte| char::from(byte).to_string()),
    ]
}
