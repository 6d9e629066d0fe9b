//! What the offline model does with a request.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};

use drupe_agent::AgentCard;
use drupe_extension_api::{
    AgentId, OfflineAction, OfflineRule, OfflineTrigger, ToolAnnotations, ToolName, ToolStatus,
};

use super::*;

mod shipped;

fn spec(name: &str, description: &str, input_schema: Value) -> Arc<ToolSpec> {
    Arc::new(ToolSpec {
        name: ToolName::new(name).unwrap(),
        description: description.to_owned(),
        input_schema,
        instructions: None,
        annotations: ToolAnnotations::default(),
    })
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required})
}

fn agent_tool(name: &str, description: &str) -> Arc<ToolSpec> {
    spec(
        name,
        description,
        object(json!({"task": {"type": "string"}, "summary": {"type": "string"}}), &["task"]),
    )
}

fn tools() -> Vec<Arc<ToolSpec>> {
    let key = json!({"type": "string"});
    vec![
        agent_tool("builder_agent", "Creates, changes and repairs agents and extensions. Uses the shop."),
        agent_tool("haiku", "Writes haikus about any subject."),
        spec("kv_get", "Reads a value that was stored under a key.", object(json!({"key": key}), &["key"])),
        spec("kv_list", "Lists the keys that are stored.", object(json!({}), &[])),
        spec(
            "kv_set",
            "Stores a value under a key.",
            object(json!({"key": key, "value": {}, "ttl": {"type": "integer"}}), &["key", "value"]),
        ),
        spec("terminal_run", "Runs a command.", object(json!({"command": {"type": "string"}}), &["command"])),
    ]
}

fn request(messages: Vec<Message>, tools: Vec<Arc<ToolSpec>>, root: bool) -> ModelRequest {
    ModelRequest {
        agent: Arc::new(AgentCard {
            id: AgentId::new("poet").unwrap(),
            name: "Poet".to_owned(),
            description: "Writes poems.".to_owned(),
            offline: Vec::new(),
            root,
        }),
        system: "".into(),
        messages: Arc::new(messages.into_iter().map(Arc::new).collect()),
        tools: tools.into(),
        deferred: Arc::default(),
        parameters: Arc::default(),
        sparing: false,
        max_output_tokens: 100,
        room: Default::default(),
        dispatch: Default::default(),
        output: None,
        timeout_ms: 1_000,
        max_retries: 0,
    }
}

fn user(content: &str) -> Message {
    Message::User { content: content.to_owned() }
}

fn result(name: &str, status: ToolStatus, content: &str) -> Message {
    Message::Tool {
        call_id: "c".to_owned(),
        name: name.to_owned(),
        status,
        content: content.to_owned(),
        images: Vec::new(),
    }
}

/// The reply as `tool {arguments}` or `"text"`.
fn play(request: &ModelRequest) -> String {
    match reply(request, &Patterns::default()) {
        Ok(Reply::Said(text) | Reply::Found(text)) => format!("{text:?}"),
        Ok(Reply::Call { tool, arguments }) => format!("{tool} {}", Value::Object(arguments)),
        Err(fault) => format!("fault {:?}: {}", fault.class, fault.message),
    }
}

fn check(text: &str) -> String {
    play(&request(vec![user(text)], tools(), true))
}

#[test]
fn commands_call_tools_and_other_texts_do_not() {
    for (text, expected) in [
        (r#"kv_get {"key": "colour"}"#, r#"kv_get {"key":"colour"}"#),
        (r#"kv_get{"key":"colour"}"#, r#"kv_get {"key":"colour"}"#),
        ("/kv_get key=colour", r#"kv_get {"key":"colour"}"#),
        ("kv_set key=a value=1 ttl=60", r#"kv_set {"key":"a","ttl":60,"value":1}"#),
        (r#"kv_set key="two words" value='its own'"#, r#"kv_set {"key":"two words","value":"its own"}"#),
        (r#"kv_set key=5 value="say \"hi\"""#, r#"kv_set {"key":"5","value":"say \"hi\""}"#),
        (r#"kv_set key=a value="1""#, r#"kv_set {"key":"a","value":"1"}"#),
        ("kv_set key=a value=x=y", r#"kv_set {"key":"a","value":"x=y"}"#),
        ("kv_set key=a value=\"\"", r#"kv_set {"key":"a","value":""}"#),
        ("kv_list", "kv_list {}"),
        ("haiku task=rain", r#"haiku {"task":"rain"}"#),
    ] {
        assert_eq!(check(text), expected, "{text}");
    }
    for text in ["kv_get", "kv_get wrong=1", "kv_get {\"key\": "] {
        assert!(check(text).contains("kv_get key=<string>"), "{text}: {}", check(text));
    }
}

#[test]
fn deferred_tools_are_as_good_as_offered_ones_and_are_never_looked_up() {
    let all = tools();
    let (offered, deferred) = all.split_at(2);
    let mut offered = offered.to_vec();
    let query = object(json!({"query": {"type": "string"}}), &["query"]);
    offered.push(spec("search_tools", "Looks up tools that are listed by name only.", query));
    let ask = |text: &str| {
        let mut request = request(vec![user(text)], offered.clone(), true);
        request.deferred = deferred.into();
        play(&request)
    };
    for text in
        ["kv_get key=colour", "read the stored value key=colour", "help", "create an agent called x", "hm"]
    {
        assert_eq!(ask(text), check(text), "{text}");
    }
    for text in ["search_tools query=x", "look up tools listed by name query=x"] {
        assert!(!ask(text).starts_with("search_tools"), "{}", ask(text));
    }
}

#[test]
fn no_sentence_goes_to_a_tool_of_the_loop_that_is_still_called_by_its_name() {
    let steps = object(json!({"items": {"type": "string"}}), &["items"]);
    let mut offered = tools();
    offered.push(spec("update_plan", "Shows the user your plan for a task of several steps.", steps));
    let ask = |text: &str| play(&request(vec![user(text)], offered.clone(), true));
    assert!(!ask("please update your plan with several steps").starts_with("update_plan"));
    assert!(ask("update_plan items=x").starts_with("update_plan"));
}

#[test]
fn a_sentence_goes_to_the_tool_that_fits_best() {
    let task = |tool: &str, task: &str| format!("{tool} {}", json!({"task": task}));
    for (text, tool) in [
        ("create an agent called limerick that writes limericks", "builder_agent"),
        ("Please repair the extension notes", "builder_agent"),
        ("a haiku on autumn rain, please", "haiku"),
        ("Writing about a subject", "haiku"),
    ] {
        assert_eq!(check(text), task(tool, text), "{text}");
    }
    let text = "create an agent called haiku that writes haikus";
    let before: Vec<_> = tools().into_iter().filter(|t| t.name.as_str() != "haiku").collect();
    assert_eq!(play(&request(vec![user(text)], before, true)), task("builder_agent", text));
    assert_eq!(check("list the stored keys"), "kv_list {}");
    assert_eq!(check("set in kv: key=a value=2"), r#"kv_set {"key":"a","value":2}"#);
    assert!(check("run the command rm").contains("terminal_run command=<string>"));
}

#[test]
fn what_fits_nothing_is_said_with_what_there_is() {
    for text in ["tell me about quantum physics", "the", "value", "help", "What can you do?", ""] {
        let said = check(text);
        assert!(
            said.contains("no language model") && said.contains("- kv_get: Reads a value"),
            "{text}: {said}"
        );
    }
    assert!(play(&request(vec![user("hello")], Vec::new(), true)).contains("no tools or agents"));
}

#[test]
fn tools_that_fit_equally_are_settled_by_name_whatever_their_order() {
    let mut pair = vec![agent_tool("b_poet", "Verse."), agent_tool("a_poet", "Verse.")];
    for _ in 0..2 {
        assert!(play(&request(vec![user("poet verse")], pair.clone(), true)).starts_with("a_poet"));
        pair.reverse();
    }
}

#[test]
fn an_agent_below_another_says_who_it_is_and_runs_commands_only() {
    let said = play(&request(vec![user("list the stored keys")], tools(), false));
    for part in ["Poet", "Writes poems", "list the stored keys", "language model"] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(play(&request(vec![user("kv_list")], tools(), false)), "kv_list {}");
}

#[test]
fn a_result_is_told() {
    let response = |status: &str, content: &str, error: Value| {
        json!({"status": status, "content": content, "error": error}).to_string()
    };
    for (status, content, expected) in [
        (ToolStatus::Ok, "red".to_owned(), "red"),
        (ToolStatus::Ok, r#"{"status": 200}"#.to_owned(), r#"{"status": 200}"#),
        (ToolStatus::Ok, String::new(), "`kv_get` is done; it returned nothing."),
        (ToolStatus::Ok, response("success", "a poem", Value::Null), "a poem"),
        (
            ToolStatus::Ok,
            response("error", "half a poem", json!("no ink")),
            "`kv_get` failed: no ink. half a poem",
        ),
        (ToolStatus::Ok, response("refused", "not mine", json!("not mine")), "`kv_get` declined: not mine"),
        (ToolStatus::Error, "gone".to_owned(), "`kv_get` failed: gone"),
        (ToolStatus::Refused, "denied".to_owned(), "`kv_get` was refused: denied"),
        (ToolStatus::OutcomeUnknown, "cut".to_owned(), "It is not known what became of `kv_get`: cut"),
    ] {
        let messages = vec![user("x"), result("kv_get", status, &content)];
        assert_eq!(play(&request(messages, tools(), true)), format!("{expected:?}"));
    }
}

fn rule(trigger: OfflineTrigger, action: OfflineAction) -> OfflineRule {
    OfflineRule { trigger, action }
}

fn when(pattern: &str, action: OfflineAction) -> OfflineRule {
    rule(OfflineTrigger::When(pattern.to_owned()), action)
}

fn after(tool: &str, action: OfflineAction) -> OfflineRule {
    rule(OfflineTrigger::After(tool.to_owned()), action)
}

fn call(tool: &str, with: Value) -> OfflineAction {
    OfflineAction::Call { tool: tool.to_owned(), with: with.as_object().cloned().unwrap_or_default() }
}

fn say(template: &str) -> OfflineAction {
    OfflineAction::Say(template.to_owned())
}

fn ruled(rules: Vec<OfflineRule>, messages: Vec<Message>) -> String {
    let mut request = request(messages, tools(), false);
    Arc::make_mut(&mut request.agent).offline = rules;
    play(&request)
}

fn builder() -> Vec<OfflineRule> {
    vec![
        when(
            r"(?i)create an agent called (?<name>\w+)( that (?<what>.+))?",
            call(
                "write",
                json!({"path": "{{name}}/manifest.yaml", "parts": ["{{what}}", 1, {"task": "{{ task }}"}]}),
            ),
        ),
        after("write", call("reload", json!({}))),
        after("reload", say("{{name}} is ready: {{result}} {{other}}")),
        when("hello", say("hi {{task}}")),
    ]
}

#[test]
fn rules_act_in_order_and_fill_templates_from_task_and_result() {
    let text = "Create an agent called haiku that writes {{result}}";
    let assistant = || Message::Assistant {
        content: String::new(),
        reasoning: None,
        tool_calls: Vec::new(),
        provider_items: None,
    };
    let written = json!({"path": "haiku/manifest.yaml", "parts": ["writes {{result}}", 1, {"task": text}]});
    assert_eq!(ruled(builder(), vec![user(text)]), format!("write {written}"));
    let mut messages = vec![user(text), assistant(), result("write", ToolStatus::Ok, "ok")];
    assert_eq!(ruled(builder(), messages.clone()), "reload {}");
    messages.extend([assistant(), result("reload", ToolStatus::Ok, "1 change")]);
    assert_eq!(ruled(builder(), messages), "\"haiku is ready: 1 change {{other}}\"");
    assert_eq!(ruled(builder(), vec![user("hello there")]), "\"hi hello there\"");
    assert_eq!(ruled(builder(), vec![user("<context>\nx\n</context>\n\nTask:\nhello")]), "\"hi hello\"");
}

#[test]
fn a_tool_that_failed_is_reported_and_not_built_upon() {
    let failed = json!({"status": "error", "content": "no", "error": "no"}).to_string();
    for (status, content) in
        [(ToolStatus::Error, "disk full"), (ToolStatus::Refused, "denied"), (ToolStatus::Ok, failed.as_str())]
    {
        let said = ruled(builder(), vec![user("create an agent called a"), result("write", status, content)]);
        assert!(said.starts_with("\"`write` "), "{said}");
    }
}

#[test]
fn a_wrong_expression_is_a_configuration_fault() {
    let said = ruled(vec![when("(", say("x"))], vec![user("hi")]);
    assert!(said.starts_with("fault Config: an offline rule of agent `poet`"), "{said}");
}

#[test]
fn others_go_on_while_a_rule_is_matched() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let matched = runtime.spawn(async move {
        // The only worker is here: the other task needs it.
        let ran = Arc::new(AtomicBool::new(false));
        let other = Arc::clone(&ran);
        tokio::runtime::Handle::current().spawn(async move { other.store(true, Ordering::SeqCst) });
        let slow = when("[a-z ]*e[a-z ]{2000}[A-Z1-9]", say("x"));
        ruled(vec![slow], vec![user(&"lazy foxes sleep ".repeat(600))]);
        ran.load(Ordering::SeqCst)
    });
    assert!(runtime.block_on(matched).unwrap(), "it waited for the rule");
}

#[test]
fn an_expression_that_would_take_much_memory_is_refused() {
    let answer = ruled(vec![when(r"(\w{60}){9}", say("x"))], vec![user("anything")]);
    assert!(answer.contains("Compiled regex exceeds size limit"), "{answer}");
}

#[test]
fn a_template_does_not_multiply_a_task_without_end() {
    let when = OfflineTrigger::When("(?s).*".to_owned());
    let say = OfflineAction::Say("{{task}}".repeat(60_000));
    let said = ruled(vec![rule(when, say)], vec![Message::User { content: "x".repeat(60_000) }]);
    assert!(said.len() < 512 * 1024 && said.contains("(cut)"), "{} bytes", said.len());
}

#[test]
fn without_a_matching_rule_an_agent_says_who_it_is() {
    assert!(ruled(builder(), vec![user("something else")]).contains("I am the agent Poet"));
}

#[test]
fn a_json_agent_answers_json_where_its_schema_takes_it() {
    let answer =
        json!({"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]});
    let other = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    for (schema, wrapped) in [(None, true), (Some(answer), true), (Some(other), false)] {
        let text = formed("hi".to_owned(), Some(&OutputSpec { format: Format::Json, schema }));
        assert_eq!(text, if wrapped { r#"{"answer":"hi"}"# } else { "hi" });
    }
    assert_eq!(formed("hi".to_owned(), None), "hi");
}

#[test]
fn every_answer_counts_its_tokens_and_calls_have_ids_of_their_own() {
    let source = OfflineSource::new(ModelProfile {
        name: "offline/offline".to_owned(),
        context_window: 1,
        max_output_tokens: 1,
        price: None,
        tools: true,
        images: false,
    });
    let events = source.events(&request(vec![user("kv_list")], tools(), true)).unwrap();
    let usage = events.iter().find_map(|e| match e {
        Ok(ModelEvent::Done { usage, .. }) => *usage,
        _ => None,
    });
    assert_eq!(usage.map(|u| (u.input_tokens, u.output_tokens)), Some((2, 3)));
    assert!(matches!(&events[0], Ok(ModelEvent::ToolCall(call)) if call.call_id == "offline_1"));
}
