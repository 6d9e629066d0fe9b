//! Faults and warnings, as data and as compiler-style text.
//!
//! A list holds a hundred at most. Rendering shows the one line that is at fault, never its neighbours: a configuration may hold secrets, and
//! what is marked as such is masked in the shown line.

use std::{fmt, path::PathBuf};

use serde::{Serialize, Serializer};

use crate::{source::At, visible::visible};

/// How grave a [`Diagnostic`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file works; something in it is likely not what was meant.
    Warning,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    pub severity: Severity,
    /// A stable word for programs, such as `unknown_key`.
    pub code: &'static str,
    /// The file; for other layers `environment:NAME` or `command line:key`.
    pub file: PathBuf,
    /// Counted from 1; 0 where the fault is of the whole file.
    pub line: u32,
    /// Counted from 1 in characters; 0 where the fault is of the whole file.
    pub column: u32,
    /// The field with its parents, such as `agent.limits.max_turns`; empty where there is none.
    pub field: String,
    /// What was found and what was expected.
    pub message: String,
    /// The next step, where one is known.
    pub help: Option<String>,
}

/// A value and the warnings that came with it.
#[derive(Debug, Clone)]
pub struct Loaded<T> {
    pub value: T,
    /// Warnings only: a list with an error is never handed out together with a value.
    pub warnings: Diagnostics,
}

/// Everything that was found wrong, in the order of the files.
#[derive(Clone, Default)]
pub struct Diagnostics {
    list: Vec<Located>,
    /// Sticky, so that an error that finds the list full is not lost.
    error: bool,
    /// How many found the list full.
    dropped: usize,
    /// Takes the help of those.
    spare: Option<String>,
}

/// Nobody mends more at once, and a hostile file must not cost more.
const MAX_DIAGNOSTICS: usize = 100;

#[derive(Clone)]
struct Located {
    diagnostic: Diagnostic,
    at: Option<At>,
}

impl Diagnostics {
    pub fn has_errors(&self) -> bool {
        self.error
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether nothing more will be kept, so that there is no use in looking for more of the same.
    pub(crate) fn is_full(&self) -> bool {
        self.list.len() >= MAX_DIAGNOSTICS
    }

    /// How many there are, a hundred at most; what is beyond shows as a number in the text for people.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter().map(|located| &located.diagnostic)
    }

    /// Adds what another list holds.
    pub fn extend(&mut self, other: Diagnostics) {
        for located in other.list {
            let help = located.diagnostic.help.clone();
            self.add(located).help_if(help);
        }
        self.error |= other.error;
        self.dropped += other.dropped;
    }

    /// Text for people, with the line at fault under each message.
    pub fn render(&self, colour: bool) -> String {
        use miette::{GraphicalReportHandler, GraphicalTheme};
        let theme = if colour { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
        let handler = GraphicalReportHandler::new_themed(theme)
            .with_links(false)
            .with_width(100)
            .with_wrap_lines(false)
            .without_syntax_highlighting();
        let mut text = String::new();
        for located in &self.list {
            let report = Report::new(located);
            if handler.render_report(&mut text, &report).is_err() {
                text.push_str(&located.diagnostic.to_string());
                text.push('\n');
            }
        }
        if self.dropped > 0 {
            text.push_str(&format!("… and {} more\n", self.dropped));
        }
        text
    }

    pub(crate) fn error(
        &mut self,
        code: &'static str,
        at: &At,
        field: &str,
        message: impl Into<String>,
    ) -> Help<'_> {
        self.push(Severity::Error, code, at, field, message.into())
    }

    pub(crate) fn warning(
        &mut self,
        code: &'static str,
        at: &At,
        field: &str,
        message: impl Into<String>,
    ) -> Help<'_> {
        self.push(Severity::Warning, code, at, field, message.into())
    }

    /// A fault of a whole file: it cannot be read, or it holds what is not to be shown.
    pub(crate) fn file_error(
        &mut self,
        code: &'static str,
        file: impl Into<PathBuf>,
        line: u32,
        message: impl Into<String>,
    ) -> Help<'_> {
        let diagnostic = Diagnostic {
            severity: Severity::Error,
            code,
            file: file.into(),
            line,
            column: u32::from(line > 0),
            field: String::new(),
            message: visible(&message.into(), false),
            help: None,
        };
        self.add(Located { diagnostic, at: None })
    }

    fn push(
        &mut self,
        severity: Severity,
        code: &'static str,
        at: &At,
        field: &str,
        message: String,
    ) -> Help<'_> {
        let diagnostic = Diagnostic {
            severity,
            code,
            file: at.source.name(),
            line: at.line,
            column: at.column,
            field: visible(field, false),
            message: visible(&message, false),
            help: None,
        };
        self.add(Located { diagnostic, at: Some(at.clone()) })
    }

    fn add(&mut self, located: Located) -> Help<'_> {
        self.error |= located.diagnostic.severity == Severity::Error;
        if self.is_full() {
            self.dropped += 1;
            return Help(&mut self.spare);
        }
        self.list.push(located);
        let last = self.list.len() - 1;
        Help(&mut self.list[last].diagnostic.help)
    }

    /// Orders by place, so that a person reads from top to bottom; faults of whole files come first.
    pub(crate) fn sorted(mut self) -> Self {
        self.list.sort_by(|a, b| {
            let key = |located: &Located| (located.diagnostic.line, located.diagnostic.column);
            a.diagnostic.file.cmp(&b.diagnostic.file).then(key(a).cmp(&key(b)))
        });
        self
    }
}

/// Where the help of a diagnostic that was just added goes.
pub(crate) struct Help<'a>(&'a mut Option<String>);

impl Help<'_> {
    pub(crate) fn help(self, text: impl Into<String>) {
        *self.0 = Some(visible(&text.into(), true));
    }

    pub(crate) fn help_if(self, text: Option<String>) {
        *self.0 = text.map(|text| visible(&text, true));
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = visible(&self.file.to_string_lossy(), false);
        write!(f, "{file}:{}:{}: {}", self.line, self.column, self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl std::error::Error for Diagnostics {}

impl Serialize for Diagnostics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

/// One diagnostic in the form that the renderer wants.
#[derive(Debug)]
struct Report<'a> {
    diagnostic: &'a Diagnostic,
    line: Option<ShownLine>,
    /// Of the label, within the line.
    span: (usize, usize),
}

/// The line at fault; for the renderer it is the whole file.
#[derive(Debug)]
struct ShownLine {
    name: String,
    text: String,
    number: usize,
    column: usize,
}

impl miette::SourceCode for ShownLine {
    fn read_span<'a>(
        &'a self,
        _label: &miette::SourceSpan,
        _lines_before: usize,
        _lines_after: usize,
    ) -> Result<Box<dyn miette::SpanContents<'a> + 'a>, miette::MietteError> {
        let whole = (0, self.text.len()).into();
        let first = self.number.saturating_sub(1);
        let column = self.column.saturating_sub(1);
        let name = self.name.clone();
        Ok(Box::new(miette::MietteSpanContents::new_named(
            name,
            self.text.as_bytes(),
            whole,
            first,
            column,
            1,
        )))
    }
}

impl<'a> Report<'a> {
    fn new(located: &'a Located) -> Self {
        let diagnostic = &located.diagnostic;
        let shown = located.at.as_ref().and_then(|at| at.shown_line());
        let (text, span) = shown.map_or((None, (0, 0)), |(text, span)| (Some(text), span));
        let line = text.map(|text| ShownLine {
            name: visible(&diagnostic.file.to_string_lossy(), false),
            text,
            number: diagnostic.line as usize,
            column: diagnostic.column as usize,
        });
        Self { diagnostic, line, span }
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line.is_none() {
            f.write_str(&visible(&self.diagnostic.file.to_string_lossy(), false))?;
            if self.diagnostic.line > 0 {
                write!(f, ":{}:{}", self.diagnostic.line, self.diagnostic.column)?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.diagnostic.message)
    }
}

impl std::error::Error for Report<'_> {}

impl miette::Diagnostic for Report<'_> {
    fn code<'b>(&'b self) -> Option<Box<dyn fmt::Display + 'b>> {
        Some(Box::new(self.diagnostic.code))
    }

    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.diagnostic.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        })
    }

    fn help<'b>(&'b self) -> Option<Box<dyn fmt::Display + 'b>> {
        self.diagnostic.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn miette::SourceCode> {
        self.line.as_ref().map(|line| line as &dyn miette::SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = miette::LabeledSpan> + '_>> {
        self.line.as_ref()?;
        let label = (!self.diagnostic.field.is_empty()).then(|| self.diagnostic.field.clone());
        let span = miette::LabeledSpan::new(label, self.span.0, self.span.1);
        Some(Box::new(std::iter::once(span)))
    }
}
