//! Clients of OpenAI and Anthropic, by the bytes that they send: what their libraries make of the answers is tried by the
//! scripts in `tests/clients`.

use serde_json::{Value, json};

use super::{daemon, door, token};

#[test]
fn an_agent_answers_in_each_format_whole_and_as_it_comes() {
    let (server, daemon) = daemon("");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let models = door.get(&ci, "/v1/models").json();
    let ids: Vec<_> = models["data"].as_array().expect("a list").iter().map(|model| &model["id"]).collect();
    assert!(ids.contains(&&json!("drupe")) && ids.contains(&&json!("haiku")), "{models}");
    let asked = json!([
        {"role": "user", "content": "I am called Ann"},
        {"role": "assistant", "content": "Hello, Ann"},
        {"role": "user", "content": "hello"},
    ]);
    let chat = json!({"model": "haiku", "messages": asked, "temperature": 0.5});
    let answer = door.post(&ci, "/v1/chat/completions", &chat);
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    assert_eq!(answer["choices"][0]["finish_reason"], "stop", "{answer}");
    assert!(answer["usage"]["total_tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{answer}");
    let last = server.requests().pop().expect("a model was asked");
    let sent = last.to_string();
    assert!(
        sent.contains("I am called Ann") && sent.contains("Hello, Ann"),
        "the conversation goes along: {last}"
    );
    assert_eq!(last["temperature"], 0.5, "{last}");
    let said = answer["choices"][0]["message"]["content"].as_str().expect("a text").to_owned();
    let messages =
        json!({"model": "haiku", "max_tokens": 64, "messages": [{"role": "user", "content": "hello"}]});
    let answer = door.post(&ci, "/v1/messages", &messages).json();
    assert_eq!((&answer["content"][0]["text"], &answer["stop_reason"]), (&json!(said), &json!("end_turn")));
    let responses = json!({"model": "haiku", "input": "hello"});
    let first = door.post(&ci, "/v1/responses", &responses).json();
    assert_eq!(first["status"], "completed", "{first}");
    let id = first["id"].as_str().expect("an id");
    let kept = door.get(&ci, &format!("/v1/responses/{id}")).json();
    assert_eq!((&kept["status"], &kept["created_at"]), (&json!("completed"), &first["created_at"]));
    assert!(first["created_at"].as_f64().is_some_and(|time| time > 1.7e9), "{first}");
    let next = json!({"model": "haiku", "input": "hello", "previous_response_id": id});
    assert_eq!(door.post(&ci, "/v1/responses", &next).json()["status"], "completed");
    for (path, mut body, last) in [
        ("/v1/chat/completions", chat, "data: [DONE]"),
        ("/v1/messages", messages, "event: message_stop"),
        ("/v1/responses", responses, "event: response.completed"),
    ] {
        body["stream"] = Value::Bool(true);
        let streamed = door.post(&ci, path, &body);
        assert_eq!(streamed.status, 200, "{streamed:?}");
        assert!(streamed.body.contains(last), "{path}: {}", streamed.body);
    }
}

#[test]
fn what_cannot_be_done_is_refused_in_the_words_of_the_vendor() {
    let (_server, daemon) = daemon("");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let user = json!([{"role": "user", "content": "hello"}]);
    for (body, status, code) in [
        (json!({"model": "nobody", "messages": user}), 404, "model_not_found"),
        (json!({"model": "haiku", "messages": user, "n": 2}), 400, "unsupported_parameter"),
    ] {
        let refused = door.post(&ci, "/v1/chat/completions", &body);
        assert_eq!(refused.status, status, "{refused:?}");
        assert_eq!(refused.json()["error"]["code"], code, "{refused:?}");
    }
    let body = json!({"model": "haiku", "max_tokens": 8, "messages": user}).to_string();
    let wrong = door.send("POST", "/v1/messages", &[("x-api-key", "drupe_wrong")], &body);
    assert_eq!((wrong.status, &wrong.json()["error"]["type"]), (401, &json!("authentication_error")));
    let wrong = door.send("POST", "/v1/chat/completions", &[], &body);
    assert_eq!((wrong.status, &wrong.json()["error"]["code"]), (401, &json!("invalid_api_key")));
}

#[test]
fn an_answer_that_is_not_to_be_kept_is_not_found_under_its_id() {
    let (_server, daemon) = daemon("");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let ask = json!({"model": "haiku", "input": "hello", "store": false});
    let answer = door.post(&ci, "/v1/responses", &ask).json();
    assert_eq!((&answer["status"], &answer["store"]), (&json!("completed"), &json!(false)), "{answer}");
    let id = answer["id"].as_str().expect("an id");
    let lost = door.get(&ci, &format!("/v1/responses/{id}"));
    assert_eq!(lost.status, 404, "{lost:?}");
    let next = json!({"model": "haiku", "input": "and now?", "previous_response_id": id});
    assert_eq!(door.post(&ci, "/v1/responses", &next).status, 404);
}
