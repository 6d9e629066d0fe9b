//! `drupe bus`: messages between extensions that were given up.

use std::collections::BTreeMap;

use drupe_extension_api::control::{DeadMessage, Numbered, method};
use serde_json::Value;

use super::{
    Context, Facts,
    console::{plain, short, table},
    failure::Failure,
    figures::moment,
};

/// Characters of a message that are shown; `--json` has all.
const PAYLOAD: usize = 80;

/// Characters of a reason.
const REASON: usize = 100;

/// The verbs of `drupe bus`.
#[derive(Debug, clap::Subcommand)]
pub enum Bus {
    /// Messages that were given up: list, retry, drop
    Dead(Dead),
}

/// Arguments of `drupe bus dead`.
#[derive(Debug, clap::Args)]
pub struct Dead {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    facts: Facts,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List them
    List(Facts),
    /// Deliver one again
    Retry(One),
    /// Forget one
    Drop(One),
}

#[derive(Debug, clap::Args)]
struct One {
    /// Its number
    id: u64,
}

impl Bus {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        let Self::Dead(Dead { verb, facts }) = self;
        match verb {
            None => list(facts, context),
            Some(Verb::List(facts)) => list(facts, context),
            Some(Verb::Retry(One { id })) => {
                let _: Value = context.daemon().decide(method::BUS_RETRY, &Numbered { id })?;
                context.console.remark(&format!(
                    "message {id} is delivered again; `drupe why {id}` tells what came of it"
                ));
                Ok(0)
            }
            Some(Verb::Drop(One { id })) => {
                let _: Value = context.daemon().decide(method::BUS_DROP, &Numbered { id })?;
                context.console.remark(&format!("message {id} is forgotten"));
                Ok(0)
            }
        }
    }
}

fn list(facts: Facts, context: &Context) -> Result<u8, Failure> {
    let said: Value = context.daemon().get(method::BUS_DEAD)?;
    if facts.json {
        return context.console.json(&said).map(|()| 0);
    }
    let list: Vec<DeadMessage> = serde_json::from_value(said)?;
    match list.is_empty() {
        true => context.console.remark("no message was given up"),
        false => context.console.draw(&lines(&list))?,
    }
    Ok(0)
}

/// A line a message, and one for why it was given up; at the end, of whom there were more.
fn lines(list: &[DeadMessage]) -> String {
    let row = |message: &DeadMessage| {
        vec![
            message.id.to_string(),
            moment(message.published),
            format!("{} → {}", plain(&message.topic), plain(&message.subscriber)),
            short(&message.payload.to_string(), PAYLOAD),
        ]
    };
    let lines = table(&list.iter().map(row).collect::<Vec<_>>());
    let reasons = list.iter().map(|message| {
        let tried = match (message.cut, message.attempts) {
            (0, 1) => "tried once".into(),
            (0, attempts) => format!("tried {attempts} times"),
            (1, _) => "cut once".into(),
            (cut, _) => format!("the latest of {cut} that were cut"),
        };
        format!("    {tried}: {}", short(&message.reason, REASON))
    });
    let let_go: BTreeMap<&str, u64> = list
        .iter()
        .filter(|message| message.let_go > 0)
        .map(|message| (message.subscriber.as_str(), message.let_go))
        .collect();
    let let_go = let_go.into_iter().map(|(subscriber, count)| {
        let older = if count == 1 { "older message was" } else { "older messages were" };
        format!("{}: {count} {older} let go, as there were too many\n", plain(subscriber))
    });
    let messages = lines.lines().zip(reasons).map(|(line, reason)| format!("{line}\n{reason}\n"));
    messages.chain(let_go).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_dead_message_says_where_it_should_have_gone_and_why_it_did_not() {
        let list = json!([
            {"id": 7, "topic": "kv.changed", "subscriber": "agent:clerk", "attempts": 8, "reason": "no such\nagent",
             "published": "2026-03-01T10:00:00Z", "payload": {"key": "a"}},
            {"id": 12, "topic": "x", "subscriber": "extension:y", "attempts": 1, "reason": "no",
             "published": "2026-03-01T10:00:00Z", "payload": 1, "let_go": 1},
            {"id": 13, "topic": "x", "subscriber": "agent:z", "attempts": 1, "reason": "a circle", "cut": 1,
             "published": "2026-03-01T10:00:00Z", "payload": 1, "let_go": 30},
            {"id": 14, "topic": "y", "subscriber": "agent:z", "attempts": 1, "reason": "a circle", "cut": 7,
             "published": "2026-03-01T10:00:00Z", "payload": 1, "let_go": 30},
        ]);
        let list: Vec<DeadMessage> = serde_json::from_value(list).expect("a list");
        let expected = "\
7   2026-03-01 10:00 UTC  kv.changed → agent:clerk  {\"key\":\"a\"}
    tried 8 times: no such agent
12  2026-03-01 10:00 UTC  x → extension:y           1
    tried once: no
13  2026-03-01 10:00 UTC  x → agent:z               1
    cut once: a circle
14  2026-03-01 10:00 UTC  y → agent:z               1
    the latest of 7 that were cut: a circle
agent:z: 30 older messages were let go, as there were too many
extension:y: 1 older message was let go, as there were too many
";
        assert_eq!(lines(&list), expected);
    }
}
