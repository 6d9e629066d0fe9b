//! The line editor: history, several lines, completion of `/commands` and `@agents`.

use std::{
    borrow::Cow,
    fs, io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::SyncSender,
    },
};

use drupe_extension_api::{
    AgentId,
    control::{AgentStatus, SessionStatus, method},
};
use drupe_link::Home;
use reedline::{
    ColumnarMenu, Completer, CompletionResult, EditCommand, Emacs, ExternalPrinter, FileBackedHistory,
    KeyCode, KeyModifiers, MenuBuilder, Prompt, PromptEditMode, PromptHistorySearch,
    PromptHistorySearchStatus, Reedline, ReedlineEvent, ReedlineMenu, Signal, Span, Suggestion,
    default_emacs_keybindings,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::commands::{COMMANDS, QUEUE};
use crate::cli::{
    client::Client,
    console::{Console, short, signs},
    failure::Failure,
    wait::Interrupt,
};

/// Lines of history that are kept.
const HISTORY: usize = 2000;

/// Lines that can wait for the editor to show them: more than a screen, less than a flood.
const WAITING: usize = 4096;

/// Characters of an agent's description, or a session's title, beside its id.
const TITLE: usize = 60;

const MENU: &str = "completion";

/// What somebody did at the prompt.
#[derive(Debug)]
pub enum Typed {
    Line(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D.
    End,
    /// The editor was told to give up.
    Broken,
}

pub struct Editor {
    editor: Reedline,
    sender: SyncSender<String>,
    broken: Arc<AtomicBool>,
    /// Whether the terminal shows no more than ASCII.
    bare: bool,
}

impl Editor {
    /// An editor with the history of a home; without one where its file cannot be used.
    pub fn new(home: &Home, console: Console, interrupt: &Interrupt) -> Result<Self, Failure> {
        let printer = ExternalPrinter::new(WAITING);
        let sender = printer.sender();
        let broken = Arc::new(AtomicBool::new(false));
        interrupt.also_leave(&broken)?;
        let mut keys = default_emacs_keybindings();
        let complete =
            ReedlineEvent::UntilFound(vec![ReedlineEvent::Menu(MENU.into()), ReedlineEvent::MenuNext]);
        keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, complete);
        let menu = Box::new(ColumnarMenu::default().with_name(MENU));
        let mut editor = Reedline::create()
            .with_external_printer(printer)
            .with_break_signal(Arc::clone(&broken))
            .with_edit_mode(Box::new(Emacs::new(keys)))
            .with_completer(Box::new(Words { home: home.clone() }))
            .with_menu(ReedlineMenu::EngineCompleter(menu))
            .with_ansi_colors(console.colour)
            .with_quick_completions(true)
            .use_bracketed_paste(true);
        if let Ok(history) = history(home.path()) {
            editor = editor.with_history(Box::new(history));
        }
        Ok(Self { editor, sender, broken, bare: console.bare })
    }

    /// Where lines go that are shown above the prompt.
    pub fn sender(&self) -> SyncSender<String> {
        self.sender.clone()
    }

    /// Makes [`read`](Self::read) give up.
    pub fn breaker(&self) -> impl Fn() + Send + Sync + 'static {
        let broken = Arc::clone(&self.broken);
        move || broken.store(true, Ordering::Relaxed)
    }

    /// Puts text where somebody types.
    pub fn insert(&mut self, text: &str) {
        if !text.is_empty() {
            self.editor.run_edit_commands(&[EditCommand::InsertString(text.to_owned())]);
        }
    }

    pub fn read(&mut self, agent: Option<&AgentId>) -> Result<Typed, Failure> {
        let agent = agent.map(|agent| format!("@{agent} ")).unwrap_or_default();
        let prompt = Question { agent, bare: self.bare };
        let signal = self.editor.read_line(&prompt).map_err(io::Error::other)?;
        Ok(match signal {
            Signal::Success(line) => Typed::Line(line),
            Signal::CtrlC => Typed::Interrupt,
            Signal::CtrlD => Typed::End,
            _ => Typed::Broken,
        })
    }
}

/// What was typed may be private, so the file is made for its owner alone before anything is in it.
fn history(home: &Path) -> Result<FileBackedHistory, Failure> {
    let file: PathBuf = home.join("data/.chat_history");
    fs::create_dir_all(home.join("data"))?;
    fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&file)?;
    Ok(FileBackedHistory::with_file(HISTORY, file).map_err(io::Error::other)?)
}

struct Question {
    agent: String,
    bare: bool,
}

impl Prompt for Question {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.agent)
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        signs("› ", self.bare)
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        signs("… ", self.bare)
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        let failing = match search.status {
            PromptHistorySearchStatus::Passing => "",
            PromptHistorySearchStatus::Failing => "nothing ",
        };
        Cow::Owned(format!("({failing}found: {}) ", search.term))
    }
}

/// Completes the word before the cursor.
struct Words {
    home: Home,
}

impl Completer for Words {
    fn complete(&mut self, line: &str, position: usize) -> CompletionResult {
        let before = line.get(..position).unwrap_or(line);
        let start = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let word = &before[start..];
        let words = match (before[..start].trim_end(), word.chars().next()) {
            ("", Some('/')) => {
                COMMANDS.iter().map(|(name, help)| ((*name).to_owned(), (*help).to_owned())).collect()
            }
            ("/queue", _) => {
                QUEUE.iter().map(|(name, _, help)| ((*name).to_owned(), (*help).to_owned())).collect()
            }
            ("/sessions", _) => self.sessions(),
            (_, Some('@')) => self.agents(),
            _ => Vec::new(),
        };
        CompletionResult::fresh(suggestions(words, word, Span::new(start, position)))
    }
}

impl Words {
    /// Those that there are now: a restart may have brought one. None while the kernel is away.
    fn agents(&self) -> Vec<(String, String)> {
        let list: Vec<AgentStatus> = self.list(method::AGENTS_LIST);
        list.into_iter().map(|agent| (format!("@{}", agent.id), short(&agent.description, TITLE))).collect()
    }

    fn sessions(&self) -> Vec<(String, String)> {
        let list: Vec<SessionStatus> = self.list(method::SESSIONS_LIST);
        list.into_iter().map(|session| (session.id.to_string(), short(&session.title, TITLE))).collect()
    }

    fn list<T: DeserializeOwned>(&self, method: &str) -> Vec<T> {
        Client::connect(&self.home)
            .and_then(|mut client| client.call(method, &Value::Null))
            .unwrap_or_default()
    }
}

fn suggestions(words: Vec<(String, String)>, word: &str, span: Span) -> Vec<Suggestion> {
    let fitting = words.into_iter().filter(|(value, _)| value.starts_with(word));
    fitting
        .map(|(value, help)| Suggestion {
            value,
            description: Some(help),
            span,
            append_whitespace: true,
            ..Suggestion::default()
        })
        .collect()
}
