//! Applies a unified diff to one text.
//!
//! A hunk goes where its header says, or else to the one place after the hunk before it where its lines
//! stand. There is no fuzz: lines of context must be equal.

use drupe_extension_api::Fault;

struct Hunk<'a> {
    /// Line of the old text at which it begins, from 0.
    start: usize,
    old: Vec<&'a str>,
    new: Vec<&'a str>,
    /// The last line of the old or new side has no line end.
    open_old: bool,
    open_new: bool,
}

/// The text after the diff.
pub fn apply(text: &str, diff: &str) -> Result<String, Fault> {
    let hunks = parse(diff)?;
    // A text that ends its last line has an empty piece after it.
    let lines: Vec<&str> = text.split('\n').collect();
    let mut result: Vec<&str> = Vec::with_capacity(lines.len());
    let mut next = 0;
    for (number, hunk) in (1..).zip(&hunks) {
        let place = place(&lines, next, hunk, number)?;
        result.extend(&lines[next..place]);
        result.extend(&hunk.new);
        next = place + hunk.old.len();
    }
    result.extend(&lines[next..]);
    match hunks.last() {
        Some(last) if last.open_old && !last.open_new => result.push(""),
        Some(last) if last.open_new && !last.open_old && result.last() == Some(&"") => drop(result.pop()),
        _ => {}
    }
    Ok(result.join("\n"))
}

fn place(lines: &[&str], from: usize, hunk: &Hunk<'_>, number: usize) -> Result<usize, Fault> {
    let stands = |place: usize| lines.get(place..place + hunk.old.len()) == Some(hunk.old.as_slice());
    if hunk.start >= from && stands(hunk.start) {
        return Ok(hunk.start);
    }
    let mut places = (from..lines.len()).filter(|place| !hunk.old.is_empty() && stands(*place));
    match (places.next(), places.next()) {
        (Some(place), None) => Ok(place),
        (Some(_), Some(_)) => Err(Fault::invalid(format!("hunk {number} fits in more than one place"))
            .help("correct its line numbers, or add lines of context")),
        (None, _) => {
            Err(Fault::invalid(format!("hunk {number} does not fit: its old lines are not in the file"))
                .help("files_read shows what is"))
        }
    }
}

fn parse(diff: &str) -> Result<Vec<Hunk<'_>>, Fault> {
    let mut hunks: Vec<Hunk<'_>> = Vec::new();
    let mut lines = diff.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(header) = line.strip_prefix("@@ ") else {
            let preamble =
                ["diff ", "index ", "--- ", "+++ "].iter().any(|p| line.starts_with(p)) || line.is_empty();
            if preamble && (hunks.is_empty() || line.is_empty()) {
                continue;
            }
            return Err(Fault::invalid(format!("`{line}` is no line of a unified diff of one file")));
        };
        let (start, old_count, new_count) = read_header(header).ok_or_else(|| {
            Fault::invalid(format!("`{line}` is not the header of a hunk")).help("such as `@@ -3,4 +3,5 @@`")
        })?;
        let mut hunk = Hunk { start, old: Vec::new(), new: Vec::new(), open_old: false, open_new: false };
        while hunk.old.len() < old_count || hunk.new.len() < new_count {
            let line = lines.next().ok_or_else(|| {
                Fault::invalid(format!("hunk {} has fewer lines than its header says", hunks.len() + 1))
            })?;
            hunk.take(line)?;
            while lines.next_if(|next| next.starts_with('\\')).is_some() {
                hunk.open_old |= !line.starts_with('+');
                hunk.open_new |= !line.starts_with('-');
            }
        }
        if hunk.old.len() != old_count || hunk.new.len() != new_count {
            return Err(Fault::invalid(format!(
                "hunk {} has more lines than its header says",
                hunks.len() + 1
            )));
        }
        hunks.push(hunk);
    }
    if hunks.is_empty() {
        return Err(Fault::invalid("`patch` holds no hunk")
            .help("a hunk begins with a line such as `@@ -3,4 +3,5 @@`"));
    }
    Ok(hunks)
}

impl<'a> Hunk<'a> {
    fn take(&mut self, line: &'a str) -> Result<(), Fault> {
        match line.split_at_checked(1) {
            Some((" ", text)) => {
                self.old.push(text);
                self.new.push(text);
            }
            Some(("-", text)) => self.old.push(text),
            Some(("+", text)) => self.new.push(text),
            // Editors and models lose the blank of an empty line of context.
            None => {
                self.old.push("");
                self.new.push("");
            }
            Some(_) => {
                let message =
                    format!("`{line}` is no line of a hunk: it begins with neither ` `, `-` nor `+`");
                return Err(Fault::invalid(message));
            }
        }
        Ok(())
    }
}

/// Of `-3,4 +3,5 @@ …`: the first old line, from 0, and both numbers of lines.
fn read_header(header: &str) -> Option<(usize, usize, usize)> {
    let (old, rest) = header.strip_prefix('-')?.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let (start, old_count) = range(old)?;
    let (_, new_count) = range(new)?;
    // A hunk without old lines names the line after which it goes.
    let start = if old_count == 0 { start } else { start.checked_sub(1)? };
    Some((start, old_count, new_count))
}

fn range(text: &str) -> Option<(usize, usize)> {
    match text.split_once(',') {
        Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
        None => Some((text.parse().ok()?, 1)),
    }
}
