//! `drupe agent`: who can be asked.

use drupe_extension_api::{
    IntegrationMode,
    control::{AgentDetail, AgentStatus, Named, method},
};

use super::{
    Context, Facts,
    console::{Style, duration, plain, short, table},
    failure::Failure,
    figures::{count, many, money},
};

/// The verbs of `drupe agent`.
#[derive(Debug, clap::Subcommand)]
pub enum Agent {
    /// List the agents
    List(Facts),
    /// Show an agent in full
    Show(Show),
}

/// Arguments of `drupe agent show`.
#[derive(Debug, clap::Args)]
pub struct Show {
    /// Its id
    id: String,
    #[command(flatten)]
    facts: Facts,
}

impl Agent {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        match self {
            Self::List(facts) => {
                let list: Vec<AgentStatus> = context.daemon().get(method::AGENTS_LIST)?;
                match facts.json {
                    true => context.console.json(&list)?,
                    false if list.is_empty() => context.console.remark("there are no agents"),
                    false => context.console.draw(&lines(&list))?,
                }
            }
            Self::Show(Show { id, facts }) => {
                let detail: AgentDetail = context.daemon().call(method::AGENTS_SHOW, &Named { id })?;
                match facts.json {
                    true => context.console.json(&detail)?,
                    false => context.console.draw(&render(&detail, context.console.colour))?,
                }
            }
        }
        Ok(0)
    }
}

pub fn lines(list: &[AgentStatus]) -> String {
    let row = |agent: &AgentStatus| {
        let model = agent.model.clone().unwrap_or_else(|| "its own".into());
        vec![format!("@{}", agent.id), model, short(&agent.description, 90)]
    };
    table(&list.iter().map(row).collect::<Vec<_>>())
}

/// What its tools add to its requests, and which add the most.
fn added(detail: &AgentDetail) -> String {
    let now = || detail.sizes.iter().filter(|size| !size.on_demand);
    let largest =
        now().take(3).map(|size| format!("{} of {} {}", size.tool, size.extension, count(size.bytes)));
    let largest: Vec<String> = largest.collect();
    let more = match detail.sizes.len() - now().count() {
        0 => String::new(),
        more => format!("; {more} more are brought when it asks for them"),
    };
    let bytes: u64 = now().map(|size| size.bytes).sum();
    format!("{} bytes to each request, the most {}{more}", count(bytes), largest.join(", "))
}

fn render(detail: &AgentDetail, colour: bool) -> String {
    let AgentStatus { id, name, description, mode, model, tools, infer } = &detail.status;
    let mut text = format!("{} {}\n", Style::Bold.paint(&format!("@{id}"), colour), plain(name));
    let limits = &detail.limits;
    let mut rows = Vec::new();
    let mut row = |name: &str, value: &str| {
        if !value.trim().is_empty() {
            rows.push(vec![format!("  {name}"), plain(value.trim()).replace('\n', " ")]);
        }
    };
    row("description", description);
    row("usage", detail.usage.as_deref().unwrap_or_default());
    row("model", model.as_deref().unwrap_or("its own"));
    row("mode", if *mode == IntegrationMode::Tool { "tool" } else { "handoff" });
    row("chosen by", if *infer { "you, and the orchestrator" } else { "you, and agents that list it" });
    row("tools", &tools.join(", "));
    row("tools add", &added(detail));
    let cost = limits.max_cost_usd.map(|usd| format!(", {}", money(usd))).unwrap_or_default();
    row(
        "a run may take",
        &format!(
            "{}, {}, {}, {} of agents, {}{cost}",
            many(limits.max_turns.into(), "step", "steps"),
            many(limits.max_tokens_per_invocation, "token", "tokens"),
            many(limits.max_tool_calls.into(), "tool call", "tool calls"),
            many(limits.max_invocations.into(), "run", "runs"),
            duration(limits.time_budget_ms)
        ),
    );
    text.push_str(&table(&rows));
    if !detail.excluded.is_empty() {
        text.push_str(&format!("{}\n", Style::Bold.paint("tools that it does not have", colour)));
        let excluded =
            detail.excluded.iter().map(|one| vec![format!("  {}", plain(&one.tool)), plain(&one.reason)]);
        text.push_str(&table(&excluded.collect::<Vec<_>>()));
    }
    text
}
