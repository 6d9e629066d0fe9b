//! `drupe token`: what programs show that are not the operator.

use drupe_extension_api::{
    AgentId, Fault,
    control::{Allowance, Named, Power, TokenMade, TokenNew, TokenStatus, method},
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
    /// The same as `--may read`
    #[arg(long, conflicts_with = "may")]
    read_only: bool,
    /// The session that its bearer reaches, with those that begin with it and `:`; `*` for all; else `token.NAME`
    #[arg(long)]
    sessions: Option<String>,
    /// The agents that its bearer reaches, with commas between them; else all
    #[arg(long, visible_alias = "agent", value_delimiter = ',')]
    agents: Vec<AgentId>,
    /// What may be used in its sessions in a day (UTC): `2usd`, `500000tokens`, `100runs`, or some of these with commas
    #[arg(long, value_name = "AMOUNTS", value_parser = allowance)]
    per_day: Option<Allowance>,
    /// The same, for each name that is shown behind the token, as in `TOKEN/ann`
    #[arg(long, value_name = "AMOUNTS", value_parser = allowance)]
    per_day_each: Option<Allowance>,
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
        let Self { name, may, read_only, sessions, agents, per_day, per_day_each, facts } = self;
        let may = if read_only { vec![Power::Read] } else { may };
        let (per_day, per_day_each) = (per_day.unwrap_or_default(), per_day_each.unwrap_or_default());
        let ask = TokenNew { name, may, sessions, agents, per_day, per_day_each };
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
    let bounds = [(&token.per_day, "a day"), (&token.per_day_each, "a day for each name behind it")];
    let bounds =
        bounds.iter().filter_map(|(allowance, of)| Some(format!(", at most {} {of}", amounts(allowance)?)));
    format!("may {} {sessions}, {agents}{}", may.join(", "), bounds.collect::<String>())
}

/// How much may be used; none where there is no bound.
pub fn amounts(allowance: &Allowance) -> Option<String> {
    let Allowance { max_tokens, max_cost_usd, max_invocations } = allowance;
    let parts = [
        max_cost_usd.map(|usd| format!("${usd}")),
        max_tokens.map(|tokens| format!("{tokens} tokens")),
        max_invocations.map(|runs| format!("{runs} runs")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Amounts with their units: `2usd,500000tokens,100runs`.
pub fn allowance(text: &str) -> Result<Allowance, Fault> {
    let mut read = Allowance::default();
    for amount in text.split(',').map(str::trim) {
        let unit = amount.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(amount.len());
        let (number, unit) = amount.split_at(unit);
        let wrong =
            || Fault::invalid(format!("`{amount}` is no amount: write `2usd`, `500000tokens` or `100runs`"));
        let whole = || number.trim().parse::<u64>().map_err(|_| wrong());
        let twice = match unit {
            "usd" => {
                let usd: f64 = number.trim().parse().map_err(|_| wrong())?;
                let usd = Some(usd).filter(|usd| usd.is_finite() && *usd >= 0.0).ok_or_else(wrong)?;
                read.max_cost_usd.replace(usd).is_some()
            }
            "tokens" => read.max_tokens.replace(whole()?).is_some(),
            "runs" => read.max_invocations.replace(whole()?).is_some(),
            _ => return Err(wrong()),
        };
        if twice {
            return Err(Fault::invalid(format!("`{unit}` stands twice")));
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_bear_their_units_and_each_stands_once() {
        let read = allowance("2.5usd, 500000tokens,100runs").expect("three amounts");
        assert_eq!(amounts(&read).as_deref(), Some("$2.5, 500000 tokens, 100 runs"));
        assert_eq!(amounts(&allowance("0usd").expect("nothing is an amount")).as_deref(), Some("$0"));
        assert_eq!(amounts(&Allowance::default()), None);
        for wrong in ["", "2", "usd", "-1usd", "infusd", "1eur", "1.5runs", "2usd,3usd", "2usd,"] {
            assert!(allowance(wrong).is_err(), "{wrong}");
        }
    }
}
