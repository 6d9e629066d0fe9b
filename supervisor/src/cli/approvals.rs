//! `drupe approvals`: what waits for the operator's agreement: extensions and single calls of tools.

use drupe_config::acts;
use drupe_extension_api::{
    Fault, FaultCode,
    control::{
        Approval, ApprovalAnswer, ApprovalState, AskedCall, CallPreview, ExtensionDetail, ExtensionState,
        ExtensionStatus, Named, StandingGrant, method,
    },
};
use drupe_kernel::one_a_line;
use unicode_width::UnicodeWidthChar;

use super::{
    Context, Facts,
    client::Daemon,
    console::{plain, table},
    ext::decide::Wanted,
    failure::{Failure, status},
    fill,
    status::word,
};

/// What is said of a tool whose call waits. Nobody is told how to agree before seeing what it would do.
pub const WAITS: &str =
    "waits for approval: `drupe approvals` shows what it would do, and the id by which you allow or deny it";

/// Arguments of `drupe approvals`.
#[derive(Debug, clap::Args)]
pub struct Approvals {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    facts: Facts,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List what waits, and what was answered
    List(Facts),
    /// Agree
    Allow(Allow),
    /// Do not agree
    Deny(Answer),
    /// List what is allowed for the rest of a session
    Grants(Facts),
    /// Take back what is allowed for the rest of a session
    Revoke(Revoke),
}

#[derive(Debug, clap::Args)]
struct Allow {
    #[command(flatten)]
    answer: Answer,
    /// Allow calls like it in the rest of its session, too, as the list says which
    #[arg(long, conflicts_with = "values")]
    session: bool,
    /// What the question asks for; what is not given so is asked for at the terminal, and a secret always is
    #[arg(long = "value", value_name = "NAME=VALUE")]
    values: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct Revoke {
    /// Its id, as `drupe approvals grants` lists it
    id: String,
    #[command(flatten)]
    facts: Facts,
}

#[derive(Debug, clap::Args)]
struct Answer {
    /// Its id as it is listed, or the extension that waits or was answered before; of a call the beginning is enough
    id: String,
    #[command(flatten)]
    facts: Facts,
}

impl Approvals {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        match self.verb {
            None => list(self.facts, context),
            Some(Verb::List(facts)) => list(facts, context),
            Some(Verb::Allow(Allow { answer, session, values })) => {
                answer.give(Some(&values), session, context)
            }
            Some(Verb::Deny(answer)) => answer.give(None, false, context),
            Some(Verb::Grants(facts)) => grants(facts, context),
            Some(Verb::Revoke(revoke)) => revoke.execute(context),
        }
    }
}

fn list(facts: Facts, context: &Context) -> Result<u8, Failure> {
    let list: Vec<Approval> = context.daemon().get(method::APPROVALS_LIST)?;
    match facts.json {
        true => context.console.json(&list)?,
        false if list.is_empty() => context.console.remark("nothing waits for an answer, and nothing did"),
        false => context.console.draw(&draw(&list))?,
    }
    Ok(0)
}

fn grants(facts: Facts, context: &Context) -> Result<u8, Failure> {
    let list: Vec<StandingGrant> = context.daemon().get(method::APPROVALS_GRANTS)?;
    match facts.json {
        true => context.console.json(&list)?,
        false if list.is_empty() => context.console.remark("nothing is allowed for the rest of a session"),
        false => context.console.draw(&table(&list.iter().map(granted).collect::<Vec<_>>()))?,
    }
    Ok(0)
}

impl Revoke {
    fn execute(self, context: &Context) -> Result<u8, Failure> {
        let grant: StandingGrant =
            context.daemon().decide(method::APPROVALS_REVOKE, &Named { id: self.id })?;
        match self.facts.json {
            true => context.console.json(&grant)?,
            false => context.console.draw(&table(&[granted(&grant)]))?,
        }
        Ok(0)
    }
}

fn granted(grant: &StandingGrant) -> Vec<String> {
    let StandingGrant { id, session, agent, about, for_taint, given, by } = grant;
    let strangers = if *for_taint { ", also where strangers' text was read" } else { "" };
    vec![
        plain(id),
        plain(&format!("{about}{strangers}")),
        plain(&format!("agent {agent} in session {session}")),
        plain(by),
        given.to_string(),
    ]
}

impl Answer {
    /// Agrees, with values where there are such, or does not.
    fn give(self, agrees: Option<&[String]>, for_session: bool, context: &Context) -> Result<u8, Failure> {
        let allow = agrees.is_some();
        let daemon = context.daemon();
        let (id, read) = Approval::read_listed(&self.id);
        let list: Vec<Approval> = daemon.get(method::APPROVALS_LIST)?;
        let hash = shown(&list, id).map(|one| one.hash.clone());
        if !read.is_empty() && !hash.as_ref().is_some_and(|hash| hash.starts_with(read)) {
            let other = format!("`{}` is not there any more, or waits with other content", self.id);
            return Err(Failure::new(status::FAILED, other).help("`drupe approvals` shows what waits now"));
        }
        let meant = shown(&list, id);
        let asks = meant.and_then(|one| one.call.as_ref()?.preview.as_ref()?.input.as_ref());
        // What is filled in goes to a question by its whole id.
        let id = meant.filter(|_| asks.is_some()).map_or_else(|| id.to_owned(), |one| one.id.clone());
        let values = match (agrees, asks) {
            (Some(given), Some(input)) => Some(fill::filled(input, given)?),
            (Some([_, ..]), None) => {
                let nothing = format!("`{id}` asks for nothing to be filled in, or is not there");
                return Err(Failure::new(status::FAILED, nothing).help("leave `--value` out"));
            }
            _ => None,
        };
        let answer = |id: &str, hash| ApprovalAnswer {
            id: id.to_owned(),
            allow,
            for_session,
            hash,
            values: values.clone(),
        };
        let approval: Approval = match daemon.decided(method::APPROVALS_ANSWER, &answer(&id, hash))? {
            Ok(approval) => approval,
            Err(fault) => match answered_before(&fault, &id, list, &daemon) {
                Some(one) => daemon.decide(method::APPROVALS_ANSWER, &answer(&one.id, Some(one.hash)))?,
                None => return Err(fault.into()),
            },
        };
        match self.facts.json {
            true => context.console.json(&approval)?,
            false => context.console.draw(&draw(std::slice::from_ref(&approval)))?,
        }
        // What was refused rests already, or an earlier content of it goes on. A call goes on by itself.
        if allow && approval.call.is_none() { reached(&approval.extension, context) } else { Ok(0) }
    }
}

/// What the kernel would take for the one that is meant, of those that were listed.
fn shown<'a>(list: &'a [Approval], id: &str) -> Option<&'a Approval> {
    let waits = |one: &Approval| one.state == ApprovalState::Pending && one.extension == id;
    let mut meant =
        list.iter().filter(|one| one.id == id || waits(one) || one.call.is_some() && one.id.starts_with(id));
    meant.next().filter(|_| meant.next().is_none())
}

/// The answer that holds for an extension of this name as it is now, where nothing of it waits for one. What was answered
/// for other content is not meant.
fn answered_before(fault: &Fault, name: &str, list: Vec<Approval>, daemon: &Daemon<'_>) -> Option<Approval> {
    let of_it = |one: &Approval| one.extension == name && one.answered.is_some();
    if fault.code != FaultCode::NotFound || !list.iter().any(of_it) {
        return None;
    }
    let named = Named { id: name.to_owned() };
    let now = daemon.call::<ExtensionDetail>(method::EXTENSIONS_SHOW, &named).ok()?;
    list.into_iter().find(|one| of_it(one) && now.content.as_ref() == Some(&one.hash))
}

/// Says what became of the extension where there is something to say; the exit status tells whether it works.
fn reached(extension: &str, context: &Context) -> Result<u8, Failure> {
    let list: Vec<ExtensionStatus> = context.daemon().get(method::EXTENSIONS_LIST)?;
    let Some(now) = list.into_iter().find(|one| one.id == extension) else {
        let gone = format!("the answer is kept, but there is no extension `{extension}` any more");
        return Err(Failure::new(status::FAILED, gone).help("`drupe ext list` shows what is there"));
    };
    match now.reason {
        Some(reason) => context.console.remark(&format!("`{extension}` is {}: {reason}", word(now.state))),
        None if now.state == ExtensionState::Active => {}
        None => context.console.remark(&format!("`{extension}` is {}", word(now.state))),
    }
    Ok(Wanted::WorksAtOnce.status(now.state))
}

/// A table of what is asked about extensions, and below it each call that waits, with all that it would do. What was
/// answered about calls is a line each, and only the answer that was just given shows again what it was about.
fn draw(list: &[Approval]) -> String {
    let rows: Vec<_> = list.iter().map(row).collect();
    let mut text = table(&rows);
    for approval in list {
        if let Some(call) = approval.call.as_ref().filter(|call| !call.params.is_empty()) {
            text.push('\n');
            text.push_str(&action(approval, call));
        }
    }
    text
}

/// Exactly what a call would do: nothing of it is cut, and what a terminal would not show is written out.
fn action(approval: &Approval, call: &AskedCall) -> String {
    let AskedCall { session, agent, tool, params, preview, expires, .. } = call;
    let until = match approval.state {
        ApprovalState::Pending => format!(", and is denied at {expires}"),
        _ => String::new(),
    };
    let covers = match (&call.about, approval.state) {
        (Some(about), ApprovalState::Pending) => {
            format!(
                "`--session` allows this agent's calls of `{}` in the rest of the session\n",
                visible(about)
            )
        }
        _ => String::new(),
    };
    let changes = match preview {
        Some(CallPreview { text, input: Some(_), .. }) => {
            format!("{}\n`drupe approvals allow {}` asks you for it\n", visible(text), approval.listed())
        }
        Some(CallPreview { text, failed: false, .. }) => {
            format!("`{tool}` says that it would change this:\n{}\n", visible(text.trim_end_matches('\n')))
        }
        Some(CallPreview { text, failed: true, .. }) => {
            format!("what it would change cannot be shown: {}\n", plain(text))
        }
        None => String::new(),
    };
    format!(
        "{}: agent `{agent}` in session `{session}` calls `{tool}`{until}, with\n{}\n{changes}{covers}",
        approval.listed(),
        visible(&one_a_line(params))
    )
}

/// JSON in which every character stands as an escape that a terminal would obey, that shows nothing, or that looks like a
/// space and is none.
pub fn visible(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        let blank = matches!(c, '\u{ad}' | '\u{115f}' | '\u{1160}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}');
        let shows = c == ' ' || c == '\n' || !(c.is_whitespace() || blank || c.width().unwrap_or(0) == 0);
        if shows && (c == '\n' || !acts(c)) {
            text.push(c);
        } else {
            let units =
                c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
            text.push_str(&units);
        }
    }
    text
}

fn row(approval: &Approval) -> Vec<String> {
    let state = match approval.state {
        ApprovalState::Pending => "waits",
        ApprovalState::Allowed => "allowed",
        ApprovalState::Denied => "denied",
        ApprovalState::Withdrawn => "withdrawn",
        ApprovalState::Expired => "expired",
    };
    let when = approval.answered.unwrap_or(approval.asked);
    let what = match &approval.call {
        Some(call) => format!("{} of {}", call.tool, call.agent),
        None => approval.extension.clone(),
    };
    vec![
        plain(&approval.listed()),
        state.to_owned(),
        plain(&what),
        plain(&approval.needs.join(", ")),
        when.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(params: &str) -> Approval {
        serde_json::from_value(serde_json::json!({
            "id": "e-1", "hash": "0123456789abcdef-and-more", "needs": ["it says so"], "state": "pending",
            "asked": "2026-01-01T00:00:00Z",
            "call": {
                "session": "s", "turn": "t", "agent": "main", "tool": "remove", "params": params,
                "expires": "2026-01-01T00:10:00Z",
            },
        }))
        .expect("an approval")
    }

    #[test]
    fn a_call_that_waits_is_shown_whole_with_what_a_terminal_would_hide() {
        let params = format!(
            "{{\"path\": \"a\u{202e}b\u{1b}[2Jc\u{200b}\u{a0}\u{e0041}ü\", \"text\": \"{}END\"}}",
            "x".repeat(50_000)
        );
        let shown = draw(&[call(&params)]);
        assert!(
            shown.contains("  \"path\": \"a\\u202eb\\u001b[2Jc\\u200b\\u00a0\\udb40\\udc41ü\",\n  \"text\""),
            "{}",
            &shown[..400]
        );
        assert!(
            shown.contains("xEND\"") && shown.contains("`remove`") && shown.contains("2026-01-01T00:10:00Z")
        );
        assert!(shown.contains("e-1:0123456789abcdef:"), "the id says what was read");
    }

    #[test]
    fn what_a_call_would_change_stands_below_it_and_a_terminal_obeys_nothing_of_it() {
        let mut asked = call("{\"path\": \"a\"}");
        let mut preview = |text: &str, failed| {
            let preview = Some(CallPreview { text: text.into(), failed, input: None });
            asked.call.as_mut().expect("a call").preview = preview;
            draw(std::slice::from_ref(&asked))
        };
        let shown = preview("--- a\n+++ a\n@@ -1 +1 @@\n-x\u{1b}[2K\n+y\u{202e}\n", false);
        assert!(
            shown.contains("change this:\n--- a\n+++ a\n@@ -1 +1 @@\n-x\\u001b[2K\n+y\\u202e\n"),
            "{shown}"
        );
        let shown = preview("invalid: `old` is not in\u{1b}[2K the file", true);
        assert!(shown.contains("cannot be shown: invalid: `old`") && !shown.contains('\u{1b}'), "{shown}");
    }
}
