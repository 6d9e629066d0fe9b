//! Seeded faults: of each, what an operator reads.

use std::sync::Arc;

use drupe_agent::{Price, Registered, StopReason, ids, read_output, refuse};
use drupe_extension_api::{
    Definition, DefinitionLimits, FailureClass, Format, OutputSpec, ToolAnnotations, control::Cited,
    wire::HookPoint,
};
use drupe_journal::Origin;
use drupe_limits::{Counted, QuotaLimits, Quotas, ScopeLimits};

use super::{
    door::{Fault, check, holds, rows, told},
    fakes::{self, Blocks, Does, Plays, Reply, as_tool, call, ends, fails, looping, retries, say, tool},
};
use crate::{why_call, why_run};

/// One agent, `main`, with a script and tools.
pub fn alone(script: Vec<Reply>, tools: Vec<Arc<Registered>>) -> Fault {
    limited(DefinitionLimits::default(), script, tools)
}

fn limited(limits: DefinitionLimits, script: Vec<Reply>, tools: Vec<Arc<Registered>>) -> Fault {
    defined(limits, script, tools, None, |_| ())
}

fn defined(
    limits: DefinitionLimits,
    script: Vec<Reply>,
    tools: Vec<Arc<Registered>>,
    price: Option<Price>,
    change: impl FnOnce(&mut Definition),
) -> Fault {
    let model = Plays::new(&[("main", script)], price);
    Fault::of(looping("main", limits, &model, tools, change))
}

/// `main` calls `below`, each with its script; what `below` may call is given.
fn pair(
    limits: DefinitionLimits,
    main: Vec<Reply>,
    below: Vec<Reply>,
    tools: impl FnOnce(&Arc<Plays>) -> Vec<Arc<Registered>>,
) -> Fault {
    let model = Plays::new(&[("main", main), ("below", below), ("deep", vec![say("deep")])], None);
    let tools = tools(&model);
    let below = looping("below", DefinitionLimits::default(), &model, tools, |_| ());
    Fault::of(looping("main", limits, &model, [as_tool(&below)], |_| ()))
}

const TASK: &str = r#"{"task":"go"}"#;

fn asks_below() -> Vec<Reply> {
    vec![call(&[("agent_below", TASK)]), say("done")]
}

fn says(name: &str) -> Arc<Registered> {
    tool(name, Does::Says("here"), ToolAnnotations::default())
}

fn a_price() -> Option<Price> {
    Some(Price::flat(10.0, 1.0, 1_000.0))
}

/// A hint of what the trace and the records are for.
const RAN: &[&str] = &["turns", "entries", "events"];

#[tokio::test(start_paused = true)]
async fn an_answer_says_who_gave_it_and_what_it_took() {
    let fault = alone(vec![call(&[("dice", "{}")]), say("four")], vec![says("dice")]);
    let said = [
        "`main` answered after",
        "2 steps, 1 tool call, 220 tokens.",
        "No agent was chosen for the message, so it went to `main`.",
        "It waited for 5 ms before it began.",
        "The answer waits to be sent through `test`.",
    ];
    let told = check(fault, &said, &["turns", "entries", "outbox"]).await;
    assert_eq!(told.remedy, None, "nothing need be done");
}

#[tokio::test(start_paused = true)]
async fn a_wrong_key_names_the_provider_and_the_remedy() {
    let fault = alone(vec![fails(FailureClass::Auth, "`openai/gpt`: the key was refused (401)")], vec![]);
    let said = [
        "`main` failed (class `auth`)",
        "`openai/gpt`: the key was refused (401)",
        "`fake/one` gave no answer (step 1 of `main`, attempt 1)",
        "Nothing was tried after that (class `auth`",
        "check the provider's key",
    ];
    check(fault, &said, RAN).await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_model_is_a_fault_of_configuration() {
    let fault = alone(vec![fails(FailureClass::Config, "there is no model `openai/nope`")], vec![]);
    check(fault, &["there is no model `openai/nope`", "(class `config`)", "correct the configuration"], RAN)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_does_not_exist_did_not_run() {
    let fault = alone(vec![call(&[("frob", "{}")]), say("sorry")], vec![says("dice")]);
    let said = ["`main` answered", "`frob` did not run (step 1 of `main`)", "no tool `frob` for you", "dice"];
    check(fault, &said, RAN).await;
}

#[tokio::test(start_paused = true)]
async fn bad_parameters_are_told_with_the_reason() {
    let fault = alone(vec![call(&[("dice", r#"{"n":"x"}"#)]), say("sorry")], vec![says("dice")]);
    check(fault, &["`dice` did not run (step 1 of `main`)", "integer"], RAN).await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_needs_approval_did_not_run() {
    let annotations = ToolAnnotations { needs_approval: true, ..ToolAnnotations::default() };
    let erase = tool("erase", Does::Says("gone"), annotations);
    let fault = alone(vec![call(&[("erase", "{}")]), say("sorry")], vec![erase]);
    check(fault, &["`erase` did not run", "needs the operator's approval"], RAN).await;
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_the_bound_of_a_step_did_not_run() {
    let limits = DefinitionLimits { max_tool_calls_per_step: 1, ..DefinitionLimits::default() };
    let fault =
        limited(limits, vec![call(&[("dice", "{}"), ("dice", r#"{"n":1}"#)]), say("ok")], vec![says("dice")]);
    check(fault, &["`dice` did not run (step 1 of `main`)", "at most 1 tool call"], RAN).await;
}

#[tokio::test(start_paused = true)]
async fn the_steps_that_are_allowed_are_named() {
    let limits = DefinitionLimits { max_turns: 1, ..DefinitionLimits::default() };
    let fault = limited(limits, vec![call(&[("dice", "{}")]), say("never")], vec![says("dice")]);
    let said = [
        "`main` failed (class `budget`)",
        "A limit stopped work of `main`: `max_turns`: used 1 of 1 step.",
        "raise `max_turns`, or ask for less",
    ];
    check(fault, &said, RAN).await;
}

#[tokio::test(start_paused = true)]
async fn the_tokens_that_are_allowed_are_named() {
    let limits = DefinitionLimits { max_tokens_per_invocation: 150, ..DefinitionLimits::default() };
    let fault = limited(limits, vec![call(&[("dice", "{}")]), say("never")], vec![says("dice")]);
    check(fault, &["`max_tokens_per_invocation`: used 110 of 150 tokens", "(class `budget`)"], RAN).await;
}

#[tokio::test(start_paused = true)]
async fn the_cost_that_is_allowed_is_named() {
    let limits = DefinitionLimits { max_cost_usd: Some(0.011_1), ..DefinitionLimits::default() };
    let fault =
        defined(limits, vec![call(&[("dice", "{}")]), say("never")], vec![says("dice")], a_price(), |_| ());
    check(fault, &["`max_cost_usd`: used $0.011000 of $0.011100", "(class `budget`)"], RAN).await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_price_under_a_cost_limit_says_what_to_set() {
    let limits = DefinitionLimits { max_cost_usd: Some(0.5), ..DefinitionLimits::default() };
    let fault = limited(limits, vec![say("never")], vec![]);
    let said =
        ["the model's price is unknown, and at most $0.500000 may be spent", "allow_unknown_price: true"];
    check(fault, &said, RAN).await;
}

#[tokio::test(start_paused = true)]
async fn time_that_is_over_is_told_with_what_was_asked_meanwhile() {
    let limits = DefinitionLimits { time_budget_ms: 2_000, ..DefinitionLimits::default() };
    let Reply::Gives(answer) = say("late") else { unreachable!("it gives") };
    let fault = limited(limits, vec![Reply::Late(10_000, answer)], vec![]);
    let said = [
        "`main` failed (class `timeout`) after 2.0 s",
        "`time_budget_ms`: used 2.0 s of 2.0 s",
        "`fake/one` gave no answer (step 1 of `main`, attempt 1) after 2.0 s",
        "raise `time_budget_ms`",
    ];
    check(fault, &said, RAN).await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_takes_too_long_was_stopped() {
    let limits = DefinitionLimits { tool_timeout_ms: 50, ..DefinitionLimits::default() };
    let slow = tool("slow", Does::Sleeps(60_000), ToolAnnotations::default());
    let fault = limited(limits, vec![call(&[("slow", "{}")]), say("sorry")], vec![slow]);
    check(fault, &["`slow` was stopped (step 1 of `main`)", "because its time was over"], RAN).await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_fails_is_told_with_its_error() {
    let broken = tool("broken", Does::Fails("the disk is full"), ToolAnnotations::default());
    let fault = alone(vec![call(&[("broken", "{}")]), say("sorry")], vec![broken]);
    check(fault, &["`broken` failed (step 1 of `main`): the disk is full."], RAN).await;
}

#[tokio::test(start_paused = true)]
async fn a_cycle_is_told_with_its_path() {
    let fault = pair(
        DefinitionLimits::default(),
        asks_below(),
        vec![call(&[("agent_main", TASK)]), say("alone")],
        |model| vec![as_tool(&looping("main", DefinitionLimits::default(), model, [], |_| ()))],
    );
    check(fault, &["`agent_main` failed (step 1 of `below`)", "main → below", "(class `loop`)"], RAN).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_too_deep_is_told_with_the_limit() {
    let limits = DefinitionLimits { max_depth: 1, ..DefinitionLimits::default() };
    let deep =
        |model: &Arc<Plays>| vec![as_tool(&looping("deep", DefinitionLimits::default(), model, [], |_| ()))];
    let fault = pair(limits, asks_below(), vec![call(&[("agent_deep", TASK)]), say("alone")], deep);
    check(fault, &["`max_depth`", "`agent_deep` failed (step 1 of `below`)", "(class `budget`)"], RAN).await;
}

#[tokio::test(start_paused = true)]
async fn runs_beyond_the_limit_are_told() {
    let limits = DefinitionLimits { max_invocations: 1, ..DefinitionLimits::default() };
    let fault = pair(limits, asks_below(), vec![say("never")], |_| vec![]);
    check(fault, &["`max_invocations`: used 1 of 1 run", "`agent_below` failed"], RAN).await;
}

#[tokio::test(start_paused = true)]
async fn the_same_call_over_and_over_ends_the_run() {
    let fault = alone(vec![call(&[("dice", "{}")])], vec![says("dice")]);
    let said = [
        "`main` failed (class `loop`)",
        "5 times in a row",
        "After step 3 drupe told `main`",
        "`dice` did not run (step 5 of `main`)",
        "rephrase the task",
    ];
    check(fault, &said, RAN).await;
}

#[tokio::test(start_paused = true)]
async fn a_stalled_stream_that_was_repeated_is_told_and_the_answer_stands() {
    let fault = alone(vec![retries(&["the stream stalled for 30 s"], say("four"))], vec![]);
    let said = [
        "`main` answered",
        "`fake/one` gave no answer (step 1 of `main`, attempt 1)",
        "the stream stalled for 30 s. `fake/one` was asked next.",
    ];
    check(fault, &said, RAN).await;
}

#[tokio::test(start_paused = true)]
async fn every_attempt_that_failed_is_told() {
    let fault = alone(
        vec![retries(
            &["connection reset", "connection refused"],
            fails(FailureClass::Network, "no route to host"),
        )],
        vec![],
    );
    let said = [
        "`main` failed (class `network`)",
        "attempt 1) after 0 ms: connection reset.",
        "attempt 2) after 0 ms: connection refused.",
        "attempt 3) after 0 ms: no route to host.",
        "check the connection",
    ];
    check(fault, &said, RAN).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_cut_is_told() {
    let fault = alone(vec![ends("half of", StopReason::Length { dropped_calls: 0 })], vec![]);
    check(fault, &["The answer of `fake/one` was cut off at its bound on tokens (step 1 of `main`"], RAN)
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_filtered_is_told() {
    let fault = alone(vec![ends("I", StopReason::Filter { dropped_calls: 0 })], vec![]);
    check(fault, &["The provider's filter ended the answer of `fake/one`"], RAN).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_model_declined_and_calls_that_were_dropped_are_told() {
    let fault = alone(vec![ends("Not that.", StopReason::Refusal { dropped_calls: 0 })], vec![]);
    let said =
        ["`main` refused the task: Not that.", "`fake/one` declined the task (step 1 of `main`, attempt 1)."];
    check(fault, &said, RAN).await;
    let cut = ends("I store it", StopReason::Length { dropped_calls: 2 });
    let said =
        ["After step 1 drupe told `main`", "of 2 begun, none has run", "(class `model`)", "the 2 tool calls"];
    check(alone(vec![cut.clone(), cut], vec![]), &said, RAN).await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_is_told() {
    let fault = alone(vec![say("")], vec![]);
    check(fault, &["(class `model`)", "gave an empty answer", "choose another model"], &["turns", "entries"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn json_that_stays_wrong_after_a_repair_is_told() {
    let json = |d: &mut Definition| d.output = Some(OutputSpec { format: Format::Json, schema: None });
    let fault = defined(DefinitionLimits::default(), vec![say("no json")], vec![], None, json);
    check(
        fault,
        &["is not the JSON that is needed, after one repair", "After step 1 drupe told `main`"],
        &["turns", "entries"],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_sub_agent_that_refuses_is_told_with_its_reason() {
    let refuses = vec![call(&[("refuse", r#"{"reason":"I only count sheep"}"#)])];
    let fault = pair(DefinitionLimits::default(), asks_below(), refuses, |_| vec![refuse::tool()]);
    let said =
        ["`main` answered", "Sub-agent `below` refused its task (class `refused`): I only count sheep."];
    check(fault, &said, RAN).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_is_told_with_what_was_going_on() {
    let slow = tool("slow", Does::Sleeps(60_000), ToolAnnotations::default());
    let fault = alone(vec![call(&[("slow", "{}")]), say("never")], vec![slow, read_output::tool()]);
    let cancel = fault.cancel.clone();
    let stopping = async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        cancel.cancel();
    };
    let said = [
        "`main` failed (class `cancelled`)",
        "`slow` was stopped (step 1 of `main`)",
        "ask again to continue",
    ];
    tokio::join!(check(fault, &said, RAN), stopping);
}

#[tokio::test(start_paused = true)]
async fn a_restart_in_the_middle_is_told_and_the_outcome_stays_unknown() {
    let pay = tool("pay", Does::Sleeps(60_000), ToolAnnotations::default());
    let fault =
        Fault { dies_after: Some(1_000), ..alone(vec![call(&[("pay", "{}")]), say("sorry")], vec![pay]) };
    let said = [
        "`main` answered",
        "Nobody knows whether `pay` took effect (step 1 of `main`)",
        "The end of the process interrupted the call of `pay`.",
        "It was begun 2 times: drupe ended in the middle of it",
    ];
    check(fault, &said, RAN).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_hook_stops_is_told_with_its_reason() {
    for (point, said) in [
        (HookPoint::BeforeTool, "`dice` did not run (step 1 of `main`): "),
        (HookPoint::BeforeModel, "`main` refused the task: "),
    ] {
        let fault = alone(vec![call(&[("dice", "{}")]), say("sorry")], vec![says("dice")])
            .scope(move |scope| scope.hooks = Arc::new(Blocks(point)));
        check(fault, &[said, "not on a Sunday", "`audit` was late."], &["turns", "entries", "events"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_window_that_was_full_is_told() {
    let asks = |n: usize| call(&[("dice", &format!("{{\"n\":{n}}}"))]);
    let script = (0..8).map(asks).chain([say("done")]).collect();
    let mut model = Plays::new(&[("main", script)], None);
    Arc::get_mut(&mut model).expect("nobody else has it").profile.context_window = 4_500;
    let big: &'static str = "again and again ".repeat(500).leak();
    let big = tool("dice", Does::Says(big), ToolAnnotations::default());
    let fault = Fault::of(looping("main", DefinitionLimits::default(), &model, [big], |_| ()));
    check(fault, &["bytes of older tool results were set aside."], RAN).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_outcome_is_unknown_says_why_it_was_not_repeated() {
    let pay = tool("pay", Does::Sleeps(60_000), ToolAnnotations::default());
    let fault = alone(vec![call(&[("pay", r#"{"n":3}"#)]), say("sorry")], vec![pay]);
    let rows = rows(Fault { dies_after: Some(1_000), ..fault }).await;
    let effect = ids::effect(&rows.turn, &ids::root_invocation(&rows.turn), 1, 0);
    let told = why_call(&rows, &effect, rows.accepted).expect("the call is there");
    holds(&rows, &told);
    assert!(told.sentences[0].starts_with("Nobody knows whether `pay` took effect"), "{told:#?}");
    let asked = r#"The model asked for it with the parameters `{"n":3}`."#;
    assert!(told.sentences.contains(&asked.to_owned()), "{told:#?}");
    let declared = "By its declaration such a call must not run twice, so it was not repeated.";
    assert!(told.sentences.contains(&declared.to_owned()), "{told:#?}");
    assert_eq!(told.remedy.as_deref(), Some("look whether it took effect before you ask for it again"));
    let other = ids::effect(&rows.turn, &ids::root_invocation(&rows.turn), 1, 1);
    assert_eq!(why_call(&rows, &other, rows.accepted), None);
}

#[tokio::test(start_paused = true)]
async fn a_run_says_who_called_it_and_how_it_ended() {
    let broken = tool("broken", Does::Fails("the disk is full"), ToolAnnotations::default());
    let below = vec![call(&[("broken", "{}")]), fails(FailureClass::Network, "no route to host")];
    let rows = rows(pair(DefinitionLimits::default(), asks_below(), below, |_| vec![broken])).await;
    let root = ids::root_invocation(&rows.turn);
    let below = ids::child_of_effect(&ids::effect(&rows.turn, &root, 1, 0));
    let told = why_run(&rows, &below, rows.accepted).expect("the run is there");
    holds(&rows, &told);
    let first =
        "This run of `below` failed (class `network`) after 0 ms with 2 steps, 1 tool call, 183 tokens";
    assert!(told.sentences[0].starts_with(first), "{told:#?}");
    assert_eq!(told.sentences[1], "`main` called it with the task: go.");
    assert!(told.sentences.iter().any(|s| s.starts_with("`broken` failed (step 1 of `below`)")), "{told:#?}");
    assert_eq!(told.remedy.as_deref(), Some(FailureClass::Network.remedy()));
    let told = why_run(&rows, &root, rows.accepted).expect("the run is there");
    let made = told.sentences.iter().find(|said| said.contains("for at most 10 steps: recipe `"));
    assert!(made.is_some(), "{:?}", told.sentences);
    assert!(told.cited.iter().any(|row| row.table == "recipes" && rows.recipes.contains_key(&row.key)));
    assert!(
        told.sentences.iter().any(|s| s.starts_with("Sub-agent `below` failed (class `network`)")),
        "{told:#?}"
    );
    assert_eq!(
        why_run(&rows, &ids::child_of_effect(&ids::effect(&rows.turn, &root, 9, 9)), rows.accepted),
        None
    );
}

#[tokio::test(start_paused = true)]
async fn a_restart_while_a_model_answers_is_told() {
    let Reply::Gives(answer) = say("four") else { unreachable!("it gives") };
    let fault = alone(vec![Reply::Late(5_000, answer)], vec![]);
    let fault = Fault { dies_after: Some(1_000), ..fault };
    let said = [
        "The answer of `fake/one` was cut off before its end was recorded (step 1 of `main`, attempt 1).",
        "`fake/one` was asked again.",
        "It was begun 2 times",
        "Text that had been shown became void",
    ];
    check(fault, &said, RAN).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_was_taken_in_is_told() {
    let fault = alone(vec![call(&[("dice", "{}")]), say("both")], vec![says("dice")]);
    let rows = rows(Fault { steered: Some("and this"), ..fault }).await;
    told(&rows, &["`main` took in a further message, that of turn"], RAN);
}

#[tokio::test(start_paused = true)]
async fn a_quota_of_the_day_is_told_with_when_it_begins_anew() {
    let fault = alone(vec![say("never")], vec![]).scope(|scope| {
        let day = ScopeLimits { max_tokens: 20_000, ..ScopeLimits::unlimited() };
        let quotas = Quotas::new(QuotaLimits { day, warn_at: 0.8, ..QuotaLimits::unlimited() });
        let used = Counted { tokens: 19_998, ..Counted::default() };
        quotas.seed_day(fakes::NOON_MS, used, []);
        scope.quotas = Arc::new(quotas);
    });
    let said = [
        "`main` failed (class `budget`)",
        "`limits.day.max_tokens`: used 19,998 of 20,000 tokens in the day; it begins anew at 2026-03-02T00:00:00Z",
        "raise `limits.day.max_tokens`, or wait until 2026-03-02T00:00:00Z",
    ];
    check(fault, &said, RAN).await;
}

#[tokio::test(start_paused = true)]
async fn the_choice_of_an_agent_is_told() {
    for (by, why) in [
        ("@id", "the message begins with its name"),
        ("agent", "the request names it"),
        ("session", "it is the agent that was chosen for the session"),
    ] {
        let fault = Fault { selected: Some(by), ..alone(vec![say("hello")], vec![]) };
        check(fault, &[&format!("`main` got the message because {why}.")], RAN).await;
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_chose_the_agent_of_a_turn_that_a_topic_set_off() {
    for selected in [None, Some("agent")] {
        let mut fault = Fault { selected, ..alone(vec![say("hello")], vec![]) };
        fault.inbound.origin = Origin::Topic { follower: "main".parse().expect("an id") };
        let rows = rows(fault).await;
        let why = "`main` got the message because a message of a topic set the turn off.";
        let told = told(&rows, &[why], &["turns", "entries"]);
        let wrong =
            |said: &String| said.contains("No agent was chosen") || said.contains("the request names");
        assert!(!told.sentences.iter().any(wrong), "{told:#?}");
        let message = |row: &Cited| row.table == "turns" && row.says == "the message: do it";
        assert!(told.cited.iter().any(message), "{told:#?}");
    }
}
