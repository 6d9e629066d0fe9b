//! Bytes that are written in digits: two hexadecimal ones each, base32 and base64 at each place that they can have in a
//! longer text, and lists of numbers. Whatever stands between digits without being one is passed over.

use super::Read;

/// Digits in a row from which on they may be a secret: those of the shortest run.
const LEAST_BYTES: usize = 8;

/// One way of writing bytes in digits of `bits` each.
struct Way {
    bits: u32,
    /// Places among its digits at which a byte may begin.
    places: usize,
    /// The number that a character stands for.
    digit: fn(u8) -> Option<u32>,
    /// Whether it may stand among them.
    between: fn(u8) -> bool,
}

const WAYS: [Way; 3] = [
    Way {
        bits: 4,
        places: 2,
        digit: hexadecimal,
        between: |byte| !byte.is_ascii_alphanumeric() || matches!(byte, b'x' | b'X'),
    },
    Way { bits: 5, places: 8, digit: base32, between: is_filler },
    Way { bits: 6, places: 4, digit: base64, between: is_filler },
];

/// What wraps long lines and quotes their parts.
fn is_filler(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'' | b'=' | b',' | b'\\' | 0)
}

fn hexadecimal(byte: u8) -> Option<u32> {
    char::from(byte).to_digit(16)
}

fn base32(byte: u8) -> Option<u32> {
    match byte {
        b'A'..=b'Z' => Some(u32::from(byte - b'A')),
        b'a'..=b'z' => Some(u32::from(byte - b'a')),
        b'2'..=b'7' => Some(u32::from(byte - b'2') + 26),
        _ => None,
    }
}

fn base64(byte: u8) -> Option<u32> {
    match byte {
        b'A'..=b'Z' => Some(u32::from(byte - b'A')),
        b'a'..=b'z' => Some(u32::from(byte - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(byte - b'0') + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    }
}

/// Adds to `found` all that may be written so in `bytes`.
pub(super) fn read(bytes: &[Read], found: &mut Vec<Vec<Read>>) {
    for way in &WAYS {
        let mut digits: Vec<(u32, u32, u32)> = Vec::new();
        for (at, (byte, from, to)) in bytes.iter().enumerate() {
            match (way.digit)(*byte) {
                // The sign of a hexadecimal number is none of its digits.
                Some(_) if way.bits == 4 && is_sign(bytes, at) => {}
                Some(digit) => digits.push((digit, *from, *to)),
                None if (way.between)(*byte) => {}
                None => way.take(&mut digits, found),
            }
        }
        way.take(&mut digits, found);
    }
    for radix in [2, 8, 10] {
        numbers(bytes, radix, found);
    }
    dump(bytes, found);
}

/// Whether it is the `0` of a `0x`.
fn is_sign(bytes: &[Read], at: usize) -> bool {
    bytes[at].0 == b'0' && matches!(bytes.get(at + 1), Some((b'x' | b'X', ..)))
}

impl Way {
    /// Reads the digits from each place where a byte may begin, and forgets them.
    fn take(&self, digits: &mut Vec<(u32, u32, u32)>, found: &mut Vec<Vec<Read>>) {
        if digits.len() * self.bits as usize >= LEAST_BYTES * 8 {
            found.extend((0..self.places).map(|place| self.from(&digits[place..])));
        }
        digits.clear();
    }

    fn from(&self, digits: &[(u32, u32, u32)]) -> Vec<Read> {
        let mut out = Vec::with_capacity(digits.len() * self.bits as usize / 8);
        let (mut bits, mut held, mut from) = (0_u32, 0, 0);
        for (digit, begins, to) in digits {
            if held == 0 {
                from = *begins;
            }
            bits = bits << self.bits | digit;
            held += self.bits;
            if held >= 8 {
                held -= 8;
                out.push((((bits >> held) & 255) as u8, from, *to));
                // The rest of this digit is the next byte's.
                from = *begins;
            }
        }
        out
    }
}

/// Lists of numbers: what is neither a digit nor a letter is between them.
fn numbers(bytes: &[Read], radix: u32, found: &mut Vec<Vec<Read>>) {
    let mut list: Vec<Read> = Vec::new();
    let mut take = |list: &mut Vec<Read>| {
        let list = std::mem::take(list);
        if list.len() >= LEAST_BYTES {
            found.push(list);
        }
    };
    let mut at = 0;
    while at < bytes.len() {
        let length = bytes[at..].iter().take_while(|(byte, ..)| byte.is_ascii_alphanumeric()).count();
        if length == 0 {
            at += 1;
            continue;
        }
        let word: String = bytes[at..at + length].iter().map(|(byte, ..)| char::from(*byte)).collect();
        let digits = word.trim_start_matches("0o").trim_start_matches("0b");
        match u8::from_str_radix(digits, radix) {
            Ok(byte) => list.push((byte, bytes[at].1, bytes[at + length - 1].2)),
            Err(_) => take(&mut list),
        }
        at += length;
    }
    take(&mut list);
}

/// The bytes of a dump, whose lines begin with a place and may end with the bytes as text; and that text.
fn dump(bytes: &[Read], found: &mut Vec<Vec<Read>>) {
    let (mut hex, mut text): (Vec<(u32, u32, u32)>, Vec<Read>) = (Vec::new(), Vec::new());
    let lines = bytes.split(|(byte, ..)| matches!(byte, b'\n' | b'\r'));
    for line in lines {
        let place = line.iter().take_while(|(byte, ..)| byte.is_ascii_hexdigit()).count();
        let behind = line.get(place).map(|(byte, ..)| *byte);
        if !(4..=16).contains(&place) || !matches!(behind, Some(b':' | b' ' | b'\t')) {
            continue;
        }
        let mut rest = &line[place + 1..];
        loop {
            let blank = rest.iter().take_while(|(byte, ..)| byte.is_ascii_whitespace()).count();
            let word = rest[blank..].iter().take_while(|(byte, ..)| byte.is_ascii_hexdigit()).count();
            let ends = rest.get(blank + word).is_none_or(|(byte, ..)| byte.is_ascii_whitespace());
            // Two blanks and no pair of digits: here the text begins.
            if !ends || word == 0 || word % 2 == 1 {
                break;
            }
            let digits = rest[blank..blank + word].iter();
            hex.extend(digits.filter_map(|(byte, from, to)| Some((hexadecimal(*byte)?, *from, *to))));
            rest = &rest[blank + word..];
        }
        let blank = rest.iter().take_while(|(byte, ..)| matches!(byte, b' ' | b'\t' | b'|')).count();
        text.extend(rest[blank..].iter().filter(|(byte, ..)| *byte != b'|'));
    }
    WAYS[0].take(&mut hex, found);
    if text.len() >= LEAST_BYTES {
        found.push(text);
    }
}
