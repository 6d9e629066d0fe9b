//! Where clients write: facts to the standard output, everything else to the standard error stream.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    io::{self, IsTerminal, Write},
    ops::Range,
    os::fd::BorrowedFd,
};

use drupe_config::acts;
use serde::Serialize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::failure::Failure;

/// Characters of a line that are looked at: there may be any number of those that take no column.
const MOST_SHOWN: usize = 1024;

/// What the two output streams can show.
#[derive(Debug, Clone, Copy)]
pub struct Console {
    /// Whether the standard output shows colours.
    pub colour: bool,
    /// Whether the standard error stream shows colours.
    pub colour_err: bool,
    /// Whether somebody watches the standard error stream, so that progress is worth showing.
    pub watched: bool,
    /// Whether the standard output is a terminal, which would obey what others wrote.
    pub terminal: bool,
    /// Whether the standard output is a terminal that shows no more than ASCII.
    pub bare: bool,
    /// The same of the standard error stream.
    pub bare_err: bool,
}

/// The look of a piece of text on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Plain,
    /// What is there for those who look for it.
    Dim,
    Bold,
    Good,
    Warning,
    Bad,
}

impl Style {
    pub fn paint(self, text: &str, colour: bool) -> String {
        let code = match self {
            Self::Plain => return text.to_owned(),
            Self::Dim => "2",
            Self::Bold => "1",
            Self::Good => "32",
            Self::Warning => "33",
            Self::Bad => "31",
        };
        if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

impl Console {
    /// Looks at the streams of this process.
    pub fn new(environment: &BTreeMap<String, String>) -> Self {
        let set = |name: &str| environment.get(name).is_some_and(|value| !value.is_empty());
        let dumb = environment.get("TERM").is_some_and(|term| term == "dumb");
        let (out, err) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let colours = !set("NO_COLOR") && !dumb;
        let bare = !utf8(environment);
        Self {
            colour: out && colours,
            colour_err: err && colours,
            watched: err && !dumb,
            terminal: out,
            bare: out && bare,
            bare_err: err && bare,
        }
    }

    /// Columns of the standard output, where it is a terminal.
    pub fn columns() -> Option<usize> {
        columns(rustix::stdio::stdout())
    }

    /// Columns and rows of the standard output, where it is a terminal.
    pub fn size() -> Option<(usize, usize)> {
        let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
        (size.ws_col > 0 && size.ws_row > 0).then(|| (size.ws_col.into(), size.ws_row.into()))
    }

    /// Columns of the standard error stream.
    pub fn columns_err() -> Option<usize> {
        columns(rustix::stdio::stderr())
    }

    /// Writes what was drawn for people to the standard output.
    pub fn draw(&self, text: &str) -> Result<(), Failure> {
        self.print(&signs(text, self.bare))
    }

    /// Writes text to the standard output; a newline is added where it has none at its end. Its colours are ours, nothing
    /// in it that turns the direction of text is.
    pub fn print(&self, text: &str) -> Result<(), Failure> {
        let straight: String;
        let turns = |c: char| acts(c) && !c.is_control();
        let text = if self.terminal && text.contains(turns) {
            straight = text.chars().filter(|c| !turns(*c)).collect();
            &straight
        } else {
            text
        };
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            out.write_all(b"\n")?;
        }
        Ok(out.flush()?)
    }

    /// Text of others for the standard output: a program gets it as it is, a terminal without what it would obey.
    pub fn harmless<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.terminal { Cow::Owned(plain(text)) } else { Cow::Borrowed(text) }
    }

    /// Writes a value to the standard output.
    pub fn json(&self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value)?;
        self.print(&if self.terminal { escaped(&text) } else { text })
    }

    /// Writes a line to the standard error stream, without what a terminal would obey.
    pub fn remark(&self, text: &str) {
        self.remark_in(Style::Plain, text);
    }

    /// The same in a look.
    pub fn remark_in(&self, style: Style, text: &str) {
        self.remark_drawn(&self.remarked(style, text));
    }

    /// Writes what was drawn, with its colours, to the standard error stream: what others wrote must be
    /// [`plain`] in it already.
    pub fn remark_drawn(&self, drawn: &str) {
        // Without a place to say it there is nobody to tell.
        let _ = writeln!(io::stderr(), "{}", signs(drawn, self.bare_err));
    }

    fn remarked(&self, style: Style, text: &str) -> String {
        style.paint(&plain(text), self.colour_err)
    }
}

fn columns(stream: BorrowedFd<'_>) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    (size.ws_col > 0).then(|| size.ws_col.into())
}

/// Whether the locale's characters are UTF-8. Where none is set it is `C`, whose are not.
fn utf8(environment: &BTreeMap<String, String>) -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(|name| environment.get(*name));
    let locale = set.into_iter().find(|value| !value.is_empty()).map(|value| value.to_ascii_lowercase());
    locale.is_some_and(|locale| locale.contains("utf-8") || locale.contains("utf8"))
}

/// Text of ours with its signs in ASCII, where that is all that a terminal shows. What others wrote stays.
pub fn signs(text: &str, bare: bool) -> Cow<'_, str> {
    if !bare || text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let mut drawn = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '…' => drawn.push_str("..."),
            '→' => drawn.push_str("->"),
            '←' => drawn.push_str("<-"),
            '›' | '▸' => drawn.push('>'),
            '✓' | '├' | '└' => drawn.push('+'),
            '✗' => drawn.push('x'),
            '│' => drawn.push('|'),
            '─' | '·' => drawn.push('-'),
            '○' => drawn.push('o'),
            '↵' => drawn.push('/'),
            other => drawn.push(other),
        }
    }
    Cow::Owned(drawn)
}

/// Text of others without what a terminal would obey.
pub fn plain(text: &str) -> String {
    text.chars().filter(|c| !acts(*c) || matches!(c, '\n' | '\t')).collect()
}

/// JSON with every character in it that a terminal acts on as an escape: JSON itself leaves some of them as they are.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            // Those of the layout; within a string they are escapes.
            '\n' => text.push(c),
            c if acts(c) => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => text.push(c),
        }
    }
    text
}

/// The beginning of a text on one line, at most `most` characters long.
pub fn short(text: &str, most: usize) -> String {
    let line = plain(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    if line.chars().count() <= most {
        return line;
    }
    let kept: String = line.chars().take(most.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// A length of time for people.
pub fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 if ms < 100 => format!("{ms} ms"),
        0..10 => format!("{}.{} s", seconds, ms % 1000 / 100),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Columns that a text takes on a terminal.
pub fn width(text: &str) -> usize {
    text.width()
}

/// The beginning of a text that takes at most so many columns.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut left = columns.saturating_sub(1);
    let fits = |c: &char| {
        let wide = c.width().unwrap_or(0);
        let fits = wide <= left;
        left = left.saturating_sub(wide);
        fits
    };
    let kept: String = text.chars().take_while(fits).collect();
    format!("{kept}…")
}

/// The end of a text, on one line, that takes at most so many columns, without what a terminal would obey. A line's
/// end is shown as `↵`. However long the text is, only what is shown of it is looked at.
pub fn end(text: &str, columns: usize) -> String {
    let mut left = columns;
    let shown = text.chars().rev().filter(|c| !acts(*c) || *c == '\n');
    let shown = shown.map(|c| if c == '\n' { '↵' } else { c });
    let fits = |c: &char| {
        let wide = c.width().unwrap_or(0);
        let fits = wide <= left;
        left = left.saturating_sub(wide);
        fits
    };
    let kept: Vec<char> = shown.take(MOST_SHOWN).take_while(fits).collect();
    let mut kept: String = kept.into_iter().rev().collect();
    // Some characters take more columns together than one by one.
    while width(&kept) > columns {
        kept.remove(0);
    }
    kept
}

/// Columns that line up; the last one is as long as it is.
pub fn table(rows: &[Vec<String>]) -> String {
    figures(rows, 0..0)
}

/// The same with figures, which end below each other, in some of the columns.
pub fn figures(rows: &[Vec<String>], right: Range<usize>) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &Vec<String>, column: usize| row.get(column).map_or(0, |cell| width(cell));
    let widths: Vec<usize> =
        (0..columns).map(|column| rows.iter().map(|row| cell(row, column)).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, most)) in row.iter().zip(&widths).enumerate() {
            let room = " ".repeat(most - width(cell));
            let parts = if right.contains(&column) { [&room, cell] } else { [cell, &room] };
            line.push_str(&format!("{}{}  ", parts[0], parts[1]));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_the_unit_that_people_would_choose() {
        let check = |ms, text| assert_eq!(duration(ms), text);
        check(0, "0 ms");
        check(99, "99 ms");
        check(100, "0.1 s");
        check(9_999, "9.9 s");
        check(59_999, "59 s");
        check(61_000, "1 min 1 s");
        check(3_600_000, "1 h 0 min");
        check(90_000_000, "1 d 1 h");
    }

    #[test]
    fn what_others_wrote_cannot_command_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\u{9b}31m\r\n\tc\x07"), "a[2Jb31m\n\tc");
        assert_eq!(plain("rm \u{202e}txt.\u{2066}a\u{2069}\u{200f}"), "rm txt.a");
        assert_eq!(end("rm \u{202e}txt", 80), "rm txt");
        assert_eq!(escaped("\"\u{202e}\""), "\"\\u202e\"");
        assert_eq!(short("a \n b\tc", 80), "a b c");
        assert_eq!(short("äöüäöü", 4), "äöü…");
    }

    const EVIL: &str = "a\x1b]52;c;Zm9v\x07b\u{9b}2Jc";

    fn console(terminal: bool, colour: bool) -> Console {
        Console { colour, colour_err: colour, watched: false, terminal, bare: false, bare_err: false }
    }

    #[test]
    fn an_answer_is_harmless_at_a_terminal_and_exact_in_a_pipe() {
        assert_eq!(console(true, true).harmless(EVIL), "a]52;c;Zm9vb2Jc");
        assert_eq!(console(false, true).harmless(EVIL), EVIL);
        let json = serde_json::to_string_pretty(&[EVIL, "\u{7f}"]).expect("JSON");
        assert!(json.contains('\u{9b}'), "JSON leaves it as it is");
        assert_eq!(escaped(&json).chars().filter(|c| c.is_control() && *c != '\n').count(), 0);
        assert_eq!(serde_json::from_str::<Vec<String>>(&escaped(&json)).expect("JSON"), [EVIL, "\u{7f}"]);
    }

    #[test]
    fn a_remark_has_our_colours_and_no_orders_of_others() {
        assert_eq!(console(true, false).remarked(Style::Plain, EVIL), "a]52;c;Zm9vb2Jc");
        assert_eq!(console(false, true).remarked(Style::Bad, EVIL), "\x1b[31ma]52;c;Zm9vb2Jc\x1b[0m");
    }

    #[test]
    fn columns_line_up_and_lines_have_no_blanks_at_their_end() {
        let rows = [vec!["a".into(), "bb".into(), String::new()], vec!["ccc".into(), "d".into(), "e".into()]];
        assert_eq!(table(&rows), "a    bb\nccc  d   e\n");
    }

    #[test]
    fn wide_characters_take_their_columns() {
        let rows = [vec!["漢字".into(), "1".into()], vec!["a".into(), "12".into()]];
        assert_eq!(table(&rows), "漢字  1\na     12\n");
        assert_eq!(figures(&rows, 1..2), "漢字   1\na     12\n");
        let check = |text, columns, expected| assert_eq!(cut(text, columns), expected);
        check("abc", 3, "abc");
        check("abcd", 3, "ab…");
        check("漢字漢", 5, "漢字…");
        check("漢字漢", 4, "漢…");
        check("abc", 0, "…");
    }

    #[test]
    fn the_end_of_a_line_is_what_fits_whatever_is_before_it() {
        let check = |text: &str, columns, expected| assert_eq!(end(text, columns), expected);
        check("abc", 3, "abc");
        check("abcd", 3, "bcd");
        check("a漢字", 3, "字");
        check("one\ntwo", 5, "e↵two");
        check("a\x1b[2J\u{9b}\x07b", 80, "a[2Jb");
        check("abc", 0, "");
        check("x\u{2764}\u{fe0f}y", 3, "\u{2764}\u{fe0f}y");
        check("x\u{2764}\u{fe0f}y", 2, "\u{fe0f}y");
        let marks = "e".to_owned() + &"\u{301}".repeat(1_000_000);
        assert_eq!(end(&marks, 80).chars().count(), MOST_SHOWN);
    }

    #[test]
    fn a_terminal_without_utf_8_is_shown_ascii_signs() {
        let check = |locale: &[(&str, &str)], expected| {
            let environment = locale.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            assert_eq!(utf8(&environment), expected, "{locale:?}");
        };
        check(&[("LANG", "en_GB.UTF-8")], true);
        check(&[("LANG", "en_GB.UTF-8"), ("LC_ALL", "C")], false);
        check(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8"), ("LANG", "C")], true);
        check(&[], false);
        assert_eq!(signs("✓ a → b …", true), "+ a -> b ...");
        assert_eq!(signs("✓ a", false), "✓ a");
    }
}
