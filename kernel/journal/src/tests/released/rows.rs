//! Which of `rows.sql` belong into a journal of a version.

/// The statements of all parts whose head, such as `-- versions 3..17`, names the version.
pub fn rows_of(all: &str, version: usize) -> String {
    let mut holds = false;
    let mut statements = String::new();
    for line in all.lines() {
        if let Some((from, to)) = line.strip_prefix("-- versions ").and_then(|span| span.split_once("..")) {
            let from: usize = from.parse().expect("a number");
            holds = from <= version && to.parse().map_or(true, |to: usize| version <= to);
        } else if holds {
            statements.extend([line, "\n"]);
        }
    }
    statements
}
