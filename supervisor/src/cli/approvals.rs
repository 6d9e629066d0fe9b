//! `drupe approvals`: what waits for the operator's agreement: extensions and single calls of tools.

use drupe_config::acts;
use drupe_extension_api::{
    Fault, FaultCode,
    control::{
        Approval, ApprovalAnswer, ApprovalState, AskedCall, ExtensionDetail, ExtensionState, ExtensionStatus,
        Named, method,
    },
};
use unicode_width::UnicodeWidthChar;

use super::{
    Context, Facts,
    client::Daemon,
    console::{plain, table},
    ext::decide::Wanted,
    failure::{Failure, status},
    status::word,
};

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
    Allow(Answer),
    /// Do not agree
    Deny(Answer),
}

#[derive(Debug, clap::Args)]
struct Answer {
    /// Its id, or the extension that waits or was answered before; of a call the beginning of its id is enough
    id: String,
    #[command(flatten)]
    facts: Facts,
}

impl Approvals {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        match self.verb {
            None => list(self.facts, context),
            Some(Verb::List(facts)) => list(facts, context),
            Some(Verb::Allow(answer)) => answer.give(true, context),
            Some(Verb::Deny(answer)) => answer.give(false, context),
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

impl Answer {
    fn give(self, allow: bool, context: &Context) -> Result<u8, Failure> {
        let daemon = context.daemon();
        let answer = |id: &str| ApprovalAnswer { id: id.to_owned(), allow };
        let approval: Approval = match daemon.decided(method::APPROVALS_ANSWER, &answer(&self.id))? {
            Ok(approval) => approval,
            Err(fault) => match answered_before(&fault, &self.id, &daemon)? {
                Some(id) => daemon.decide(method::APPROVALS_ANSWER, &answer(&id))?,
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

/// The id of the answer that holds for an extension of this name as it is now, where nothing of it waits for one. What was
/// answered for other content is not meant.
fn answered_before(fault: &Fault, name: &str, daemon: &Daemon<'_>) -> Result<Option<String>, Failure> {
    if fault.code != FaultCode::NotFound {
        return Ok(None);
    }
    let all: Vec<Approval> = daemon.get(method::APPROVALS_LIST)?;
    let of_it: Vec<_> =
        all.into_iter().filter(|one| one.extension == name && one.answered.is_some()).collect();
    if of_it.is_empty() {
        return Ok(None);
    }
    let Ok(now) = daemon.call::<ExtensionDetail>(method::EXTENSIONS_SHOW, &Named { id: name.to_owned() })
    else {
        return Ok(None);
    };
    Ok(of_it.into_iter().find(|one| now.content.as_ref() == Some(&one.hash)).map(|one| one.id))
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
/// answered about calls is a line each.
fn draw(list: &[Approval]) -> String {
    let rows: Vec<_> = list.iter().map(row).collect();
    let waits = |one: &&Approval| one.state == ApprovalState::Pending;
    let actions = list.iter().filter(waits).filter_map(|one| Some(action(&one.id, one.call.as_ref()?)));
    let mut text = table(&rows);
    for action in actions {
        text.push('\n');
        text.push_str(&action);
    }
    text
}

/// Exactly what a call would do: nothing of it is cut, and what a terminal would not show is written out.
fn action(id: &str, call: &AskedCall) -> String {
    let AskedCall { session, agent, tool, params, expires, .. } = call;
    format!(
        "{id}: agent `{agent}` in session `{session}` calls `{tool}`, and is denied at {expires}, with\n{}\n",
        visible(params)
    )
}

/// JSON in which every character stands as an escape that a terminal would obey, that shows nothing, or that looks like a
/// space and is none.
fn visible(json: &str) -> String {
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
        plain(&approval.id),
        state.to_owned(),
        plain(&what),
        plain(&approval.needs.join(", ")),
        when.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_waits_is_shown_whole_with_what_a_terminal_would_hide() {
        let params = format!(
            "{{\"path\": \"a\u{202e}b\u{1b}[2Jc\u{200b}\u{a0}\u{e0041}ü\", \"text\": \"{}END\"}}",
            "x".repeat(50_000)
        );
        let approval: Approval = serde_json::from_value(serde_json::json!({
            "id": "e-1", "hash": "h", "needs": ["it says so"], "asked": "2026-01-01T00:00:00Z", "state": "pending",
            "call": {
                "session": "s", "turn": "t", "agent": "main", "tool": "remove", "params": params,
                "expires": "2026-01-01T00:10:00Z",
            },
        }))
        .expect("an approval");
        let shown = draw(&[approval]);
        assert!(
            shown.contains(r#"{"path": "a\u202eb\u001b[2Jc\u200b\u00a0\udb40\udc41ü", "text""#),
            "{}",
            &shown[..400]
        );
        assert!(
            shown.contains("xEND\"}") && shown.contains("`remove`") && shown.contains("2026-01-01T00:10:00Z")
        );
    }
}
