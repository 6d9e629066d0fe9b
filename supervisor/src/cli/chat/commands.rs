//! What begins with a slash.

use drupe_extension_api::{SessionId, wire::QueueMode};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Stop the turn that runs, or the agent of that handle that works beside it.
    Stop(Option<String>),
    /// Tell the agent of that handle something.
    Tell {
        handle: String,
        text: String,
    },
    /// Ask the last message again.
    Retry,
    Plan,
    /// Show what the session used.
    Usage,
    /// Show what a turn set off: the last one, or that one.
    Trace(Option<i64>),
    /// Say, or choose, what becomes of messages that are typed while a turn runs.
    Queue(Option<QueueMode>),
    Agents,
    Who,
    /// Take the conversation back from the agent that has it.
    Back,
    /// Give a link to the page, at the newest turn.
    Open,
    New,
    /// List the sessions, or go to one.
    Sessions(Option<SessionId>),
    Help,
    Quit,
}

/// The words, with what they do.
pub const COMMANDS: [(&str, &str); 15] = [
    ("/stop", "stop the turn that runs; `/stop HANDLE` an agent that works beside it"),
    ("/tell", "`/tell HANDLE TEXT` tells an agent that works beside the turn more"),
    ("/retry", "ask the last message again"),
    ("/plan", "show the plan"),
    ("/usage", "show what this session used"),
    ("/trace", "show what the last turn set off; `/trace N` the N-th"),
    ("/queue", "what becomes of messages typed while a turn runs: `followup`, `steer`, `interrupt`"),
    ("/agents", "list the agents; `@id …` asks one"),
    ("/who", "say who answers, and who works beside the turn"),
    ("/back", "take the conversation back from the agent that has it; `/back TEXT` with a message"),
    ("/open", "give a link to the web page, at this turn"),
    ("/new", "begin a new session"),
    ("/sessions", "list the sessions; `/sessions ID` goes to one"),
    ("/help", "show this"),
    ("/quit", "leave (Ctrl-D)"),
];

/// Ways to treat a message that is typed while a turn runs.
pub const QUEUE: [(&str, QueueMode, &str); 3] = [
    ("followup", QueueMode::Followup, "it is answered after the turn"),
    ("steer", QueueMode::Steer, "the turn takes it in at its next step"),
    ("interrupt", QueueMode::Interrupt, "it stops the turn and is answered at once"),
];

/// The farthest that a word may be from one that was meant.
const NEAR: usize = 2;

/// Why a line that begins like a command is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoCommand {
    #[error("there is no `{word}`; {}", near(word))]
    Unknown { word: String },
    #[error("`{0}` takes nothing more")]
    TooMuch(String),
    #[error("`{0}` is no turn: 1 is the first one, -1 the last one")]
    Turn(String),
    #[error("`{mode}` is none of {}", modes())]
    Mode { mode: String },
    #[error("{0}")]
    Session(String),
    #[error("write `/tell HANDLE TEXT`; `/who` shows the handles")]
    Tell,
}

/// Reads a line: none if it is no command, else the command or what is wrong with it.
///
/// Only `/` and letters make a command, so that a path is a message.
pub fn parse(line: &str) -> Option<Result<Command, NoCommand>> {
    let mut words = line.split_whitespace();
    let word = words.next()?;
    let name = word.strip_prefix('/').filter(|name| !name.is_empty())?;
    if !name.chars().all(|c| c.is_ascii_alphabetic()) {
        return None;
    }
    let rest: Vec<&str> = words.collect();
    Some(match (name, rest.as_slice()) {
        ("stop", []) => Ok(Command::Stop(None)),
        ("stop", [handle]) => Ok(Command::Stop(Some((*handle).to_owned()))),
        ("tell", [handle, text @ ..]) if !text.is_empty() => {
            Ok(Command::Tell { handle: (*handle).to_owned(), text: text.join(" ") })
        }
        ("tell", _) => Err(NoCommand::Tell),
        ("retry", []) => Ok(Command::Retry),
        ("plan", []) => Ok(Command::Plan),
        ("usage", []) => Ok(Command::Usage),
        ("trace", []) => Ok(Command::Trace(None)),
        ("trace", [number]) => trace(number),
        ("queue", []) => Ok(Command::Queue(None)),
        ("queue", [mode]) => queue(mode),
        ("agents", []) => Ok(Command::Agents),
        ("who", []) => Ok(Command::Who),
        ("back", _) => Ok(Command::Back),
        ("open", []) => Ok(Command::Open),
        ("new", []) => Ok(Command::New),
        ("sessions", []) => Ok(Command::Sessions(None)),
        ("sessions", [id]) => SessionId::new(id)
            .map(|id| Command::Sessions(Some(id)))
            .map_err(|error| NoCommand::Session(error.to_string())),
        ("help", []) => Ok(Command::Help),
        ("quit" | "exit", []) => Ok(Command::Quit),
        _ if COMMANDS.iter().any(|(known, _)| *known == word) => Err(NoCommand::TooMuch(word.to_owned())),
        _ => Err(NoCommand::Unknown { word: word.to_owned() }),
    })
}

fn trace(number: &str) -> Result<Command, NoCommand> {
    match number.parse() {
        Ok(0) | Err(_) => Err(NoCommand::Turn(number.to_owned())),
        Ok(number) => Ok(Command::Trace(Some(number))),
    }
}

fn queue(mode: &str) -> Result<Command, NoCommand> {
    match QUEUE.iter().find(|(name, ..)| *name == mode) {
        Some((_, mode, _)) => Ok(Command::Queue(Some(*mode))),
        None => Err(NoCommand::Mode { mode: mode.to_owned() }),
    }
}

fn modes() -> String {
    let known: Vec<_> = QUEUE.iter().map(|(name, _, help)| format!("`{name}` ({help})")).collect();
    known.join(", ")
}

/// What to write in place of a command that there is not.
fn near(word: &str) -> String {
    let distance = |known: &str| strsim::damerau_levenshtein(known, word);
    match COMMANDS.iter().map(|(known, _)| *known).min_by_key(|known| distance(known)) {
        Some(near) if distance(near) <= NEAR => format!("did you mean `{near}`?"),
        _ => "`/help` shows the commands".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_list_is_one() {
        for (word, _) in COMMANDS {
            let line = if word == "/tell" { "/tell a-1 more of it" } else { word };
            assert!(matches!(parse(line), Some(Ok(_))), "{word}");
        }
        assert_eq!(parse(" /quit "), Some(Ok(Command::Quit)));
        let id = SessionId::new("other").expect("an id");
        assert_eq!(parse("/sessions other"), Some(Ok(Command::Sessions(Some(id)))));
        assert_eq!(parse("/stop a-1"), Some(Ok(Command::Stop(Some("a-1".into())))));
        let told = Command::Tell { handle: "a-1".into(), text: "more of it".into() };
        assert_eq!(parse("/tell a-1 more  of it"), Some(Ok(told)));
        assert_eq!(parse("/trace -2"), Some(Ok(Command::Trace(Some(-2)))));
        for (name, mode, _) in QUEUE {
            assert_eq!(parse(&format!("/queue {name}")), Some(Ok(Command::Queue(Some(mode)))));
        }
    }

    #[test]
    fn messages_are_no_commands() {
        for line in ["", "hello", "/etc/passwd holds what?", "/", "a /stop", "/2"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_near_miss_is_named() {
        let check = |line, part| {
            let Some(Err(message)) = parse(line) else { panic!("{line}") };
            assert!(message.to_string().contains(part), "{message}");
        };
        check("/agnets", "did you mean `/agents`?");
        check("/session", "did you mean `/sessions`?");
        check("/frobnicate", "`/help` shows");
        check("/stop right now", "takes nothing more");
        check("/tell a-1", "write `/tell HANDLE TEXT`");
        check("/trace 0", "1 is the first one");
        check("/trace last", "1 is the first one");
        check("/queue later", "`interrupt` (it stops");
    }
}
