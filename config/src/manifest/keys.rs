//! The keys of `manifest.yaml`.

use crate::{
    agent_keys::{LIMITS, PARAMETERS},
    shape::{Key, Shape, Table, forms},
};

pub(crate) static MANIFEST: Table = Table {
    name: "the manifest",
    keys: &[
        Key::new("api", Shape::Integer { min: 1, max: u32::MAX as u64 }, "version of the manifest's form")
            .default("1"),
        Key::new("id", Shape::Text(&forms::ID), "the extension's id, equal to the name of its folder")
            .required(),
        Key::new("name", Shape::Text(&forms::NON_EMPTY), "the extension's name, for people").required(),
        Key::new("version", Shape::Text(&forms::VERSION), "version of the extension").default("\"1.0.0\""),
        Key::new("summary", Shape::Text(&forms::ANY), "one line for people").default("\"\""),
        Key::new(
            "description",
            Shape::Text(&forms::ANY),
            "for the model that routes: when to use it, when not to, what it can do",
        )
        .default("\"\""),
        Key::new(
            "entrypoint",
            Shape::Text(&forms::NON_EMPTY),
            "the native library: its file stem, or its path inside the folder; optional for agents only",
        ),
        Key::new(
            "isolation",
            Shape::Choice { known: &["process", "inproc"], later: &[] },
            "where native code runs: in a process of its own, or inside the kernel; absent: inside the kernel for shipped extensions only",
        ),
        Key::new(
            "depends_on",
            Shape::List(&Shape::Text(&forms::ID)),
            "extensions that must be active before this one",
        )
        .default("[]"),
        Key::new(
            "secrets",
            Shape::List(&Shape::Text(&forms::VARIABLE)),
            "the only variables that this extension can ask for; each must have a value",
        )
        .default("[]"),
        Key::new("config", Shape::Open, "configuration; `extensions.<id>` of drupe.yaml overrides it")
            .default("{}"),
        Key::new("config_schema", Shape::Open, "JSON Schema of the configuration"),
        Key::new(
            "setup_instructions",
            Shape::Text(&forms::ANY),
            "shown when a secret or a configuration key is missing",
        ),
        Key::new(
            "scope",
            Shape::Choice { known: &["shared", "agents"], later: &[] },
            "who is offered its tools: the orchestrator and agents that list it, or those agents only",
        )
        .default("\"shared\""),
        Key::new(
            "rights",
            Shape::List(&Shape::Choice {
                known: &["submit", "control", "restart", "processes", "network"],
                later: &["secure_input"],
            }),
            "host services beyond the extension's own affairs, and TCP from a process of its own",
        )
        .default("[]"),
        Key::new("enabled", Shape::Bool, "whether it is loaded").default("true"),
        Key::new("overrides", Shape::Bool, "lets it replace a shipped extension of the same id")
            .default("false"),
        Key::new("agent", Shape::Record(&AGENT), "makes the extension an agent"),
        Key::new(
            "subscribe",
            Shape::List(&Shape::Record(&SUBSCRIPTION)),
            "messages upon which the agent is run",
        )
        .default("[]"),
        Key::later("schedules"),
        Key::later("mcp_servers"),
        Key::later("skills"),
    ],
    rest: None,
};

pub(super) static SUBSCRIPTION: Table = Table {
    name: "the subscription",
    keys: &[
        Key::new(
            "topic",
            Shape::Text(&forms::TOPIC),
            "which messages: `<extension>.<topic>`, `agent_invoked`, `agent_result` or `agent_error`",
        )
        .required(),
        Key::new("task", Shape::Text(&forms::NON_EMPTY), "what the agent is to do on each message")
            .required(),
    ],
    rest: None,
};

pub(super) static AGENT: Table = Table {
    name: "`agent`",
    keys: &[
        Key::new(
            "integration_mode",
            Shape::Choice { known: &["tool"], later: &["handoff"] },
            "how the orchestrator uses the agent",
        )
        .default("\"tool\""),
        Key::new(
            "model",
            Shape::OneOrMany(&Shape::Text(&forms::MODEL)),
            "a model, an alias, or a list to try in order",
        ),
        Key::new(
            "instructions",
            Shape::Text(&forms::ANY),
            "the system prompt, or a path ending in .jinja2, .j2, .md or .txt",
        ),
        Key::new(
            "context",
            Shape::OneOrMany(&Shape::Text(&forms::NON_EMPTY)),
            "given to the model before the task, as data: a text, or a list of files",
        )
        .default("[]"),
        Key::new("parameters", Shape::Record(&PARAMETERS), "how the model is asked"),
        Key::new(
            "uses_tools",
            Shape::List(&Shape::Text(&forms::SELECTOR)),
            "the extensions whose tools it may use, or `id/tool_name` for one tool; empty: none",
        )
        .default("[]"),
        Key::new("uses_agents", Shape::List(&Shape::Text(&forms::ID)), "agents that it may call")
            .default("[]"),
        Key::new("input", Shape::Record(&INPUT), "the form of its task"),
        Key::new("output", Shape::Record(&OUTPUT), "the form of its answer"),
        Key::new("usage", Shape::Text(&forms::ANY), "an example input, shown in help"),
        Key::new(
            "tool_name",
            Shape::Text(&forms::TOOL_NAME),
            "the name offered to models in place of `agent_<id>`",
        ),
        Key::new(
            "infer",
            Shape::Bool,
            "`false`: only an explicit choice or an agent that lists it reaches it",
        )
        .default("true"),
        Key::new("limits", Shape::Record(&LIMITS), "what a run may spend"),
        Key::new(
            "offline",
            Shape::List(&Shape::Record(&OFFLINE)),
            "what the offline model does for this agent; the first rule that matches acts",
        )
        .default("[]"),
        Key::later("approvals"),
    ],
    rest: None,
};

static INPUT: Table = Table {
    name: "the input",
    keys: &[
        Key::new("format", Shape::Choice { known: &["text", "json"], later: &[] }, "text or JSON")
            .default("\"text\""),
        Key::new("schema", Shape::Open, "JSON Schema of a JSON task"),
    ],
    rest: None,
};

static OUTPUT: Table = Table {
    name: "the output",
    keys: &[
        Key::new(
            "format",
            Shape::Choice { known: &["text", "markdown", "json"], later: &[] },
            "text, markdown or JSON",
        )
        .default("\"text\""),
        Key::new("schema", Shape::Open, "JSON Schema of a JSON answer"),
    ],
    rest: None,
};

pub(super) static OFFLINE: Table = Table {
    name: "the offline rule",
    keys: &[
        Key::new(
            "when",
            Shape::Text(&forms::NON_EMPTY),
            "applies where the task matches this regular expression",
        ),
        Key::new("after", Shape::Text(&forms::TOOL_NAME), "applies after this tool has run"),
        Key::new("call", Shape::Text(&forms::TOOL_NAME), "calls this tool"),
        Key::new("with", Shape::Open, "the parameters of the call; texts in it are templates"),
        Key::new("say", Shape::Text(&forms::ANY), "answers with this template"),
    ],
    rest: None,
};
