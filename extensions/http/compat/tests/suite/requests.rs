//! What is understood of a request.

use drupe_extension_api::{Format, Message, OutputSpec, Reasoning, ToolStatus};
use drupe_http_compat::{
    Ask, ChatRequest, MessagesRequest, ResponsesRequest, Thread, ToolChoice, messages::ApiVersion, responses,
};
use serde_json::{Value, json};

fn chat(body: Value) -> Ask {
    ChatRequest::parse(body.to_string().as_bytes()).expect("a request").ask
}

fn respond(body: Value) -> Ask {
    ResponsesRequest::parse(body.to_string().as_bytes()).expect("a request").ask
}

fn message(body: Value) -> Ask {
    MessagesRequest::parse(body.to_string().as_bytes(), ApiVersion::V2023).expect("a request").ask
}

/// A conversation in a line: who says what.
fn told(ask: &Ask) -> String {
    let entries = ask.messages.iter().map(|message| match message {
        Message::User { content } => format!("user {content}"),
        Message::Assistant { content, tool_calls, .. } => {
            let calls: Vec<String> = tool_calls
                .iter()
                .map(|call| format!("{}:{}{}", call.call_id, call.name, call.arguments))
                .collect();
            format!("assistant {content}[{}]", calls.join(","))
        }
        Message::Tool { call_id, name, status, content, images: _ } => {
            format!(
                "tool {call_id}:{name} {}{content}",
                if *status == ToolStatus::Ok { "" } else { "failed " }
            )
        }
    });
    entries.collect::<Vec<_>>().join(" | ")
}

const HISTORY: &str = "user a\nb | assistant c[c1:f{\"x\":1}] | tool c1:f d | user e";

#[test]
fn a_history_reads_the_same_in_all_formats() {
    let asked = chat(json!({"model": "drupe", "messages": [
        {"role": "system", "content": "one"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "c", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "d"}]},
        {"role": "developer", "content": "two"},
        {"role": "user", "content": "e"}]}));
    assert_eq!((told(&asked).as_str(), asked.instructions.as_str()), (HISTORY, "one\n\ntwo"));

    let asked = respond(json!({"model": "drupe", "instructions": "one", "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "message", "role": "assistant", "id": "m", "content": [{"type": "output_text", "text": "c", "annotations": []}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"x\":1}"},
        {"type": "function_call_output", "call_id": "c1", "output": "d"},
        {"type": "message", "role": "developer", "content": "two"},
        {"role": "user", "content": "e"}]}));
    assert_eq!((told(&asked).as_str(), asked.instructions.as_str()), (HISTORY, "one\n\ntwo"));

    let asked = message(
        json!({"model": "drupe", "max_tokens": 5, "system": [{"type": "text", "text": "one"}], "messages": [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "text", "text": "c"}, {"type": "tool_use", "id": "c1", "name": "f", "input": {"x": 1}}]},
        {"role": "system", "content": "two"},
        {"role": "user", "content": [{"type": "text", "text": "e"},
            {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "d"}]}]}]}),
    );
    assert_eq!((told(&asked).as_str(), asked.instructions.as_str()), (HISTORY, "one\n\ntwo"));
}

#[test]
fn what_is_new_to_a_session_follows_the_last_answer() {
    let said = |role: &str, text: &str| json!({"role": role, "content": text});
    let new = |messages: Value| chat(json!({"model": "drupe", "messages": messages})).news().len();
    assert_eq!(new(json!([said("user", "a")])), 1);
    assert_eq!(
        new(json!([said("user", "a"), said("assistant", "b"), said("user", "c"), said("user", "d")])),
        2
    );
}

#[test]
fn an_ask_is_a_text_where_a_turn_takes_one() {
    let said = |role: &str, text: &str| json!({"role": role, "content": text});
    let task = |body: Value| chat(body).as_task();
    assert_eq!(task(json!({"model": "drupe", "messages": [said("user", "a")]})), "a");
    let history =
        json!([said("system", "s"), said("user", "a\n{"), said("assistant", "b"), said("user", "c")]);
    assert_eq!(
        task(json!({"model": "drupe", "messages": history})),
        "Instructions for this conversation:\ns\n\nWhat was said before, oldest first:\n\
         {\"content\":\"a\\n{\",\"role\":\"user\"}\n{\"content\":\"b\",\"role\":\"assistant\"}\n\n\
         What to answer now:\nc"
    );
    // A session that lasts knows the rest.
    let lasting = json!({"model": "drupe", "metadata": {"session": "s"}, "messages": [
        said("user", "a"), said("assistant", "b"), said("user", "c")]});
    assert_eq!(task(lasting), "c");
}

#[test]
fn a_failed_tool_is_told_as_failed() {
    let asked = message(json!({"model": "drupe", "max_tokens": 5, "messages": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "x", "is_error": true}]}]}));
    assert_eq!(told(&asked), "user a | assistant [c1:f{}] | tool c1:f failed x");
}

#[test]
fn each_agent_is_a_model_and_the_orchestrator_is_drupe() {
    let agent = |model: &str| respond(json!({"model": model, "input": "x"})).agent.map(|id| id.to_string());
    assert_eq!((agent("drupe"), agent("haiku")), (None, Some("haiku".into())));
}

#[test]
fn tools_and_their_choice_are_read() {
    let schema = json!({"type": "object", "properties": {"x": {"type": "integer"}}});
    let function = |name: &str| json!({"name": name, "description": "does it", "parameters": schema});
    let wrapped = |name: &str| json!({"type": "function", "function": function(name)});
    let base = json!({"model": "drupe", "messages": [{"role": "user", "content": "x"}], "tools": [wrapped("f"), wrapped("g")]});
    let with = |choice: Value| {
        let mut body = base.clone();
        body["tool_choice"] = choice;
        let asked = chat(body);
        (
            asked.tool_choice,
            asked.tools.iter().map(|tool| tool.name.to_string()).collect::<Vec<_>>().join(","),
        )
    };
    let named = |name: &str| ToolChoice::Named(name.parse().expect("a name"));
    assert_eq!(with(Value::Null), (ToolChoice::Auto, "f,g".into()));
    assert_eq!(with(json!("none")), (ToolChoice::None, "f,g".into()));
    assert_eq!(with(json!({"type": "function", "function": {"name": "g"}})), (named("g"), "f,g".into()));
    let allowed =
        json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [wrapped("g")]}});
    assert_eq!(with(allowed), (ToolChoice::Required, "g".into()));
    assert_eq!(chat(base).tools[0].input_schema, schema);

    let asked = respond(json!({"model": "drupe", "input": "x", "parallel_tool_calls": false, "tools": [
        {"type": "web_search"}, {"type": "function", "name": "f", "parameters": null, "strict": true}],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}}));
    assert_eq!((asked.tools.len(), asked.tool_choice, asked.parallel_calls), (1, ToolChoice::Auto, false));

    let asked =
        message(json!({"model": "drupe", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}],
        "tools": [{"name": "f", "input_schema": schema}],
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": true}}));
    assert_eq!((asked.tool_choice, asked.parallel_calls), (named("f"), false));
}

#[test]
fn the_form_and_the_bounds_of_the_answer_are_read() {
    let schema = json!({"type": "object"});
    let form = Some(OutputSpec { format: Format::Json, schema: Some(schema.clone()) });
    let asked = chat(
        json!({"model": "drupe", "messages": [{"role": "user", "content": "x"}], "seed": 7, "stop": "a",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": true}},
        "max_tokens": 5, "max_completion_tokens": 9, "temperature": 0.5, "top_p": 0.9, "reasoning_effort": "minimal"}),
    );
    let parameters = &asked.parameters;
    assert_eq!(
        (asked.output, parameters.max_output_tokens, parameters.seed),
        (form.clone(), Some(9), Some(7))
    );
    assert_eq!((parameters.temperature, parameters.top_p), (Some(0.5), Some(0.9)));
    assert_eq!(
        (parameters.reasoning, parameters.stop.as_slice()),
        (Some(Reasoning::Low), &["a".to_owned()][..])
    );

    let asked = respond(
        json!({"model": "drupe", "input": "x", "max_output_tokens": 5, "reasoning": {"effort": "xhigh"},
        "text": {"format": {"type": "json_object"}, "verbosity": "low"}}),
    );
    assert_eq!(asked.output, Some(OutputSpec { format: Format::Json, schema: None }));
    assert_eq!(
        (asked.parameters.max_output_tokens, asked.parameters.reasoning),
        (Some(5), Some(Reasoning::High))
    );

    let asked =
        message(json!({"model": "drupe", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}],
        "stop_sequences": ["a", "b"], "thinking": {"type": "disabled"},
        "output_config": {"format": {"type": "json_schema", "schema": schema}}}));
    assert_eq!((asked.output, asked.parameters.reasoning), (form, Some(Reasoning::None)));
    assert_eq!((asked.parameters.stop.len(), asked.parameters.max_output_tokens), (2, Some(5)));
}

#[test]
fn a_call_stands_on_itself_on_a_session_or_on_an_earlier_answer() {
    let session = |name: &str| Thread::Session(name.parse().expect("an id"));
    let metadata = json!({"session": "mine", "other": "x"});
    let asked =
        chat(json!({"model": "drupe", "metadata": metadata, "messages": [{"role": "user", "content": "x"}]}));
    assert_eq!((asked.thread, asked.store), (session("mine"), false));
    let thread = |more: Value| {
        let mut body = json!({"model": "drupe", "input": "x"});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("fields").clone());
        respond(body).thread
    };
    assert_eq!(thread(json!({})), Thread::Stateless);
    assert_eq!(thread(json!({"conversation": "mine"})), session("mine"));
    assert_eq!(thread(json!({"conversation": {"id": "mine"}, "metadata": metadata})), session("mine"));
    let turn = "t1".parse().expect("an id");
    let id = responses::response_id(&turn);
    assert_eq!(responses::turn_of(&id), Some(turn.clone()));
    assert_eq!(thread(json!({"previous_response_id": id})), Thread::After(turn));
    assert_eq!(responses::turn_of("resp_"), None);
}

#[test]
fn a_result_may_answer_a_call_that_an_earlier_answer_made() {
    let asked = respond(json!({"model": "drupe", "previous_response_id": "resp_t1",
        "input": [{"type": "function_call_output", "call_id": "c1", "output": "x"}]}));
    assert_eq!(told(&asked), "tool c1: x");
}

#[test]
fn a_reference_to_an_item_stands_for_all_that_its_turn_knows() {
    let reference = |id: &str| json!({"type": "item_reference", "id": id});
    let ask = |more: Value| {
        let mut body = json!({"model": "drupe", "input": [
            {"role": "developer", "content": "Be short."}, {"role": "user", "content": "a"}, reference("msg_t-1_0"),
            {"role": "user", "content": "b"}, reference("msg_t_2_0"), reference("fc_t_2_1"),
            {"type": "function_call_output", "call_id": "c1", "output": "x"}]});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("fields").clone());
        respond(body)
    };
    let asked = ask(json!({}));
    assert_eq!((told(&asked).as_str(), asked.instructions.as_str()), ("tool c1: x", "Be short."));
    assert_eq!(asked.thread, Thread::After("t_2".parse().expect("an id")));
    let asked = ask(json!({"conversation": "mine"}));
    assert_eq!(
        (told(&asked).as_str(), asked.thread),
        ("tool c1: x", Thread::Session("mine".parse().expect("an id")))
    );
}

#[test]
fn responses_are_stored_unless_the_client_says_no() {
    let asked = |more: Value| {
        let mut body = json!({"model": "drupe", "input": "x"});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("fields").clone());
        let asked = respond(body);
        (asked.store, asked.background)
    };
    assert_eq!(asked(json!({})), (true, false));
    assert_eq!(asked(json!({"store": false})), (false, false));
    assert_eq!(asked(json!({"background": true})), (true, true));
}

#[test]
fn tokens_are_counted_without_an_answer_being_asked_for() {
    let count = |text: &str| {
        let body = json!({"model": "drupe", "messages": [{"role": "user", "content": text}]}).to_string();
        let request = MessagesRequest::parse_count(body.as_bytes(), ApiVersion::V2026).expect("a request");
        request.token_count()["input_tokens"].as_u64().expect("a number")
    };
    assert!(count("") >= 1 && count(&"word ".repeat(300)) > 10 * count("word word"));
}
