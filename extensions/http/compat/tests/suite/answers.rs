//! Turns, and what clients read of them: whole streams are compared with files in `tests/golden`.
//!
//! `DRUPE_BLESS=1 cargo test -p drupe-http-compat` writes the files anew; look at the difference before it is committed, and
//! run the clients in `tests/clients` against it.

use std::{fs, path::Path};

use drupe_extension_api::{AgentResponse, FailureClass};
use drupe_http_compat::{
    ChatRequest, ClientCall, Encoder, MessagesRequest, Rejection, RejectionKind, ResponsesRequest, Vendor,
    messages::ApiVersion,
};
use serde_json::{Value, json};

use crate::script::{Act, FORMATS, at, begun, delta, encoder, event, hear, play, reset, said, turn, usage};

/// The turns, by name.
fn turns() -> Vec<(&'static str, Vec<Act>)> {
    let success = |text: &str| Act::End(AgentResponse::success(text));
    let plain = || {
        hear([begun("m1"), delta("m1", "Par"), delta("m1", "is."), said("m1", "Paris.", "end")[0].clone()])
    };
    let mut hello = plain();
    hello.push(success("Paris."));

    let tool = json!({"item": {"id": "e1", "type": "tool_call", "name": "files__read"}});
    let mut commentary = hear([begun("m1"), delta("m1", "Let me look.")]);
    commentary.extend(hear(said("m1", "Let me look.", "tool_calls")));
    commentary.extend(hear([
        event("interaction.item.started", tool),
        at(
            1,
            "interaction.item.updated",
            json!({"id": "x", "item": "agent_message", "delta": "of a sub-agent"}),
        ),
        event("interaction.item.updated", json!({"id": "r", "item": "reasoning", "delta": "hm"})),
        begun("m2"),
        delta("m2", "Paris."),
    ]));
    commentary.extend(hear(said("m2", "Paris.", "end")));
    commentary.push(success("Paris."));

    let mut calls = hear([begun("m1"), delta("m1", "I ask you.")]);
    calls.push(Act::Call("call_1", "where", json!({"city": "Paris", "n": 2})));
    calls.push(Act::Call("call_2", "when", json!({})));
    calls.push(success("I ask you."));

    let mut repeated =
        hear([begun("m1"), delta("m1", "Par"), reset("m1"), delta("m1", "Pa"), delta("m1", "ris.")]);
    repeated.extend(hear(said("m1", "Paris.", "end")));
    repeated.push(success("Paris."));

    let mut reworded = hear([begun("m1"), delta("m1", "Par"), reset("m1"), delta("m1", "In France.")]);
    reworded.extend(hear(said("m1", "In France.", "end")));
    reworded.push(success("In France."));

    let mut cut = hear([begun("m1"), delta("m1", "The Eiffel")]);
    cut.extend(hear(said("m1", "The Eiffel", "length")));
    cut.extend(hear([begun("m2"), delta("m2", " Tower")]));
    cut.extend(hear(said("m2", " Tower", "length")));
    cut.push(Act::End(AgentResponse::error(FailureClass::Model, "the answer was cut off at its bound")));

    let refused = vec![Act::End(AgentResponse::refused("not my business"))];
    let failed = vec![Act::End(AgentResponse::error(FailureClass::Network, "the provider is not there"))];
    let mut broken = hear([begun("m1"), delta("m1", "Par")]);
    broken.push(Act::End(AgentResponse::error(FailureClass::Budget, "the day's budget is used up")));
    vec![
        ("hello", hello),
        ("commentary", commentary),
        ("calls", calls),
        ("repeated", repeated),
        ("reworded", reworded),
        ("cut", cut),
        ("refused", refused),
        ("failed", failed),
        ("broken", broken),
    ]
}

#[expect(clippy::disallowed_methods, reason = "whoever runs the tests may have the files written")]
fn check(name: &str, found: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("DRUPE_BLESS").is_some() {
        fs::write(&file, found).expect("the file is written");
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(found, expected, "`{name}` differs");
}

#[test]
fn streams_are_as_they_were() {
    for format in FORMATS {
        for (name, acts) in turns() {
            let frames = play(&mut encoder(format, true, false), acts);
            let text: String = frames.iter().map(|frame| frame.text()).collect();
            check(&format!("{name}.{format}.sse"), &text);
        }
    }
}

#[test]
fn whole_answers_are_as_they_were() {
    for (format, vendor) in FORMATS.into_iter().zip([Vendor::OpenAi, Vendor::OpenAi, Vendor::Anthropic]) {
        for (name, acts) in turns() {
            let mut encoder = encoder(format, false, false);
            play(&mut encoder, acts);
            let text = match encoder.answer() {
                Ok(body) => format!("200\n{body:#}\n"),
                Err(no) => format!("{}\n{:#}\n", no.status(vendor), no.body(vendor, "req_1")),
            };
            check(&format!("{name}.{format}.json"), &text);
        }
    }
}

#[test]
fn one_who_does_not_stream_gets_the_answer_without_what_was_said_on_the_way() {
    for format in FORMATS {
        let (_, acts) = turns().remove(1);
        let mut encoder = encoder(format, false, false);
        play(&mut encoder, acts);
        let body = encoder.answer().expect("an answer").to_string();
        assert!(body.contains("Paris.") && !body.contains("Let me look."), "{format}: {body}");
    }
}

#[test]
fn json_is_written_when_it_is_whole() {
    for format in FORMATS {
        let mut acts = hear([begun("m1"), delta("m1", "```json\n{\"a\":")]);
        let mut encoder = encoder(format, true, true);
        let early: String = play(&mut encoder, std::mem::take(&mut acts)).iter().map(|f| f.text()).collect();
        assert!(!early.contains("```"), "{format}: {early}");
        let late = encoder.end(&AgentResponse::success("{\"a\":1}"), usage());
        let late: String = late.iter().map(|frame| frame.text()).collect();
        assert!(late.contains(r#"{\"a\":1}"#), "{format}: {late}");
    }
}

#[test]
fn parts_that_were_missed_come_with_the_whole() {
    let long = "word ".repeat(2000);
    for format in FORMATS {
        let skipped = event("interaction.stream.skipped", Value::Null);
        let mut acts = hear([begun("m1"), delta("m1", "word "), skipped, delta("m1", "lost")]);
        acts.extend(hear(said("m1", &long, "end")));
        acts.push(Act::End(AgentResponse::success(&long)));
        assert_eq!(spoken(format, acts), long, "{format}");
    }
}

#[test]
fn what_was_said_before_an_attempt_stays_when_the_attempt_is_repeated() {
    for format in FORMATS {
        // Nothing came of the attempt.
        let mut acts = hear([begun("m1"), delta("m1", "Let me look.")]);
        acts.extend(hear(said("m1", "Let me look.", "tool_calls")));
        acts.extend(hear([begun("m2"), reset("m2"), delta("m2", "Paris.")]));
        let between = if format == "responses" { "" } else { "\n\n" };
        assert_eq!(spoken(format, acts), format!("Let me look.{between}Paris."), "{format}");
        // Something came of it, after a part that its bound had cut off.
        let mut acts = hear([begun("m1"), delta("m1", "The Eiffel")]);
        acts.extend(hear(said("m1", "The Eiffel", "length")));
        acts.extend(hear([
            begun("m2"),
            delta("m2", " To"),
            reset("m2"),
            delta("m2", " Tow"),
            delta("m2", "er"),
        ]));
        acts.extend(hear(said("m2", " Tower", "end")));
        acts.push(Act::End(AgentResponse::success("The Eiffel Tower")));
        assert_eq!(spoken(format, acts), "The Eiffel Tower", "{format}");
    }
}

#[test]
fn a_message_that_is_begun_anew_twice_keeps_what_is_sure_of_it() {
    let mut acts = hear([begun("m1"), delta("m1", "The Eiffel")]);
    acts.extend(hear(said("m1", "The Eiffel", "length")));
    acts.extend(hear([begun("m2"), delta("m2", " To"), reset("m2"), delta("m2", ", in Paris")]));
    acts.extend(hear([reset("m2"), delta("m2", ", in Paris.")]));
    acts.push(Act::End(AgentResponse::success("The Eiffel, in Paris.")));
    let mut encoder = encoder("responses", true, false);
    play(&mut encoder, acts);
    let output = &encoder.object()["output"];
    assert_eq!(output[0]["status"], "incomplete");
    assert_eq!(output[1]["content"][0]["text"], "The Eiffel, in Paris.");
    assert_eq!(output[2], Value::Null);
}

#[test]
fn what_was_missed_and_is_not_told_again_is_marked() {
    let long = "word ".repeat(2000);
    for format in FORMATS {
        let mut acts = hear([event("interaction.stream.skipped", Value::Null)]);
        acts.extend(hear(said("m1", &long, "tool_calls")));
        acts.extend(hear([begun("m2"), delta("m2", "Paris.")]));
        let text = spoken(format, acts);
        // Events show 4096 bytes of it.
        assert!(text.contains("word w …") && text.ends_with("Paris."), "{format}");
    }
}

#[test]
fn figures_are_those_of_the_turn_however_it_ended() {
    let spend = json!({"usage": {"input_tokens": 8, "output_tokens": 1}});
    let over = event("interaction.turn.completed", json!({"status": "error", "spend": spend}));
    let mut failed = encoder("responses", true, false);
    failed.event(&over);
    failed.end(&AgentResponse::error(FailureClass::Network, "gone"), Default::default());
    assert_eq!(failed.object()["usage"]["total_tokens"], 9);
    let mut lost = encoder("responses", true, false);
    lost.event(&over);
    lost.fail(&Rejection::new(RejectionKind::Internal, "the journal is gone"));
    assert_eq!(lost.object()["usage"]["total_tokens"], 9);
    let mut done = encoder("responses", true, false);
    done.event(&over);
    done.end(&AgentResponse::success("x"), Default::default());
    assert_eq!(done.object()["usage"]["total_tokens"], 9);
}

#[test]
fn a_turn_that_was_stopped_after_a_cut_answer_has_failed() {
    for format in FORMATS {
        let mut acts = hear([begun("m1"), delta("m1", "The Eiffel")]);
        acts.extend(hear(said("m1", "The Eiffel", "length")));
        acts.push(Act::End(AgentResponse::error(FailureClass::Cancelled, "stopped")));
        let mut encoder = encoder(format, false, false);
        play(&mut encoder, acts);
        assert!(encoder.answer().is_err(), "{format}");
    }
}

#[test]
fn an_answer_that_nobody_watched_comes_at_its_end() {
    for format in FORMATS {
        assert_eq!(spoken(format, vec![Act::End(AgentResponse::success("Paris."))]), "Paris.");
        let late = hear(said("m1", "Paris.", "end")).into_iter();
        let acts = late.chain([Act::End(AgentResponse::success("Paris."))]).collect();
        assert_eq!(spoken(format, acts), "Paris.");
    }
}

#[test]
fn what_another_turn_says_is_not_heard_unless_it_took_the_message_in() {
    for format in FORMATS {
        let mut other = delta("m1", "of another turn");
        other.turn = Some("t2".parse().expect("an id"));
        let mut own = delta("m2", "Paris.");
        own.turn = other.turn.clone();
        let input = json!({"text": "x", "truncated": false, "bytes": 1});
        let took = |from: &str| {
            let mut steered = event("interaction.turn.steered", json!({"input": input, "from": from}));
            steered.turn = other.turn.clone();
            steered
        };
        let (stranger, steered) = (took("t9"), took("t1"));
        // Without an end, which would bring the answer whoever was heard.
        assert_eq!(spoken(format, hear([stranger, other, steered, own])), "Paris.");
    }
}

/// All text of a stream.
fn spoken(format: &str, acts: Vec<Act>) -> String {
    let frames = play(&mut encoder(format, true, false), acts);
    let data = frames.iter().filter_map(|frame| serde_json::from_str::<Value>(&frame.data).ok());
    let text = |data: Value| match format {
        "chat" => data["choices"][0]["delta"]["content"].as_str().map(str::to_owned),
        "responses" => data["delta"].as_str().map(str::to_owned),
        _ => data["delta"]["text"].as_str().map(str::to_owned),
    };
    data.filter_map(text).collect()
}

#[test]
fn a_tool_that_must_be_called_is_called_with_what_the_agent_answers() {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let said = json!([{"role": "user", "content": "where"}]);
    let function = json!({"name": "place", "parameters": schema});
    let chat = json!({"model": "drupe", "stream": true, "messages": said, "tool_choice": "required",
        "tools": [{"type": "function", "function": function}]});
    let respond = json!({"model": "drupe", "stream": true, "input": said, "tool_choice": {"type": "function", "name": "place"},
        "tools": [{"type": "function", "name": "place", "parameters": schema}]});
    let message = json!({"model": "drupe", "stream": true, "messages": said, "max_tokens": 9,
        "tool_choice": {"type": "tool", "name": "place"}, "tools": [{"name": "place", "input_schema": schema}]});
    let chat = ChatRequest::parse(chat.to_string().as_bytes()).expect("a request");
    let respond = ResponsesRequest::parse(respond.to_string().as_bytes()).expect("a request");
    let message =
        MessagesRequest::parse(message.to_string().as_bytes(), ApiVersion::V2026).expect("a request");
    for (ask, make) in [
        (&chat.ask, &(|| chat.encoder(&turn())) as &dyn Fn() -> Encoder),
        (&respond.ask, &|| respond.encoder(&turn())),
        (&message.ask, &|| message.encoder(&turn())),
    ] {
        assert_eq!(ask.output.as_ref().and_then(|output| output.schema.as_ref()), Some(&schema));
        let mut encoder = make();
        let mut acts = hear([begun("m1"), delta("m1", "{\"city\"")]);
        acts.extend(hear(said_json()));
        acts.push(Act::End(AgentResponse::success("{\"city\":\"Paris\"}")));
        play(&mut encoder, acts);
        let body = encoder.answer().expect("an answer").to_string();
        assert!(body.contains("call_t1") && body.contains("place") && body.contains("Paris"), "{body}");
        assert_eq!(body.matches("Paris").count(), 1, "the arguments are no text as well: {body}");
        let mut encoder = make();
        encoder.end(&AgentResponse::success("Paris"), usage());
        assert_eq!(encoder.answer().map_err(|no| no.status(Vendor::OpenAi)), Err(422));
    }
}

fn said_json() -> [drupe_extension_api::Event; 2] {
    said("m1", "{\"city\":\"Paris\"}", "end")
}

#[test]
fn a_ping_belongs_between_the_beginning_and_the_end() {
    for format in FORMATS {
        let mut encoder = encoder(format, true, false);
        assert_eq!(encoder.ping(), None);
        encoder.begin();
        let ping = encoder.ping().expect("a ping").text();
        assert!(ping == ":\n\n" || ping == "event: ping\ndata: {\"type\":\"ping\"}\n\n", "{ping:?}");
        encoder.end(&AgentResponse::success("x"), usage());
        assert_eq!(encoder.ping(), None);
    }
}

#[test]
fn nothing_follows_the_end() {
    for format in FORMATS {
        let mut encoder = encoder(format, true, false);
        assert!(!encoder.begin().is_empty() && encoder.begin().is_empty());
        assert!(!encoder.end(&AgentResponse::success("x"), usage()).is_empty());
        let call = ClientCall { id: "c".into(), name: "f".into(), arguments: Default::default() };
        assert!(encoder.event(&delta("m", "more")).is_empty() && encoder.call(call).is_empty());
        assert!(encoder.end(&AgentResponse::success("y"), usage()).is_empty());
    }
}

#[test]
fn a_response_that_runs_in_the_background_can_be_shown_at_any_time() {
    let mut encoder = encoder("responses", true, false);
    assert_eq!(encoder.object()["status"], "in_progress");
    assert_eq!(encoder.object()["usage"], Value::Null);
    encoder.event(&delta("m1", "Par"));
    assert_eq!(encoder.object()["output"][0]["status"], "in_progress");
    encoder.end(&AgentResponse::error(FailureClass::Cancelled, "cancelled"), usage());
    assert_eq!(encoder.object()["status"], "cancelled");
    assert_eq!(encoder.object()["id"], format!("resp_{}", turn().turn));
}

#[test]
fn arguments_that_are_no_object_are_no_call() {
    let request = |arguments: &str| drupe_extension_api::ToolCallRequest {
        call_id: "c".into(),
        name: "f".into(),
        arguments: arguments.into(),
    };
    assert!(ClientCall::try_from(&request("[1]")).is_err());
    assert!(ClientCall::try_from(&request("{")).is_err());
    assert_eq!(ClientCall::try_from(&request(" ")).map(|call| call.arguments.len()), Ok(0));
}
