//! Pictures as each API takes them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use drupe_extension_api::{ImageType, ModelParameters, ToolStatus};
use serde_json::{Value, json};

use super::*;
use crate::{
    chat::ChatApi,
    gemini::GeminiApi,
    messages::MessagesApi,
    responses::ResponsesApi,
    samples::{self, body, call, facts},
    settings::Endpoint,
};

fn image(media_type: ImageType, bytes: &[u8]) -> Image {
    let (hash, data) = (format!("{bytes:?}"), Some(Arc::from(bytes)));
    Image { hash, media_type, width: 640, height: 480, bytes: bytes.len() as u64, data }
}

fn png() -> Image {
    image(ImageType::Png, b"pixels")
}

fn result(id: &str, images: Vec<Image>) -> Message {
    let (call_id, name, content) = (id.to_owned(), "look".to_owned(), format!("it is {id}"));
    Message::Tool { call_id, name, status: ToolStatus::Ok, content, images }
}

/// Two calls of a tool, of which the second shows pictures, and what the user says then.
fn request(images: Vec<Image>) -> ModelRequest {
    let messages = vec![
        Message::User { content: "look".to_owned() },
        Message::Assistant {
            content: String::new(),
            reasoning: None,
            tool_calls: vec![call("c1", "look", "{}"), call("c2", "look", "{}")],
            provider_items: None,
        },
        result("c1", Vec::new()),
        result("c2", images),
        Message::User { content: "and?".to_owned() },
    ];
    samples::request(messages, Vec::new(), ModelParameters::default())
}

/// What goes out to a model that reads pictures.
fn sent(api: &dyn Api, model: &str, request: &ModelRequest) -> Value {
    let facts = Facts { images: true, ..facts(model) };
    let shown = shown(&facts, api, request).unwrap();
    body(api, &facts, &shown)
}

fn chat(dialect: &str) -> ChatApi {
    let endpoint = Endpoint { dialect: Some(dialect.to_owned()), ..Endpoint::default() };
    ChatApi::at(&endpoint, &reqwest::Url::parse("http://127.0.0.1/v1").unwrap()).unwrap()
}

const URL: &str = "data:image/png;base64,cGl4ZWxz";

#[test]
fn chat_completions_has_them_from_the_user_after_all_results_of_an_answer() {
    let picture = json!({"role": "user", "content": [
        {"type": "text", "text": "(What the tool `look` shows:)"},
        {"type": "image_url", "image_url": {"url": URL, "detail": "high"}},
    ]});
    let sent_to = sent(&chat("common"), "m", &request(vec![png()]));
    let messages = sent_to["messages"].as_array().unwrap();
    assert_eq!(
        messages[3..],
        [
            json!({"role": "tool", "tool_call_id": "c1", "content": "it is c1"}),
            json!({"role": "tool", "tool_call_id": "c2", "content": "it is c2"}),
            picture.clone(),
            json!({"role": "user", "content": "and?"}),
        ]
    );
    // Where the user may not speak after a tool, and at the end.
    let mut last = request(vec![png()]);
    Arc::make_mut(&mut last.messages).pop();
    let mistral = sent(&chat("mistral"), "m", &last);
    let messages = mistral["messages"].as_array().unwrap();
    assert_eq!((messages.len(), &messages[5]["role"], &messages[6]), (7, &json!("assistant"), &picture));
}

#[test]
fn responses_has_them_in_the_output_of_the_call() {
    let sent = sent(&ResponsesApi, "m", &request(vec![png()]));
    assert_eq!(sent.pointer("/input/3/output"), Some(&json!("it is c1")));
    let expected = json!([
        {"type": "input_text", "text": "it is c2"},
        {"type": "input_image", "image_url": URL, "detail": "high"},
    ]);
    assert_eq!(sent.pointer("/input/4/output"), Some(&expected));
}

#[test]
fn messages_has_them_in_the_result_before_its_text() {
    let sent = sent(&MessagesApi::at(&Endpoint::default()), "m", &request(vec![png()]));
    assert_eq!(sent.pointer("/messages/2/content/0/content"), Some(&json!("it is c1")));
    let expected = json!([
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "cGl4ZWxz"}},
        {"type": "text", "text": "it is c2"},
    ]);
    assert_eq!(sent.pointer("/messages/2/content/1/content"), Some(&expected));
}

#[test]
fn gemini_has_them_in_the_response_and_before_its_third_generation_behind_all() {
    let inline = json!({"inlineData": {"mimeType": "image/png", "data": "cGl4ZWxz"}});
    let third = sent(&GeminiApi, "gemini-3.8-flash", &request(vec![png()]));
    assert_eq!(third.pointer("/contents/2/parts/1/functionResponse/parts"), Some(&json!([inline])));
    assert_eq!(third.pointer("/contents/2/parts/0/functionResponse/parts"), None);
    let second = sent(&GeminiApi, "gemini-2.5-flash", &request(vec![png()]));
    assert_eq!(second.pointer("/contents/2/parts/1/functionResponse/parts"), None);
    assert_eq!(second.pointer("/contents/2/parts/2"), Some(&inline));
}

#[test]
fn what_a_model_is_not_shown_it_is_told_of() {
    let gif = image(ImageType::Gif, b"gif");
    let gone = png().reference();
    let told = |api: &dyn Api, images: bool, seen: Vec<Image>| {
        let shown = shown(&Facts { images, ..facts("m") }, api, &request(seen)).unwrap();
        match &*shown.messages[3] {
            Message::Tool { content, images, .. } => (content.clone(), images.len()),
            other => panic!("{other:?}"),
        }
    };
    let blind = told(&chat("common"), false, vec![png()]);
    let expected = "it is c2\n[an image that this model cannot read: image/png, 640x480 pixels, 6 bytes]";
    assert_eq!(blind, (expected.to_owned(), 0));
    let (text, images) = told(&GeminiApi, true, vec![gif.clone(), png()]);
    assert!(text.contains("provider does not take: image/gif") && images == 1, "{text}");
    let (text, images) = told(&chat("common"), true, vec![gone, gif]);
    assert!(text.contains("not kept any more: image/png") && images == 1, "{text}");
    assert!(shown(&facts("m"), &GeminiApi, &request(Vec::new())).is_none(), "nothing is written anew");
}

#[test]
fn of_too_many_the_newest_are_shown_and_too_heavy_ones_count_as_several() {
    let mut many = request(Vec::new());
    let messages = Arc::make_mut(&mut many.messages);
    messages.extend((0..15).map(|n| Arc::new(result(&format!("n{n}"), vec![png(), png()]))));
    let facts = Facts { images: true, ..facts("m") };
    let seen = |request: &ModelRequest| {
        let shown = shown(&facts, &chat("common"), request).unwrap();
        shown.messages.iter().map(|message| message.images().len()).collect::<Vec<_>>()
    };
    assert_eq!(seen(&many)[5..], [[0; 5].as_slice(), &[2; 10]].concat());
    let heavy = Image { bytes: MOST_BYTES / 3, ..png() };
    let messages = Arc::make_mut(&mut many.messages);
    messages.push(Arc::new(result("heavy", vec![heavy.clone(), heavy.clone(), heavy])));
    assert_eq!(seen(&many).last(), Some(&3));
    assert_eq!(seen(&many)[5..20], [0; 15], "nothing is left for those before");
}
