//! The control API: a path for each method, so that each has its own parameters and result.

use drupe_extension_api::{
    AgentId, SessionId,
    control::{
        AgentDetail, AgentStatus, AgentTemplate, Approval, ApprovalAnswer, CheckReport, ConfigValue,
        DeadMessage, DeletedSession, Explanation, ExtensionAsk, ExtensionDetail, ExtensionStatus,
        ItemArgument, ItemText, Latency, Named, Numbered, PathArgument, PersonAnswer, PersonStatus, Power,
        ReplayArgument, ReplayReport, Restart, Scaffold, ScheduleDetail, ScheduleNew, SchedulePause,
        ScheduleRun, ScheduleStatus, SessionDetail, SessionPersonas, SessionSelect, SessionShow,
        SessionStatus, SkillStatus, SpawnedArgument, SpawnedQuery, SpawnedStatus, SpawnedTell, StandingGrant,
        Status, TemplateQuery, TokenMade, TokenNew, TokenPromised, TokenStatus, TraceArgument, Trial,
        TrialResult, TurnArgument, TurnResult, TurnTrace, UsageQuery, UsageRow, Whoami, method,
    },
    wire::{Submit, Submitted},
};
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::{ApiOperation, TypeSchemas, post, rest::nullable};
use crate::failure::FaultBody;

struct Method {
    name: &'static str,
    needs: Power,
    does: &'static str,
    /// What it takes, and whether that must be there.
    takes: Option<(bool, Value)>,
    gives: Value,
}

/// A type for each of the methods that take, or give, nothing.
type Nothing = ();

fn methods(s: &mut TypeSchemas) -> Vec<Method> {
    use Power::{Direct, Extend, Inspect, Operate, Read, Submit as May};
    vec![
        plain::<Status>(s, method::STATUS, Inspect, "Shows what the daemon is doing."),
        plain::<Vec<ConfigValue>>(
            s,
            method::CONFIG_SHOW,
            Inspect,
            "Shows the configuration in force; secrets are masked.",
        ),
        plain::<Nothing>(s, method::STOP, Operate, "Ends the daemon after its running turns."),
        maybe::<Restart, Nothing>(
            s,
            method::RESTART,
            Operate,
            "Restarts the daemon after its running turns.",
        ),
        plain::<Vec<ExtensionStatus>>(s, method::EXTENSIONS_LIST, Inspect, "Lists the extensions."),
        with::<Named, ExtensionDetail>(s, method::EXTENSIONS_SHOW, Inspect, "Shows an extension."),
        with::<PathArgument, CheckReport>(
            s,
            method::EXTENSIONS_CHECK,
            Extend,
            "Says what the daemon would make of a folder.",
        ),
        with::<PathArgument, ExtensionStatus>(
            s,
            method::EXTENSIONS_ADD,
            Extend,
            "Takes a folder in as an extension.",
        ),
        with::<Scaffold, Nothing>(
            s,
            method::EXTENSIONS_SCAFFOLD,
            Extend,
            "Writes the beginning of a native extension.",
        ),
        with::<Trial, TrialResult>(
            s,
            method::EXTENSIONS_TRY,
            Extend,
            "Has an agent of a folder answer a message before it is active; for an extension, on behalf of a call.",
        ),
        with::<ExtensionAsk, Value>(
            s,
            method::EXTENSIONS_ASK,
            Operate,
            "Asks something that is an extension's own.",
        ),
        with::<Named, ExtensionStatus>(s, method::EXTENSIONS_ENABLE, Operate, "Turns an extension on."),
        with::<Named, ExtensionStatus>(s, method::EXTENSIONS_DISABLE, Operate, "Turns an extension off."),
        with::<Named, ExtensionStatus>(
            s,
            method::EXTENSIONS_RELEASE,
            Operate,
            "Lifts a quarantine and tries the extension again.",
        ),
        plain::<Vec<Approval>>(
            s,
            method::APPROVALS_LIST,
            Inspect,
            "Lists what waits, or waited, for the operator's agreement.",
        ),
        with::<ApprovalAnswer, Approval>(
            s,
            method::APPROVALS_ANSWER,
            Operate,
            "Agrees to something, or does not.",
        ),
        plain::<Vec<StandingGrant>>(
            s,
            method::APPROVALS_GRANTS,
            Inspect,
            "Lists what is allowed for the rest of a session.",
        ),
        with::<Named, StandingGrant>(
            s,
            method::APPROVALS_REVOKE,
            Operate,
            "Takes back what is allowed for the rest of a session.",
        ),
        plain::<Vec<AgentStatus>>(s, method::AGENTS_LIST, Read, "Lists the agents that the token reaches."),
        of::<AgentId, AgentDetail>(s, method::AGENTS_SHOW, Read, "Shows an agent, or `orchestrator`."),
        maybe::<TemplateQuery, AgentTemplate>(
            s,
            method::AGENTS_TEMPLATE,
            Read,
            "Shows an agent as a manifest to copy, or one to begin with.",
        ),
        plain::<Vec<SkillStatus>>(
            s,
            method::SKILLS_LIST,
            Inspect,
            "Lists the skills that the orchestrator can load.",
        ),
        plain::<Vec<SessionStatus>>(
            s,
            method::SESSIONS_LIST,
            Read,
            "Lists the sessions that the token reaches.",
        ),
        with::<SessionShow, SessionDetail>(s, method::SESSIONS_SHOW, Read, "Shows a session with its turns."),
        with::<SessionSelect, Nothing>(
            s,
            method::SESSION_SELECT,
            Direct,
            "Chooses who answers in a session.",
        ),
        of::<SessionId, u64>(
            s,
            method::SESSIONS_STOP,
            Direct,
            "Stops what runs and what waits in a session; gives how many turns.",
        ),
        of::<SessionId, DeletedSession>(
            s,
            method::SESSIONS_DELETE,
            Operate,
            "Deletes a session with those of agents that were spawned in it, for good.",
        ),
        with::<Submit, Submitted>(s, method::TURN_SUBMIT, May, "Hands a message in."),
        with::<SessionPersonas, Nothing>(
            s,
            method::SESSION_PERSONAS,
            Direct,
            "Gives a session agents of its own.",
        ),
        with::<TurnArgument, TurnResult>(s, method::TURN_WAIT, Read, "Waits for a turn's end, and shows it."),
        with::<TurnArgument, Nothing>(s, method::TURN_STOP, Direct, "Stops a turn."),
        with::<SpawnedQuery, Vec<SpawnedStatus>>(
            s,
            method::SPAWNED_LIST,
            Read,
            "Lists agents that work beside turns.",
        ),
        with::<SpawnedArgument, Nothing>(
            s,
            method::SPAWNED_STOP,
            Direct,
            "Ends an agent that works beside a turn.",
        ),
        with::<SpawnedTell, Nothing>(
            s,
            method::SPAWNED_TELL,
            Direct,
            "Tells an agent that works beside a turn more.",
        ),
        with::<TraceArgument, Vec<TurnTrace>>(
            s,
            method::TRACE_SHOW,
            Read,
            "Shows everything that turns set off.",
        ),
        with::<ReplayArgument, ReplayReport>(
            s,
            method::REPLAY_RUN,
            Operate,
            "Runs recorded turns again, or puts their messages to another model.",
        ),
        maybe::<UsageQuery, Vec<UsageRow>>(s, method::USAGE_SHOW, Inspect, "Sums up what was used."),
        plain::<Vec<Latency>>(
            s,
            method::LATENCIES_SHOW,
            Inspect,
            "Tells how long turns, models and tools took.",
        ),
        with::<Named, Explanation>(s, method::WHY, Read, "Explains why something ended as it did."),
        with::<ItemArgument, ItemText>(s, method::ITEMS_SHOW, Read, "Shows a text in full."),
        plain::<Vec<ScheduleStatus>>(s, method::SCHEDULES_LIST, Inspect, "Lists what is done at set times."),
        with::<Named, ScheduleDetail>(
            s,
            method::SCHEDULES_SHOW,
            Inspect,
            "Shows a schedule and its last times.",
        ),
        with::<ScheduleNew, ScheduleStatus>(s, method::SCHEDULES_ADD, Direct, "Adds a schedule."),
        with::<Named, Nothing>(s, method::SCHEDULES_REMOVE, Direct, "Removes a schedule that was added."),
        with::<SchedulePause, ScheduleStatus>(
            s,
            method::SCHEDULES_PAUSE,
            Direct,
            "Has a schedule do nothing, or go on.",
        ),
        with::<Named, ScheduleRun>(s, method::SCHEDULES_RUN, Direct, "Does what is scheduled now."),
        plain::<Vec<DeadMessage>>(
            s,
            method::BUS_DEAD,
            Inspect,
            "Lists messages of topics that were given up.",
        ),
        with::<Numbered, Nothing>(s, method::BUS_RETRY, Operate, "Delivers one of these again."),
        with::<Numbered, Nothing>(s, method::BUS_DROP, Operate, "Forgets one of these."),
        plain::<Whoami>(s, method::WHOAMI, Read, "Says who asks, and how far they reach."),
        plain::<Vec<TokenStatus>>(s, method::TOKENS_LIST, Operate, "Lists the named tokens."),
        with::<TokenNew, TokenMade>(s, method::TOKENS_NEW, Operate, "Makes a named token."),
        with::<TokenNew, TokenPromised>(
            s,
            method::TOKENS_PROMISE,
            Operate,
            "Promises a token to whoever shows a code.",
        ),
        with::<Named, TokenMade>(
            s,
            method::TOKENS_REDEEM,
            Read,
            "Gives the token that was promised for a code.",
        ),
        plain::<Nothing>(s, method::TOKENS_LEAVE, Read, "Gives the token up that the request bears."),
        with::<Named, Nothing>(s, method::TOKENS_REVOKE, Operate, "Ends what a token may do."),
        plain::<Vec<PersonStatus>>(s, method::PEOPLE_LIST, Operate, "Lists people of chat services."),
        with::<PersonAnswer, PersonStatus>(
            s,
            method::PEOPLE_ANSWER,
            Operate,
            "Lets in or keeps out whoever was shown a code.",
        ),
        with::<Named, PersonStatus>(
            s,
            method::PEOPLE_REVOKE,
            Operate,
            "Forgets what was said of somebody, and ends what waits for them.",
        ),
    ]
}

fn plain<R: JsonSchema>(s: &mut TypeSchemas, name: &'static str, needs: Power, does: &'static str) -> Method {
    Method { name, needs, does, takes: None, gives: s.written::<R>() }
}

fn with<P: JsonSchema, R: JsonSchema>(
    s: &mut TypeSchemas,
    name: &'static str,
    needs: Power,
    does: &'static str,
) -> Method {
    Method { takes: Some((true, s.read::<P>())), ..plain::<R>(s, name, needs, does) }
}

/// One that takes the id of something that has a form.
fn of<I: JsonSchema, R: JsonSchema>(
    s: &mut TypeSchemas,
    name: &'static str,
    needs: Power,
    does: &'static str,
) -> Method {
    let id = json!({ "type": "object", "required": ["id"], "properties": { "id": s.read::<I>() } });
    Method { takes: Some((true, id)), ..plain::<R>(s, name, needs, does) }
}

/// One whose parameters may be left out.
fn maybe<P: JsonSchema, R: JsonSchema>(
    s: &mut TypeSchemas,
    name: &'static str,
    needs: Power,
    does: &'static str,
) -> Method {
    Method { takes: Some((false, nullable(s.read::<P>()))), ..plain::<R>(s, name, needs, does) }
}

pub fn operations(s: &mut TypeSchemas) -> Vec<ApiOperation> {
    let failure = s.written::<FaultBody>();
    let operation = |method: Method| {
        let needs = format!("Needs a token that was made with `{}`.", method.needs.name());
        let operation = post("/control/{method}", "control", method.does, &failure)
            .at(format!("/control/{}", method.name))
            .detail(&needs)
            .gives(200, "It is done, and this is its result.", method.gives)
            .faults(&[400, 404, 408, 413, 415, 429, 504]);
        match method.takes {
            Some((required, schema)) => operation.body(required, schema),
            None => operation,
        }
    };
    methods(s).into_iter().map(operation).collect()
}

/// The reference has all methods, with what each needs: a test of the kernel compares it with what the daemon does.
#[test]
fn each_method_of_the_control_api_is_described() {
    let reference = include_str!("../../../../docs/reference/control.md");
    let (_, rows) = reference.split_once("| method | params | result | needs |").expect("the table");
    let mut found = Vec::new();
    for row in rows.lines().skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let (names, needs) = (cells[0], cells[cells.len() - 1]);
        found.extend(names.split(", ").map(|name| (name.trim_matches('`').to_owned(), needs.to_owned())));
    }
    // The one belongs to a connection of the control socket, the other is `GET /events`.
    found.retain(|(name, _)| name != method::HELLO && !method::STREAMING.contains(&name.as_str()));
    let mut described: Vec<_> = methods(&mut TypeSchemas::new())
        .iter()
        .map(|method| (method.name.to_owned(), method.needs.name().to_owned()))
        .collect();
    found.sort();
    described.sort();
    assert_eq!(described, found);
}
