//! `drupe approvals`: what waits for the operator's agreement.

use drupe_extension_api::{
    Fault, FaultCode,
    control::{
        Approval, ApprovalAnswer, ApprovalState, ExtensionDetail, ExtensionState, ExtensionStatus, Named,
        method,
    },
};

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

/// Which one.
#[derive(Debug, clap::Args)]
struct Answer {
    /// Its id, or the extension that waits or was answered before
    id: String,
    #[command(flatten)]
    facts: Facts,
}

impl Approvals {
    /// Does it.
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
        false => context.console.draw(&table(&list.iter().map(row).collect::<Vec<_>>()))?,
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
            false => context.console.draw(&table(&[row(&approval)]))?,
        }
        // What was refused rests already, or an earlier content of it goes on.
        if allow { reached(&approval.extension, context) } else { Ok(0) }
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

fn row(approval: &Approval) -> Vec<String> {
    let state = match approval.state {
        ApprovalState::Pending => "waits",
        ApprovalState::Allowed => "allowed",
        ApprovalState::Denied => "denied",
        ApprovalState::Withdrawn => "withdrawn",
    };
    let when = approval.answered.unwrap_or(approval.asked);
    vec![
        plain(&approval.id),
        state.to_owned(),
        plain(&approval.extension),
        plain(&approval.needs.join(", ")),
        when.to_string(),
    ]
}
