//! What clients of OpenAI and of Anthropic call. Shapes are those of `docs/reference/wire-formats.md`: what of a request is
//! understood, and what an answer has. Other fields are ignored, so every object may have more.

use serde_json::{Value, json};

use super::{ApiOperation, TypeSchemas, get, post};

/// What can come of a turn, by vendor. The status of a budget that is used up and that of a daemon with too much to do differ.
const OPENAI: &[u16] = &[400, 404, 429, 499, 501, 502, 504];
const ANTHROPIC: &[u16] = &[400, 402, 404, 429, 499, 501, 502, 504, 529];

pub fn operations(s: &mut TypeSchemas) -> Vec<ApiOperation> {
    let openai = s.plain("OpenAiError", openai_error());
    let anthropic = s.plain("AnthropicError", anthropic_error());
    let mut all = models(s, &openai, &anthropic);
    all.extend(chat(s, &openai));
    all.extend(responses(s, &openai));
    all.extend(messages(s, &anthropic));
    all
}

/// Headers of every answer to a vendor's client.
fn named(operation: ApiOperation) -> ApiOperation {
    operation.header(200, "x-request-id", "The name of the request, which is `request-id` as well.")
}

fn joins(operation: ApiOperation) -> ApiOperation {
    let id = json!({ "type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,96}$" });
    let key = json!({ "type": "string", "pattern": "^[\\x20-\\x7e]+$", "maxLength": 1024 });
    operation.asks("X-Drupe-Session", "A session that lasts, which the call joins.", id).asks(
        "Idempotency-Key",
        "The same key of the same token is the same message.",
        key,
    )
}

fn models(s: &mut TypeSchemas, openai: &Value, anthropic: &Value) -> Vec<ApiOperation> {
    let ours = s.plain("OpenAiModel", object(&["id", "object", "created", "owned_by"], json!({
        "id": text(), "object": { "const": "model" }, "created": { "type": "integer" }, "owned_by": text(),
    })));
    let theirs = s.plain(
        "AnthropicModel",
        object(
            &["id", "type", "display_name", "created_at"],
            json!({
                "id": text(), "type": { "const": "model" }, "display_name": text(), "lifecycle": text(),
                "created_at": { "type": "string", "format": "date-time" },
            }),
        ),
    );
    let openai_list = s.plain(
        "OpenAiModels",
        object(
            &["object", "data"],
            json!({
                "object": { "const": "list" }, "data": { "type": "array", "items": ours },
            }),
        ),
    );
    let anthropic_list = s.plain(
        "AnthropicModels",
        object(
            &["data", "has_more", "first_id", "last_id"],
            json!({
                "data": { "type": "array", "items": theirs }, "has_more": { "type": "boolean" },
                "first_id": { "type": ["string", "null"] }, "last_id": { "type": ["string", "null"] },
            }),
        ),
    );
    let either = json!({ "anyOf": [openai, anthropic] });
    let get = |path, does| {
        get(path, "openai", does, &either)
            .detail(
                "A request with `anthropic-version` or `x-api-key` is answered in Anthropic's form, in its pages; any other in \
                 OpenAI's.",
            )
            .asks("anthropic-version", "Has the answer in Anthropic's form.", text())
            .faults(&[404, 501, 529])
    };
    let page = |name: &str, says: &str, schema| (name.to_owned(), says.to_owned(), schema);
    let pages = [
        page(
            "limit",
            "Of Anthropic's: models of a page.",
            json!({ "type": "integer", "minimum": 1, "maximum": 1000 }),
        ),
        page("after_id", "Of Anthropic's: the model before the page.", text()),
        page("before_id", "Of Anthropic's: the model behind the page, in place of `after_id`.", text()),
        page("lifecycle", "Of Anthropic's: the stages that are wanted, with commas between them.", text()),
    ];
    let list = pages.into_iter().fold(
        get("/v1/models", "Lists the agents that the token reaches, as models."),
        |operation, (name, says, schema)| operation.query(&name, false, &says, schema),
    );
    vec![
        list.gives(200, "They are these.", json!({ "anyOf": [openai_list, anthropic_list] })).faults(&[400]),
        get("/v1/models/{model}", "Shows an agent as a model.")
            .gives(200, "It is so.", json!({ "anyOf": [ours, theirs] }))
            .faults(&[400]),
    ]
}

fn chat(s: &mut TypeSchemas, failure: &Value) -> Vec<ApiOperation> {
    let request = s.plain("ChatRequest", object(&["model", "messages"], json!({
        "model": model(),
        "messages": { "type": "array", "minItems": 1, "items": chat_message(), "description": "The last is a user's, or the result of a tool." },
        "stream": flag(), "stream_options": maybe(object(&[], json!({ "include_usage": flag() }))),
        "max_completion_tokens": bound(), "max_tokens": bound(),
        "temperature": number(2), "top_p": number(1), "seed": maybe(json!({ "type": "integer", "minimum": 0 })),
        "stop": maybe(texts()), "reasoning_effort": maybe(effort()),
        "response_format": maybe(json!({ "oneOf": [
            object(&["type"], json!({ "type": { "enum": ["text", "json_object"] } })),
            object(&["type", "json_schema"], json!({ "type": { "const": "json_schema" },
                "json_schema": object(&["schema"], json!({ "schema": { "type": "object" } })) })),
        ] })),
        "tools": maybe(json!({ "type": "array", "maxItems": 128, "items": object(&["type", "function"], json!({
            "type": { "const": "function" }, "function": function("parameters"),
        })) })),
        "tool_choice": maybe(json!({ "anyOf": [
            { "enum": ["none", "auto", "required"] },
            object(&["type", "function"], json!({ "type": { "const": "function" },
                "function": object(&["name"], json!({ "name": tool_name() })) })),
        ] })),
        "parallel_tool_calls": flag(), "metadata": metadata(),
    })));
    let answer = s.plain("ChatCompletion", object(&["id", "object", "created", "model", "choices", "usage"], json!({
        "id": text(), "object": { "const": "chat.completion" }, "created": { "type": "integer" }, "model": text(),
        "choices": { "type": "array", "minItems": 1, "maxItems": 1, "items": object(&["index", "finish_reason", "message"], json!({
            "index": { "const": 0 },
            "finish_reason": { "enum": ["stop", "length", "tool_calls", "content_filter"] },
            "message": object(&["role", "content", "refusal"], json!({
                "role": { "const": "assistant" }, "content": { "type": ["string", "null"] },
                "refusal": { "type": ["string", "null"] }, "tool_calls": { "type": "array", "items": chat_call() },
            })),
        })) },
        "usage": object(&["prompt_tokens", "completion_tokens", "total_tokens"], json!({
            "prompt_tokens": count(), "completion_tokens": count(), "total_tokens": count(),
        })),
    })));
    let operation = post(
        "/v1/chat/completions",
        "openai",
        "Has an agent answer in the form of Chat Completions.",
        failure,
    );
    vec![named(
        joins(operation)
            .body(true, request)
            .gives(200, "The answer; with `stream` as it comes.", answer)
            .gives_as(200, "The answer; with `stream` as it comes.", "text/event-stream", text())
            .faults(OPENAI),
    )]
}

fn chat_message() -> Value {
    let said =
        |role: Value| object(&["role", "content"], json!({ "role": role, "content": parts(&["text"]) }));
    json!({ "oneOf": [
        said(json!({ "enum": ["system", "developer", "user"] })),
        object(&["role", "content"], json!({ "role": { "const": "assistant" }, "content": parts(&["text"]),
            "tool_calls": maybe(json!({ "type": "array", "items": chat_call() })) })),
        object(&["role", "tool_call_id", "content"], json!({ "role": { "const": "tool" }, "tool_call_id": text(),
            "content": parts(&["text"]) })),
    ] })
}

fn chat_call() -> Value {
    object(
        &["id", "type", "function"],
        json!({ "id": text(), "type": { "const": "function" },
        "function": object(&["name", "arguments"], json!({ "name": text(), "arguments": text() })) }),
    )
}

fn responses(s: &mut TypeSchemas, failure: &Value) -> Vec<ApiOperation> {
    let said = parts(&["input_text", "output_text", "text"]);
    let item = json!({ "oneOf": [
        object(&["role", "content"], json!({ "type": { "const": "message" },
            "role": { "enum": ["system", "developer", "user", "assistant"] }, "content": said })),
        object(&["type", "call_id", "name", "arguments"], json!({ "type": { "const": "function_call" },
            "call_id": text(), "name": text(), "arguments": text() })),
        object(&["type", "call_id", "output"], json!({ "type": { "const": "function_call_output" },
            "call_id": text(), "output": said })),
        object(&["type"], json!({ "type": { "const": "reasoning" } })),
        object(&["type", "id"], json!({ "type": { "const": "item_reference" }, "id": text() })),
    ] });
    let request = s.plain("ResponsesRequest", object(&["model", "input"], json!({
        "model": model(), "instructions": maybe(text()),
        "input": { "anyOf": [{ "type": "string", "pattern": "\\S" }, { "type": "array", "minItems": 1, "items": item }] },
        "stream": flag(), "store": flag(), "background": flag(), "max_output_tokens": bound(),
        "temperature": number(2), "top_p": number(1), "reasoning": maybe(object(&[], json!({ "effort": maybe(effort()) }))),
        "text": maybe(object(&[], json!({ "format": maybe(json!({ "oneOf": [
            object(&["type"], json!({ "type": { "enum": ["text", "json_object"] } })),
            object(&["type", "schema"], json!({ "type": { "const": "json_schema" }, "schema": { "type": "object" } })),
        ] })) }))),
        "tools": maybe(json!({ "type": "array", "maxItems": 128, "items": function("parameters") })),
        "tool_choice": maybe(json!({ "anyOf": [
            { "enum": ["none", "auto", "required"] },
            object(&["type", "name"], json!({ "type": { "const": "function" }, "name": tool_name() })),
        ] })),
        "parallel_tool_calls": flag(), "previous_response_id": maybe(text()),
        "conversation": maybe(json!({ "anyOf": [text(), object(&["id"], json!({ "id": text() }))] })),
        "metadata": metadata(),
    })));
    let answer = s.plain("Response", object(&["id", "object", "created_at", "status", "model", "output", "store"], json!({
        "id": text(), "object": { "const": "response" }, "created_at": { "type": "integer" },
        "status": { "enum": ["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"] }, "model": text(),
        "output": { "type": "array", "items": object(&["type", "id"], json!({
            "type": { "enum": ["message", "function_call"] }, "id": text(),
        })) },
        "error": maybe(object(&["code", "message"], json!({ "code": text(), "message": text() }))),
        "incomplete_details": maybe(object(&["reason"], json!({ "reason": text() }))),
        "store": { "type": "boolean" }, "background": { "type": "boolean" },
        "usage": maybe(object(&["input_tokens", "output_tokens", "total_tokens"], json!({
            "input_tokens": count(), "output_tokens": count(), "total_tokens": count(),
        }))),
    })));
    vec![
        named(
            joins(post("/v1/responses", "openai", "Has an agent answer in the form of Responses.", failure))
                .body(true, request)
                .gives(
                    200,
                    "The answer; with `stream` as it comes, with `background` as it stands.",
                    answer.clone(),
                )
                .gives_as(
                    200,
                    "The answer; with `stream` as it comes, with `background` as it stands.",
                    "text/event-stream",
                    text(),
                )
                .faults(OPENAI),
        ),
        get("/v1/responses/{response}", "openai", "Shows an answer that is kept, as it stands.", failure)
            .gives(200, "It stands so.", answer.clone())
            .faults(&[400, 404, 501]),
        post("/v1/responses/{response}/cancel", "openai", "Stops an answer that is on its way.", failure)
            .gives(200, "It stands so.", answer)
            .faults(&[400, 404, 429, 499, 501, 504]),
    ]
}

fn messages(s: &mut TypeSchemas, failure: &Value) -> Vec<ApiOperation> {
    let block = |more: &[Value]| {
        let text = object(&["type", "text"], json!({ "type": { "const": "text" }, "text": text() }));
        let blocks: Vec<_> = [text].into_iter().chain(more.iter().cloned()).collect();
        json!({ "anyOf": [{ "type": "string" }, { "type": "array", "minItems": 1, "items": { "oneOf": blocks } }] })
    };
    let document = object(
        &["type", "source"],
        json!({ "type": { "const": "document" },
        "source": object(&["type", "data"], json!({ "type": { "const": "text" }, "data": text() })) }),
    );
    let result = object(
        &["type", "tool_use_id"],
        json!({ "type": { "const": "tool_result" }, "tool_use_id": text(),
        "content": maybe(block(&[])), "is_error": flag() }),
    );
    let call = object(
        &["type", "id", "name", "input"],
        json!({ "type": { "const": "tool_use" }, "id": text(),
        "name": text(), "input": { "type": "object" } }),
    );
    let said = |role: &str, content: Value| {
        object(&["role", "content"], json!({ "role": { "const": role }, "content": content }))
    };
    let mut fields = json!({
        "model": model(), "max_tokens": { "type": "integer", "minimum": 1 }, "system": maybe(block(&[])),
        "messages": { "type": "array", "minItems": 1, "description": "The last is a user's.", "items": { "oneOf": [
            said("user", block(&[document, result])), said("assistant", block(std::slice::from_ref(&call))), said("system", block(&[])),
        ] } },
        "stream": flag(), "stop_sequences": maybe(texts()),
        "temperature": number(1), "top_p": number(1),
        "thinking": maybe(object(&["type"], json!({ "type": text() }))),
        "output_config": maybe(object(&[], json!({ "effort": maybe(effort()), "format": maybe(
            object(&["type", "schema"], json!({ "type": { "const": "json_schema" }, "schema": { "type": "object" } }))) }))),
        "tools": maybe(json!({ "type": "array", "maxItems": 128, "items": object(&["name", "input_schema"], json!({
            "type": maybe(json!({ "const": "custom" })), "name": tool_name(), "description": maybe(text()),
            "input_schema": { "type": "object" },
        })) })),
        "tool_choice": maybe(json!({ "oneOf": [
            object(&["type"], json!({ "type": { "enum": ["auto", "any", "none"] }, "disable_parallel_tool_use": flag() })),
            object(&["type", "name"], json!({ "type": { "const": "tool" }, "name": tool_name(), "disable_parallel_tool_use": flag() })),
        ] })),
        "metadata": metadata(),
    });
    let request = s.plain("MessagesRequest", object(&["model", "max_tokens", "messages"], fields.clone()));
    fields["max_tokens"] = bound();
    let counted = s.plain("CountTokensRequest", object(&["model", "messages"], fields));
    let answer = s.plain("AnthropicMessage", object(&["id", "type", "role", "model", "content", "stop_reason", "usage"], json!({
        "id": text(), "type": { "const": "message" }, "role": { "const": "assistant" }, "model": text(),
        "content": { "type": "array", "items": object(&["type"], json!({ "type": { "enum": ["text", "tool_use"] } })) },
        "stop_reason": { "enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal", null] },
        "stop_sequence": { "type": ["string", "null"] },
        "usage": object(&["input_tokens", "output_tokens"], json!({ "input_tokens": count(), "output_tokens": count() })),
    })));
    let version = json!({ "enum": ["2023-06-01", "2026-10-21"] });
    let post = |path, does| {
        post(path, "anthropic", does, failure).asks(
            "anthropic-version",
            "The version; the older without it.",
            version.clone(),
        )
    };
    vec![
        named(
            joins(post("/v1/messages", "Has an agent answer in the form of Messages."))
                .body(true, request)
                .gives(200, "The answer; with `stream` as it comes.", answer)
                .gives_as(200, "The answer; with `stream` as it comes.", "text/event-stream", text())
                .faults(ANTHROPIC),
        ),
        post("/v1/messages/count_tokens", "Estimates the tokens of a request: three bytes a token.")
            .body(true, counted)
            .gives(200, "So many, about.", object(&["input_tokens"], json!({ "input_tokens": count() })))
            .faults(&[404, 501, 529]),
    ]
}

fn openai_error() -> Value {
    object(
        &["error"],
        json!({ "error": object(&["message", "type", "param", "code"], json!({
        "message": text(), "type": text(), "param": { "type": ["string", "null"] }, "code": { "type": ["string", "null"] },
    })) }),
    )
}

fn anthropic_error() -> Value {
    object(
        &["type", "error", "request_id"],
        json!({ "type": { "const": "error" }, "request_id": text(),
        "error": object(&["type", "message"], json!({ "type": text(), "message": text() })) }),
    )
}

fn object(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties })
}

fn text() -> Value {
    json!({ "type": "string" })
}

/// `null` is as good as nothing in every request.
fn maybe(schema: Value) -> Value {
    json!({ "anyOf": [schema, { "type": "null" }] })
}

fn flag() -> Value {
    json!({ "type": ["boolean", "null"] })
}

fn bound() -> Value {
    json!({ "type": ["integer", "null"], "minimum": 1 })
}

fn count() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

fn number(most: u32) -> Value {
    json!({ "type": ["number", "null"], "minimum": 0, "maximum": most })
}

fn texts() -> Value {
    json!({ "anyOf": [text(), { "type": "array", "items": text() }] })
}

fn model() -> Value {
    json!({ "type": "string", "minLength": 1, "description": "An agent, or `drupe` for whoever answers by itself." })
}

fn effort() -> Value {
    json!({ "enum": ["none", "minimal", "low", "medium", "high", "xhigh", "max"] })
}

fn tool_name() -> Value {
    json!({ "type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$" })
}

fn metadata() -> Value {
    let session = json!({ "type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,96}$" });
    maybe(object(&[], json!({ "session": maybe(session) })))
}

fn function(schema: &str) -> Value {
    object(
        &["name"],
        json!({ "name": tool_name(), "description": maybe(text()), schema: maybe(json!({ "type": "object" })) }),
    )
}

/// A text, or parts of it.
fn parts(kinds: &[&str]) -> Value {
    let part = object(&["type", "text"], json!({ "type": { "enum": kinds }, "text": text() }));
    json!({ "anyOf": [text(), { "type": "array", "items": part }] })
}
