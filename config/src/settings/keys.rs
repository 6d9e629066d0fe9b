//! The keys of `drupe.yaml`.

use crate::{
    Thinking,
    agent_keys::{LIMITS, MAX_MILLIS, PARAMETERS},
    settings::limits,
    shape::{Key, Shape, Table, forms},
};

const MODEL: Shape = Shape::OneOrMany(&Shape::Text(&forms::MODEL));
const TEXTS: Shape = Shape::OneOrMany(&Shape::Text(&forms::NON_EMPTY));
const TOKENS: Shape = Shape::Integer { min: 1, max: 100_000_000 };
const PRICE: Shape = Shape::Number { min: 0.0, max: 1e6 };
const FACTOR: Shape = Shape::Number { min: 0.0, max: 1e3 };

pub(crate) static CONFIG: Table = Table {
    name: "the configuration",
    keys: &[
        Key::new("api", Shape::Integer { min: 1, max: u32::MAX as u64 }, "version of the file's form")
            .default("1"),
        Key::new(
            "log",
            Shape::Text(&forms::NON_EMPTY),
            "log levels, as in RUST_LOG: `info,drupe_kernel=debug`",
        )
        .default("\"info\""),
        Key::new(
            "env",
            Shape::Map { key: &forms::VARIABLE, value: &Shape::Text(&forms::SECRET) },
            "variables for `${NAME}`; they win over HOME/.env and the environment",
        )
        .default("{}"),
        Key::new(
            "drain_timeout_ms",
            Shape::Integer { min: 0, max: 3_600_000 },
            "how long running turns may go on when the daemon stops or restarts",
        )
        .default("30000"),
        Key::new(
            "health_interval_ms",
            Shape::Integer { min: 100, max: 3_600_000 },
            "how often extensions with code are asked how they are",
        )
        .default("30000"),
        Key::new(
            "tool_response_max_bytes",
            Shape::Integer { min: 1024, max: 1024 * 1024 },
            "a tool's result above this is stored, and the model gets its head and tail",
        )
        .default("12288"),
        Key::new("orchestrator", Shape::Record(&ORCHESTRATOR), "the agent that talks with the user"),
        Key::new("agents", Shape::Record(&AGENTS), "what holds for every agent"),
        Key::new("models", Shape::Record(&MODELS), "providers, aliases and prices"),
        Key::new(
            "extensions",
            Shape::Record(&EXTENSIONS),
            "folders to search, and the configuration of each extension",
        ),
        Key::new("journal", Shape::Record(&JOURNAL), "the record of what happened"),
        Key::new("approvals", Shape::Record(&APPROVALS), "what may happen without being asked about"),
        Key::new("reload", Shape::Record(&RELOAD), "what changed extensions do to a running daemon"),
        Key::new("sandbox", Shape::Record(&SANDBOX), "how child processes are confined"),
        Key::new(
            "limits",
            Shape::Record(&limits::TABLE),
            "what days, sessions and agents may spend, and how much goes on at once",
        ),
        Key::new("inbox", Shape::Record(&INBOX), "messages that wait"),
        Key::new("tool_search", Shape::Record(&TOOL_SEARCH), "what an agent with many tools is sent"),
        Key::later("mcp_servers"),
        Key::later("skills"),
        Key::later("schedules"),
    ],
    rest: None,
};

static ORCHESTRATOR: Table = Table {
    name: "`orchestrator`",
    keys: &[
        Key::new("name", Shape::Text(&forms::NON_EMPTY), "how the assistant calls itself")
            .default("\"drupe\""),
        Key::new("model", MODEL, "a model, an alias, or a list to try in order").default("[\"default\"]"),
        Key::new(
            "instructions",
            Shape::Text(&forms::NON_EMPTY),
            "replaces the built-in prompt: a text, or a path ending in .jinja2, .j2, .md or .txt",
        ),
        Key::new("parameters", Shape::Record(&PARAMETERS), "how the model is asked"),
        Key::new("limits", Shape::Record(&LIMITS), "what a turn may spend"),
        Key::new(
            "uses_tools",
            Shape::List(&Shape::Text(&forms::SELECTOR)),
            "only these extensions' tools, or `id/tool_name`; absent: every shared tool",
        ),
        Key::new("context", TEXTS, "given to the model before the task, as data: a text, or a list of files")
            .default("[]"),
        Key::new(
            "context_tokens",
            Shape::Integer { min: 0, max: 100_000 },
            "what texts that extensions add to its context may take, together",
        )
        .default("2000"),
        Key::new(
            "builder_may_use",
            Shape::List(&Shape::Text(&forms::ID)),
            "extensions whose tools an agent from the builder may use without being asked about",
        )
        .default("[\"kv\", \"files\"]"),
    ],
    rest: None,
};

static AGENTS: Table = Table {
    name: "`agents`",
    keys: &[Key::new("defaults", Shape::Record(&DEFAULTS), "what holds where a manifest says nothing")],
    rest: None,
};

static DEFAULTS: Table = Table {
    name: "`agents.defaults`",
    keys: &[
        Key::new("model", MODEL, "for agents whose manifest names none").default("[\"default\"]"),
        Key::new("parameters", Shape::Record(&PARAMETERS), "how the model is asked"),
        Key::new("limits", Shape::Record(&LIMITS), "what a run may spend"),
    ],
    rest: None,
};

static MODELS: Table = Table {
    name: "`models`",
    keys: &[
        Key::new(
            "aliases",
            Shape::Map { key: &forms::NAME, value: &MODEL },
            "names for models, such as `default`",
        ),
        Key::new(
            "fallback",
            Shape::Text(&forms::MODEL),
            "the model in place of one whose provider is missing",
        ),
        Key::new(
            "providers",
            Shape::Map { key: &forms::NAME, value: &Shape::Record(&PROVIDER) },
            "where models run",
        ),
        Key::new(
            "profiles",
            Shape::Map { key: &forms::NON_EMPTY, value: &Shape::Record(&PROFILE) },
            "sizes and prices of models, over the shipped ones",
        )
        .default("{}"),
    ],
    rest: None,
};

/// Servers of Chat Completions that are known to differ; `common` is the form that most of them read.
const DIALECTS: &[&str] = &[
    "common",
    "openai",
    "mistral",
    "deepseek",
    "moonshot",
    "openrouter",
    "groq",
    "xai",
    "ollama",
    "vllm",
    "llama_cpp",
];

pub(super) static PROVIDER: Table = Table {
    name: "the provider",
    keys: &[
        Key::new(
            "kind",
            Shape::Choice {
                known: &["openai", "openai_chat", "anthropic", "gemini", "offline", "scripted"],
                later: &[],
            },
            "the protocol it speaks",
        )
        .required(),
        Key::new(
            "base_url",
            Shape::Text(&forms::NON_EMPTY),
            "its address, up to the version such as `/v1`; `openai_chat` needs it, others have their own",
        ),
        Key::new(
            "dialect",
            Shape::Choice { known: DIALECTS, later: &[] },
            "how an `openai_chat` server speaks; without it its address says so",
        ),
        Key::new("api_key", Shape::Text(&forms::SECRET), "its key, best as `${NAME}`"),
        Key::new(
            "headers",
            Shape::Map { key: &forms::HEADER, value: &Shape::Text(&forms::SECRET) },
            "further headers of each request",
        )
        .default("{}"),
        Key::new(
            "ca_file",
            Shape::Text(&forms::NON_EMPTY),
            "PEM certificates trusted beside those of the system, relative to this file",
        ),
        Key::new("timeout_ms", Shape::Integer { min: 1, max: MAX_MILLIS }, "deadline of one request")
            .default("600000"),
        Key::new(
            "stall_timeout_ms",
            Shape::Integer { min: 1, max: MAX_MILLIS },
            "a stream that is silent for so long is given up",
        )
        .default("60000"),
        Key::new("concurrency", Shape::Integer { min: 1, max: 1024 }, "requests at the same time")
            .default("16"),
        Key::new("file", Shape::Text(&forms::NON_EMPTY), "the script of a `scripted` provider"),
        Key::new(
            "default_model",
            Shape::Text(&forms::NON_EMPTY),
            "the model where only the provider is named",
        ),
    ],
    rest: None,
};

pub(super) static PROFILE: Table = Table {
    name: "the profile",
    keys: &[
        Key::new("context_window", TOKENS, "tokens that the model can hold"),
        Key::new("max_output_tokens", TOKENS, "tokens of its longest answer"),
        Key::new("input_usd", PRICE, "US dollars for a million input tokens"),
        Key::new("cached_usd", PRICE, "US dollars for a million input tokens that it remembers"),
        Key::new(
            "cache_write_usd",
            PRICE,
            "US dollars for a million input tokens that it is to remember; without it `input_usd`",
        ),
        Key::new("output_usd", PRICE, "US dollars for a million output tokens"),
        Key::new("long_prompts", Shape::Record(&LONG_PROMPTS), "what requests with long prompts cost"),
        Key::new("tools", Shape::Bool, "whether it can call tools"),
        Key::new("reasoning", Shape::Bool, "whether it takes `parameters.reasoning`"),
        Key::new(
            "efforts",
            Shape::List(&Shape::Choice { known: &["none", "low", "medium", "high"], later: &[] }),
            "the values of `parameters.reasoning` that it takes",
        ),
        Key::new(
            "thinking",
            Shape::Choice { known: Thinking::NAMES, later: &[] },
            "how it is told how much to reason; without it as the newest models of its provider are",
        ),
        Key::new("sampling", Shape::Bool, "whether it takes `parameters.temperature` and `parameters.top_p`"),
    ],
    rest: None,
};

static LONG_PROMPTS: Table = Table {
    name: "`long_prompts`",
    keys: &[
        Key::new("above", TOKENS, "tokens of the request above which it costs more").required(),
        Key::new("input", FACTOR, "how many times the price of input").default("1"),
        Key::new("output", FACTOR, "how many times the price of output").default("1"),
    ],
    rest: None,
};

static EXTENSIONS: Table = Table {
    name: "`extensions`",
    keys: &[Key::new(
        "paths",
        Shape::List(&Shape::Text(&forms::NON_EMPTY)),
        "further folders to search for extensions, relative to this file",
    )
    .default("[]")],
    rest: Some((&forms::ID, &Shape::Open)),
};

static INBOX: Table = Table {
    name: "`inbox`",
    keys: &[
        Key::new(
            "queue",
            Shape::Choice { known: &["followup", "steer", "interrupt"], later: &[] },
            "a message during a turn waits for its own, is taken into it, or stops it",
        )
        .default("\"followup\""),
        Key::later("max_age"),
    ],
    rest: None,
};

static TOOL_SEARCH: Table = Table {
    name: "`tool_search`",
    keys: &[Key::new(
        "threshold",
        Shape::Integer { min: 1, max: 1000 },
        "with more tools than this, schemas are sent once the agent asks for them",
    )
    .default("40")],
    rest: None,
};

static JOURNAL: Table = Table {
    name: "`journal`",
    keys: &[
        Key::new(
            "durability",
            Shape::Choice { known: &["full", "process", "memory"], later: &[] },
            "`full` survives a power cut, `process` the end of the daemon, `memory` nothing",
        )
        .default("\"full\""),
        Key::new(
            "retention",
            Shape::Record(&RETENTION),
            "for how long turns that have ended are kept; for ever without it",
        ),
        Key::later("backup"),
    ],
    rest: None,
};

static RETENTION: Table = Table {
    name: "`journal.retention`",
    keys: &[
        Key::new(
            "max_age_days",
            Shape::Integer { min: 1, max: 36_500 },
            "turns that ended longer ago are deleted; without it none is for its age",
        ),
        Key::new(
            "max_mb",
            Shape::Integer { min: 16, max: 1024 * 1024 },
            "mebibytes of the journal beyond which the oldest turns are deleted; without it none is for its size",
        ),
    ],
    rest: None,
};

static APPROVALS: Table = Table {
    name: "`approvals`",
    keys: &[
        Key::new(
            "preauthorized",
            Shape::WordOrList { word: "all", item: &Shape::Text(&forms::ID) },
            "extensions that may be activated without asking, or the word `all`",
        )
        .default("[]"),
        Key::later("mode"),
        Key::later("rules"),
        Key::later("taint"),
    ],
    rest: None,
};

static RELOAD: Table = Table {
    name: "`reload`",
    keys: &[
        Key::new(
            "declarative",
            Shape::Bool,
            "whether changed folders without native code take effect while the daemon runs",
        )
        .default("true"),
        Key::new(
            "native",
            Shape::Choice { known: &["announce", "restart"], later: &[] },
            "what a changed native library leads to: a message, or a drained restart",
        )
        .default("\"announce\""),
    ],
    rest: None,
};

static SANDBOX: Table = Table {
    name: "`sandbox`",
    keys: &[
        Key::new(
            "allow_unconfined",
            Shape::Bool,
            "lets child processes run where the operating system cannot confine them",
        )
        .default("false"),
        Key::new("hosts", Shape::Record(&HOSTS), "the processes that run extensions"),
    ],
    rest: None,
};

static HOSTS: Table = Table {
    name: "`sandbox.hosts`",
    keys: &[
        Key::new("network", Shape::List(&Shape::Text(&forms::ID)), "extensions whose process may use TCP")
            .default("[]"),
        Key::new(
            "memory_mb",
            Shape::Integer { min: 16, max: 65536 },
            "memory that each such process may use, in mebibytes",
        )
        .default("1024"),
    ],
    rest: None,
};
