//! What addresses, HTML, JSON and mail write for a character, taken back to it.

use super::Read;

/// The longest way of writing one character that is understood.
const LONGEST: usize = 12;
/// Characters in a row that make bytes look like text: no run of a secret is shorter in any encoding.
const TEXT: usize = 8;

/// What of it is text, and not just what bytes look like that were read in a wrong way.
pub(super) fn texts(bytes: &[Read]) -> Vec<&[Read]> {
    let is_text = |(byte, ..): &Read| (b' '..=b'~').contains(byte) || byte.is_ascii_whitespace();
    bytes.split(|read| !is_text(read)).filter(|part| part.len() >= TEXT).collect()
}

/// With all that is written as something else taken back to it; none where there is nothing of that.
pub(super) fn escapes(bytes: &[Read]) -> Option<Vec<Read>> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if !b"%\\&=".contains(&bytes[at].0) {
            out.push(bytes[at]);
            at += 1;
            continue;
        }
        let rest: Vec<u8> = bytes[at..].iter().take(LONGEST).map(|(byte, ..)| *byte).collect();
        let Some((character, length)) = one(&rest) else {
            out.push(bytes[at]);
            at += 1;
            continue;
        };
        let (from, to) = (bytes[at].1, bytes[at + length - 1].2);
        out.extend(character.to_string().bytes().map(|byte| (byte, from, to)));
        at += length;
    }
    (out.len() != bytes.len()).then_some(out)
}

fn number(digits: &[u8], radix: u32) -> Option<char> {
    let digits = std::str::from_utf8(digits).ok().filter(|d| !d.is_empty() && !d.starts_with('+'))?;
    char::from_u32(u32::from_str_radix(digits, radix).ok()?)
}

/// The character that an encoding begins with here, and how long it is.
fn one(rest: &[u8]) -> Option<(char, usize)> {
    match rest {
        [b'%', b'u', a, b, c, d, ..] => Some((number(&[*a, *b, *c, *d], 16)?, 6)),
        [b'%' | b'=', a, b, ..] => Some((number(&[*a, *b], 16)?, 3)),
        [b'\\', b'u', b'{', digits @ ..] => {
            let end = digits.iter().position(|byte| *byte == b'}')?;
            Some((number(&digits[..end], 16)?, end + 4))
        }
        [b'\\', b'u', a, b, c, d, ..] => Some((number(&[*a, *b, *c, *d], 16)?, 6)),
        [b'\\', b'U', digits @ ..] if digits.len() >= 8 => Some((number(&digits[..8], 16)?, 10)),
        [b'\\', b'x', a, b, ..] => Some((number(&[*a, *b], 16)?, 4)),
        [b'\\', a @ b'0'..=b'3', b, c, ..] => Some((number(&[*a, *b, *c], 8)?, 4)),
        [b'\\', c @ (b'"' | b'\\' | b'/' | b'\''), ..] => Some((char::from(*c), 2)),
        [b'\\', b'n' | b'r' | b't', ..] => Some((' ', 2)),
        [b'&', ..] => {
            let end = rest.iter().position(|byte| *byte == b';')?;
            Some((named(&rest[1..end])?, end + 1))
        }
        _ => None,
    }
}

fn named(name: &[u8]) -> Option<char> {
    let character = match name {
        [b'#', b'x' | b'X', digits @ ..] => return number(digits, 16),
        [b'#', digits @ ..] => return number(digits, 10),
        b"amp" => '&',
        b"lt" => '<',
        b"gt" => '>',
        b"quot" => '"',
        b"apos" => '\'',
        b"sol" => '/',
        b"plus" => '+',
        b"equals" => '=',
        b"lowbar" => '_',
        b"hyphen" | b"dash" => '-',
        b"period" => '.',
        b"colon" => ':',
        _ => return None,
    };
    Some(character)
}
