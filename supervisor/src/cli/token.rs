//! `drupe token`: what programs show that are not the operator.

use drupe_extension_api::{
    AgentId,
    control::{Named, Power, TokenMade, TokenNew, TokenStatus, method},
};
use serde_json::Value;

use super::{
    Context, Facts,
    console::{plain, table},
    failure::Failure,
    figures::moment,
};

/// Arguments of `drupe token`.
#[derive(Debug, clap::Args)]
pub struct Token {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    facts: Facts,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List them
    List(Facts),
    /// Make one; it is shown this once
    New(New),
    /// Take one back; what its bearers do ends
    Revoke(One),
}

#[derive(Debug, clap::Args)]
struct New {
    /// Its name
    name: String,
    /// What its bearer may do: read, submit, direct, inspect, extend, operate
    #[arg(long, value_delimiter = ',', value_parser = power, default_values = ["read", "submit", "direct"])]
    may: Vec<Power>,
    /// The session that its bearer reaches, with those that begin with it and `:`; `*` for all; else `token.NAME`
    #[arg(long)]
    sessions: Option<String>,
    /// An agent that its bearer reaches; as often as there are; else all
    #[arg(long = "agent")]
    agents: Vec<AgentId>,
    #[command(flatten)]
    facts: Facts,
}

#[derive(Debug, clap::Args)]
struct One {
    /// Its name
    name: String,
}

fn power(text: &str) -> Result<Power, String> {
    let names = || Power::ALL.map(Power::name).join(", ");
    Power::ALL
        .into_iter()
        .find(|power| power.name() == text)
        .ok_or_else(|| format!("it is none of {}", names()))
}

impl Token {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        match self.verb {
            None => list(self.facts, context),
            Some(Verb::List(facts)) => list(facts, context),
            Some(Verb::New(new)) => new.make(context),
            Some(Verb::Revoke(One { name })) => {
                let _: Value = context.daemon().decide(method::TOKENS_REVOKE, &Named { id: name.clone() })?;
                context.console.remark(&format!("token `{}` is revoked", plain(&name)));
                Ok(0)
            }
        }
    }
}

impl New {
    fn make(self, context: &Context) -> Result<u8, Failure> {
        let Self { name, may, sessions, agents, facts } = self;
        let ask = TokenNew { name, may, sessions, agents };
        let made: TokenMade = context.daemon().decide(method::TOKENS_NEW, &ask)?;
        if facts.json {
            return context.console.json(&made).map(|()| 0);
        }
        context.console.remark(&format!("{}; it is not shown again:", scope(&made.status)));
        context.console.draw(&format!("{}\n", made.token))?;
        Ok(0)
    }
}

fn list(facts: Facts, context: &Context) -> Result<u8, Failure> {
    let list: Vec<TokenStatus> = context.daemon().get(method::TOKENS_LIST)?;
    let row = |token: &TokenStatus| vec![token.name.clone(), moment(token.created), scope(token)];
    match facts.json {
        true => context.console.json(&list)?,
        false if list.is_empty() => context.console.remark("there is no token but the operator's own"),
        false => context.console.draw(&table(&list.iter().map(row).collect::<Vec<_>>()))?,
    }
    Ok(0)
}

/// How far the bearer of a token reaches.
fn scope(token: &TokenStatus) -> String {
    let may: Vec<_> = token.may.iter().map(|power| power.name()).collect();
    let sessions = match &token.sessions {
        Some(name) => format!("in `{}` and below", plain(name)),
        None => "in all sessions".into(),
    };
    let agents: Vec<_> = token.agents.iter().map(|agent| format!("`{agent}`")).collect();
    let agents =
        if agents.is_empty() { "with all agents".into() } else { format!("with {}", agents.join(", ")) };
    format!("may {} {sessions}, {agents}", may.join(", "))
}
