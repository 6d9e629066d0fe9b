//! `drupe approvals`: what waits for the operator's agreement.

use drupe_extension_api::control::{
    Approval, ApprovalAnswer, ApprovalState, ExtensionState, ExtensionStatus, method,
};

use super::{
    Context, Facts,
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
    /// Its id, or the extension that waits
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
        let answer = ApprovalAnswer { id: self.id, allow };
        let approval: Approval = context.daemon().decide(method::APPROVALS_ANSWER, &answer)?;
        match self.facts.json {
            true => context.console.json(&approval)?,
            false => context.console.draw(&table(&[row(&approval)]))?,
        }
        // What was refused rests already, or an earlier content of it goes on.
        if allow { reached(&approval.extension, context) } else { Ok(0) }
    }
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
