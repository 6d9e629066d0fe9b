//! `drupe pair`: people who write through chat services, let in or kept out.

use drupe_extension_api::control::{Allowance, Named, PersonAnswer, PersonState, PersonStatus, method};

use super::{
    Context, Facts,
    console::{plain, table},
    failure::Failure,
    figures::moment,
    token::{allowance, amounts},
};

/// What `drupe pair` is asked to do.
#[derive(Debug, clap::Args)]
pub struct Pair {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    facts: Facts,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List those who wait, and those who were answered
    List(Facts),
    /// Let in whoever was shown this code
    Allow(Allow),
    /// Keep out whoever was shown this code; they are shown nothing from now on
    Deny(Code),
    /// Forget what was said of somebody: what waits for them ends, and they begin anew
    Revoke(One),
}

#[derive(Debug, clap::Args)]
struct Allow {
    #[command(flatten)]
    code: Code,
    /// Their answers to questions about calls count
    #[arg(long)]
    may_approve: bool,
    /// What may be used in their sessions in a day (UTC): `2usd`, `500000tokens`, `100runs`, or some of these with commas
    #[arg(long, value_name = "AMOUNTS", value_parser = allowance)]
    per_day: Option<Allowance>,
}

#[derive(Debug, clap::Args)]
struct Code {
    /// The code, as they tell it
    code: String,
}

#[derive(Debug, clap::Args)]
struct One {
    /// Who, as `drupe pair` lists them: `channel/id`
    id: String,
}

impl Pair {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        let answer = |answer: PersonAnswer| -> Result<PersonStatus, Failure> {
            context.daemon().decide(method::PEOPLE_ANSWER, &answer)
        };
        let (person, became) = match self.verb {
            None => return list(self.facts, context),
            Some(Verb::List(facts)) => return list(facts, context),
            Some(Verb::Allow(Allow { code: Code { code }, may_approve, per_day })) => {
                let per_day = per_day.unwrap_or_default();
                (answer(PersonAnswer { code, allow: true, may_approve, per_day })?, "is answered from now on")
            }
            Some(Verb::Deny(Code { code })) => {
                let per_day = Allowance::default();
                let answered = answer(PersonAnswer { code, allow: false, may_approve: false, per_day })?;
                (answered, "is shown nothing from now on")
            }
            Some(Verb::Revoke(One { id })) => {
                (context.daemon().decide(method::PEOPLE_REVOKE, &Named { id })?, "is not known any more")
            }
        };
        context.console.remark(&format!("{} {became}", called(&person)));
        Ok(0)
    }
}

fn list(facts: Facts, context: &Context) -> Result<u8, Failure> {
    let list: Vec<PersonStatus> = context.daemon().get(method::PEOPLE_LIST)?;
    match facts.json {
        true => context.console.json(&list)?,
        false if list.is_empty() => context.console.remark("nobody has written who had to be known"),
        false => context.console.draw(&table(&list.iter().map(row).collect::<Vec<_>>()))?,
    }
    Ok(0)
}

fn row(person: &PersonStatus) -> Vec<String> {
    let told = match (person.state, &person.code) {
        (PersonState::Waiting, Some(code)) => {
            let until = person.expires.map(|at| format!(" until {}", moment(at))).unwrap_or_default();
            format!("waits with {}{until}", plain(code))
        }
        (PersonState::Waiting, None) => "waits".to_owned(),
        (PersonState::Denied, _) => "is kept out".to_owned(),
        (PersonState::Allowed, _) => {
            let approves = if person.may_approve { ", may approve calls" } else { "" };
            let bound = amounts(&person.per_day).map(|bound| format!(", at most {bound} a day"));
            format!("is known{approves}{}", bound.unwrap_or_default())
        }
    };
    let name = person.name.as_deref().map(plain).unwrap_or_default();
    vec![plain(&person.id).to_string(), name.to_string(), told]
}

fn called(person: &PersonStatus) -> String {
    let name = person.name.as_deref().map(|name| format!(" ({})", plain(name))).unwrap_or_default();
    format!("`{}`{name}", plain(&person.id))
}
