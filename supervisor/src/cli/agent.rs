//! `drupe agent`: who can be asked.

use drupe_extension_api::{
    IntegrationMode,
    control::{AgentDetail, AgentStatus, AgentTemplate, Named, TemplateQuery, method},
};

use super::{
    Context, Facts,
    console::{Style, duration, plain, short, table},
    failure::{Failure, status},
    figures::{count, many, money},
};

/// The verbs of `drupe agent`.
#[derive(Debug, clap::Subcommand)]
pub enum Agent {
    /// List the agents
    List(Facts),
    /// Show an agent in full
    Show(Show),
    /// Print an agent as a complete manifest with comments, to copy
    ///
    /// Every key stands there with the value that holds: that of the agent's manifest, else of `agents.defaults` in
    /// drupe.yaml, else the built-in one. Without ID it is a manifest for a new agent.
    ///
    /// The first text is the `manifest.yaml` of a folder, the second the same agent as a single `.md` file; use one of
    /// them. `--as` prints one alone: `drupe agent template --as file > my_agent.md`. The name of
    /// the folder or file is the id. `drupe ext check PATH` says what is amiss in it.
    Template(TemplateArgs),
}

/// Arguments of `drupe agent template`.
#[derive(Debug, clap::Args)]
pub struct TemplateArgs {
    /// Of which agent; without it, for a new one
    id: Option<String>,
    /// Print this form and nothing beside it
    #[arg(long = "as", value_enum)]
    form: Option<Form>,
    #[command(flatten)]
    facts: Facts,
}

/// In which form an agent is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// The `manifest.yaml` of a folder
    Folder,
    /// A single file that ends in `.md`
    File,
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
            Self::Template(ask) => template(ask, context)?,
        }
        Ok(0)
    }
}

fn template(TemplateArgs { id, form, facts }: TemplateArgs, context: &Context) -> Result<(), Failure> {
    let daemon = context.daemon();
    if facts.json {
        let texts: AgentTemplate = daemon.call(method::AGENTS_TEMPLATE, &TemplateQuery { id })?;
        return context.console.json(&texts);
    }
    let about = id.clone().filter(|_| form.is_none());
    let AgentTemplate { manifest, frontmatter } =
        daemon.call(method::AGENTS_TEMPLATE, &TemplateQuery { id })?;
    if let Some(id) = about {
        let detail: AgentDetail = daemon.call(method::AGENTS_SHOW, &Named { id })?;
        context.console.remark(&short(&detail.status.description, 400));
        if let Some(usage) = detail.status.usage.filter(|usage| !usage.trim().is_empty()) {
            context.console.remark(&format!("for example: {}", short(&usage, 400)));
        }
    }
    // One text is copied, so nothing else is printed beside it; two are told apart by a line that neither of them has.
    let text = match (form, frontmatter) {
        (Some(Form::Folder), _) => manifest,
        (Some(Form::File), Some(file)) => file,
        (Some(Form::File), None) => {
            return Err(Failure::new(status::FAILED, "an agent with native code is no single file")
                .help("`--as folder` prints its manifest"));
        }
        (None, Some(file)) => format!("{manifest}\n{RULE}\n\n{file}"),
        (None, None) => manifest,
    };
    context.console.print(&text)
}

/// The line between the two forms.
const RULE: &str = "# ---- or as a single file ----";

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
    let AgentStatus { id, name, description, mode, model, tools, infer, usage, .. } = &detail.status;
    let mut text = format!("{} {}\n", Style::Bold.paint(&format!("@{id}"), colour), plain(name));
    let limits = &detail.limits;
    let mut rows = Vec::new();
    let mut row = |name: &str, value: &str| {
        if !value.trim().is_empty() {
            rows.push(vec![format!("  {name}"), plain(value.trim()).replace('\n', " ")]);
        }
    };
    row("description", description);
    row("usage", usage.as_deref().unwrap_or_default());
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
