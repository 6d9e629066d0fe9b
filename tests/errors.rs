//! `docs/reference/errors.md` against the sources: each error has its row, and each row is an error of the sources.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use super::{root, sources};

/// The enumerations whose variants have a table, by what stands last above it.
const WORDS: &[(&str, &str, &str)] = &[
    ("## Requests", "extension-api/src/fault.rs", "FaultCode"),
    ("## Runs and turns", "extension-api/src/agent.rs", "ResponseStatus"),
    ("Class of a failed run, in traces, events and answers:", "extension-api/src/agent.rs", "FailureClass"),
    ("## Calls of tools", "extension-api/src/message.rs", "ToolStatus"),
    (
        "Times of a schedule, as `drupe schedule show ID` lists them:",
        "extension-api/src/control/schedules.rs",
        "ScheduleRunState",
    ),
    (
        "What waits for your answer, as `drupe approvals` lists it:",
        "extension-api/src/control/extensions.rs",
        "ApprovalState",
    ),
    ("## Extensions", "extension-api/src/control/extensions.rs", "ExtensionState"),
];

/// What stands before the text of a finding of `drupe doctor`.
const FINDINGS: &[&str] = &["Finding::fault(", "Finding::warning(", "Finding::remark(", "let message ="];

struct Table {
    above: String,
    /// The first word of the row of headings: `message` for those that are found by their words.
    of: String,
    cells: Vec<String>,
}

fn tables() -> Vec<Table> {
    let page = fs::read_to_string(root().join("docs/reference/errors.md")).expect("the page of errors");
    let mut tables: Vec<Table> = Vec::new();
    let (mut above, mut before) = ("", "");
    for line in page.lines() {
        let cell = line.strip_prefix("| ").and_then(|row| row.split(" | ").next());
        if line.starts_with("|---") {
            let of = before.trim_start_matches("| ").split(' ').next().unwrap_or_default().to_owned();
            tables.push(Table { above: above.to_owned(), of, cells: Vec::new() });
        } else if let (Some(cell), Some(table)) =
            (cell, tables.last_mut().filter(|_| before.starts_with('|')))
        {
            table.cells.push(cell.to_owned());
        } else if line.starts_with('#') || line.ends_with(':') {
            above = line;
        }
        before = line;
    }
    tables
}

/// The words between backquotes.
fn quoted<'a>(cells: impl IntoIterator<Item = &'a String>) -> BTreeSet<String> {
    cells.into_iter().flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// The sources without tests and comments, a text that goes over several lines as one.
pub fn code() -> BTreeMap<String, String> {
    let squeezed = |text: &str| {
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
        let lines = code.lines().map(str::trim_start).filter(|line| !line.starts_with("//"));
        lines.map(|line| line.strip_suffix('\\').map_or_else(|| format!("{line}\n"), str::to_owned)).collect()
    };
    sources().iter().map(|(path, text)| (path.clone(), squeezed(text))).collect()
}

/// With `…` for each part that is filled in, as the page writes it.
pub fn shown(text: &str) -> String {
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        shown.push_str(before);
        // A brace that is shown is written as two; `${{{name}}}` shows `${…}`.
        if from.starts_with("{{{") {
            shown.push('{');
            rest = &from[2..];
            continue;
        }
        let end = from.find(['}', '"', '\n']).filter(|end| from.as_bytes()[*end] == b'}');
        shown.push(if end.is_some() { '…' } else { '{' });
        rest = &from[end.unwrap_or(0) + 1..];
        while end.is_some() && rest.starts_with("}}") {
            shown.push('}');
            rest = &rest[2..];
        }
    }
    (shown + rest).replace("\\\"", "\"").replace("……", "…")
}

/// The first literal behind each of `markers` that is `wanted`, which is given what stands before it and what it says; by
/// where it ends. None is looked for beyond the end of a statement.
pub fn texts<'a>(
    code: &'a str,
    markers: &[&str],
    wanted: fn(&str, &str) -> bool,
) -> BTreeMap<usize, &'a str> {
    let found = |begin: usize| {
        let mut from = begin;
        loop {
            let (before, rest) = code[from..].split_once('"')?;
            let mut ends = rest.match_indices('"').map(|(end, _)| end);
            let end = ends.find(|end| !rest[..*end].ends_with('\\'))?;
            let text = &rest[..end];
            let end = from + before.len() + end + 2;
            if before.contains([';', '{', '}']) || before.contains(".help(") || before.contains(".fix(") {
                return None;
            }
            if wanted(before, text) {
                return Some((end, text));
            }
            from = end;
        }
    };
    let of =
        |marker: &&str| code.match_indices(*marker).map(|(at, marker)| at + marker.len()).collect::<Vec<_>>();
    markers.iter().flat_map(of).filter_map(found).collect()
}

/// How many words there are beside what is filled in.
pub fn words(text: &str) -> usize {
    shown(text).split(' ').filter(|word| word.contains(char::is_alphabetic)).count()
}

/// One word is nothing to search for.
fn is_message(_before: &str, text: &str) -> bool {
    words(text) > 1
}

fn is_first(before: &str, _text: &str) -> bool {
    before.trim().is_empty()
}

/// Whether a row is about this message: it has all of it, or its beginning up to a break in the sentence.
fn is_about(cell: &str, message: &str) -> bool {
    let (cell, message) = (cell.trim_start_matches('…'), message.trim().trim_start_matches('…'));
    let breaks = |rest: &str| rest.is_empty() || rest.starts_with([';', ':', ',']) || rest.starts_with(" (");
    message.strip_prefix(cell).is_some_and(breaks)
}

fn compare(written: &BTreeSet<String>, expected: &BTreeSet<String>, what: &str) {
    let (missing, stale): (Vec<_>, Vec<_>) =
        (expected.difference(written).collect(), written.difference(expected).collect());
    let differs = !missing.is_empty() || !stale.is_empty();
    assert!(!differs, "docs/reference/errors.md, {what}: it lacks {missing:?}, and nothing has {stale:?}");
}

#[test]
fn each_code_of_a_diagnostic_has_a_row_and_each_row_is_a_code() {
    let (mut errors, mut warnings) = (BTreeSet::new(), BTreeSet::new());
    for (_, code) in code().iter().filter(|(path, _)| path.starts_with("config/src/")) {
        errors.extend(texts(code, &[".error(", ".file_error("], is_first).into_values().map(str::to_owned));
        warnings.extend(texts(code, &[".warning("], is_first).into_values().map(str::to_owned));
        // Some are chosen first: `let code = match …`, `let (code, …) = match …`.
        for (at, _) in code.match_indices(".error(code,") {
            let from =
                code[..at].rfind("let code =").max(code[..at].rfind("let (code,")).expect("it is chosen");
            let is_code =
                |word: &&str| word.contains('_') && word.chars().all(|c| c.is_lowercase() || c == '_');
            errors.extend(code[from..at].split('"').skip(1).step_by(2).filter(is_code).map(str::to_owned));
        }
    }
    let expected: BTreeSet<String> = errors.iter().map(|code| format!("`{code}`")).collect();
    let warned = warnings.difference(&errors).map(|code| format!("`{code}` ⚠"));
    let table =
        tables().into_iter().find(|table| table.above == "## Files that you write").expect("the table");
    let written: BTreeSet<String> = table.cells.into_iter().collect();
    compare(&written, &expected.into_iter().chain(warned).collect(), "codes; a warning has the sign ⚠");
}

#[test]
fn each_code_and_state_has_a_row_and_each_row_is_one() {
    let (tables, code) = (tables(), code());
    for (above, path, name) in WORDS {
        let (_, body) = code[*path].split_once(&format!("pub enum {name} {{\n")).expect("the enumeration");
        let variants = body.lines().take_while(|line| *line != "}").filter(|line| !line.starts_with('#'));
        let words = variants.map(|line| line.trim_end_matches(',')).map(|variant| {
            let snake = |(at, c): (usize, char)| {
                let gap = (at > 0 && c.is_uppercase()).then_some('_');
                gap.into_iter().chain(c.to_lowercase()).collect::<String>()
            };
            variant.char_indices().map(snake).collect::<String>()
        });
        let table = tables.iter().find(|table| table.above == *above && table.of != "message");
        let table = table.unwrap_or_else(|| panic!("no table stands below `{above}`"));
        compare(&quoted(&table.cells), &words.collect(), name);
    }
    // Those of messages to people have a list in the schema of the journal alone: in the latest form of the table.
    let states =
        (1..1_000).map(|version| root().join(format!("kernel/journal/src/schema/version_{version}.sql")));
    let schemas = states.skip_while(|path| !path.exists()).map_while(|path| fs::read_to_string(path).ok());
    let list = |schema: String| Some(schema.split_once("CHECK (state IN ('due', 'sending'")?.1.to_owned());
    let list = schemas.filter_map(list).last().expect("the states of a delivery");
    let others = list.split(')').next().unwrap_or_default().split('\'').skip(1).step_by(2);
    let states = ["due", "sending"].into_iter().chain(others).map(str::to_owned).collect();
    let sent = tables.iter().find(|table| table.above.starts_with("Messages on their way to a channel"));
    compare(&quoted(&sent.expect("the table of deliveries").cells), &states, "states of a delivery");
}

#[test]
fn each_message_of_an_error_has_a_row_and_each_row_is_a_message() {
    let code = code();
    let rows: Vec<String> =
        tables().into_iter().filter(|table| table.of == "message").flat_map(|table| table.cells).collect();
    let mut missing = Vec::new();
    for (path, code) in &code {
        let mut messages = texts(code, &["#[error("], is_message);
        if path.starts_with("supervisor/src/cli/doctor/") {
            messages.extend(texts(code, FINDINGS, is_message));
        }
        let messages = messages.into_values().map(shown);
        missing.extend(messages.filter(|message| !rows.iter().any(|row| is_about(row, message))));
    }
    assert!(missing.is_empty(), "docs/reference/errors.md says nothing of {missing:#?}");
    let sources: String = code.values().map(|code| shown(code)).collect();
    let stale: Vec<_> = rows.iter().filter(|row| !sources.contains(row.trim_matches('…'))).collect();
    assert!(stale.is_empty(), "no source says what docs/reference/errors.md has: {stale:#?}");
}
