//! Parts of a text.

use drupe_extension_api::Fault;

/// Some lines of a text, `offset` counted from 1; says at the end what is left out.
pub fn excerpt(
    text: &str,
    offset: Option<usize>,
    limit: Option<usize>,
    max_bytes: usize,
) -> Result<String, Fault> {
    let first = offset.unwrap_or(1).max(1);
    let total = text.lines().count();
    if first > total.max(1) {
        return Err(Fault::invalid(format!("the file has {total} lines, there is no line {first}")));
    }
    let wanted = limit.unwrap_or(usize::MAX);
    let mut part = String::new();
    let mut taken = 0;
    for line in text.split_inclusive('\n').skip(first - 1).take(wanted) {
        if part.len() + line.len() > max_bytes {
            break;
        }
        part.push_str(line);
        taken += 1;
    }
    let last = first - 1 + taken;
    if taken == 0 && wanted > 0 && total > 0 {
        let message = format!("line {first} alone is longer than the {max_bytes} bytes that a call may give");
        return Err(Fault::invalid(message).help("files_search finds text in long lines"));
    }
    if last < total {
        if !part.ends_with('\n') && !part.is_empty() {
            part.push('\n');
        }
        part.push_str(&format!("[lines {first} to {last} of {total}; go on with offset {}]", last + 1));
    }
    Ok(part)
}

/// Replaces a text that stands exactly once.
pub fn replace_once(text: &str, old: &str, new: &str) -> Result<String, Fault> {
    if old.is_empty() {
        return Err(Fault::invalid("`old` is empty").help("files_write writes a whole file"));
    }
    let mut places = text.match_indices(old).map(|(place, _)| place);
    match (places.next(), places.count()) {
        (None, _) => Err(Fault::invalid("`old` is not in the file").help("files_read shows what is")),
        (Some(place), 0) => Ok([&text[..place], new, &text[place + old.len()..]].concat()),
        (Some(_), more) => Err(Fault::invalid(format!("`old` is in the file {} times", more + 1))
            .help("add lines around it until it stands once")),
    }
}

/// How many lines differ, for people.
pub fn difference(before: &str, after: &str) -> String {
    let (before, after): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let (head, tail) = alike(&before, &after);
    let (old, new) = (before.len() - head - tail, after.len() - head - tail);
    format!("{old} lines became {new}, from line {}", head + 1)
}

/// How many lines two texts have in common at the beginning, and how many of the others at the end.
pub fn alike(before: &[&str], after: &[&str]) -> (usize, usize) {
    let head = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let tail =
        before[head..].iter().rev().zip(after[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    (head, tail)
}
