"""The official Anthropic client for Python against a door of drupe. See README.md."""

import anthropic
from checks import KEY, MODEL, TOOL, URL, check, refused, run, valid

client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)
OLD = {"anthropic-version": "2023-06-01"}
NEW = {"anthropic-version": "2026-10-21"}
WEATHER = {"name": "weather", "description": "Tells the weather.", "input_schema": TOOL}


def said(text):
    return [{"role": "user", "content": text}]


def ask(text, **more):
    return client.messages.create(
        **{"model": MODEL, "max_tokens": 200, "messages": said(text), **more}
    )


@check("core")
def models_are_listed_page_by_page():
    ids = [model.id for model in client.models.list(limit=1)]
    assert "drupe" in ids and len(ids) == len(set(ids)), ids
    model = valid(client.models.retrieve("drupe"))
    assert model.type == "model" and model.lifecycle == "active", model


@check("core")
def a_message_is_answered_in_both_versions():
    for headers in (OLD, NEW):
        answer = valid(ask("hello", extra_headers=headers))
        assert answer.stop_reason == "end_turn" and answer.content[0].text, answer
        assert answer.id.startswith("msg_") and answer.usage.output_tokens >= 0, answer


@check("core")
def a_key_in_either_header_is_taken():
    bare = anthropic.Anthropic(base_url=URL, auth_token=KEY, max_retries=0)
    assert bare.models.retrieve("drupe")
    old = {"x-api-key": KEY, **OLD}
    nobody = anthropic.Anthropic(base_url=URL, auth_token="x", max_retries=0, default_headers=old)
    assert nobody.models.retrieve("drupe", extra_headers={"Authorization": anthropic.omit})


@check("core")
def a_message_streams():
    stream = client.messages.create(
        model=MODEL, max_tokens=200, messages=said("hello"), stream=True
    )
    events = [valid(event) for event in stream]
    kinds = [event.type for event in events]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], kinds
    assert events[0].message.usage.input_tokens > 0, events[0]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") > 0, kinds
    with client.messages.stream(model=MODEL, max_tokens=200, messages=said("hello")) as helper:
        assert "".join(helper.text_stream)
        assert helper.get_final_message().stop_reason == "end_turn"


@check("core")
def a_history_is_taken():
    messages = [*said("hello"), {"role": "assistant", "content": "Hello."}, *said("again")]
    assert ask("", messages=messages, system=[{"type": "text", "text": "Be short."}]).content


@check("core")
def tokens_are_counted():
    def count(text):
        return client.messages.count_tokens(model=MODEL, messages=said(text)).input_tokens

    assert count("word " * 500) > count("word") > 0


@check("core")
def what_cannot_be_done_is_refused():
    bad = anthropic.BadRequestError
    for sampling in ({"temperature": 1.0}, {"top_p": 0.5}, {"top_k": 3}):
        refused(bad, lambda: ask("hello", extra_body=sampling, extra_headers=NEW))
    assert ask("hello", extra_body={"temperature": 1.0}, extra_headers=OLD).content
    image = {"type": "base64", "media_type": "image/png", "data": "AA=="}
    error = refused(bad, lambda: ask([{"type": "image", "source": image}]))
    assert "messages[0].content[0]" in error.body["error"]["message"], error.body
    assert error.body["error"]["type"] == "invalid_request_error", error.body
    refused(bad, lambda: ask("hello", extra_headers={"anthropic-version": "2020-01-01"}))
    missing = anthropic.NotFoundError
    error = refused(missing, lambda: ask("hello", model="no-such-agent"))
    assert error.request_id, error


@check("core")
def a_wrong_key_is_refused():
    stranger = client.with_options(api_key="wrong")
    wrong = anthropic.AuthenticationError
    refused(wrong, lambda: stranger.models.list(), status_code=401)


@check("session")
def a_session_is_joined():
    metadata = {"metadata": {"session": "clients-anthropic"}}
    assert ask("hello", extra_body=metadata).content


@check("tools")
def a_message_calls_the_clients_tools():
    more = {"tools": [WEATHER]}
    answer = valid(ask("call the tool", **more))
    call = [block for block in answer.content if block.type == "tool_use"][0]
    assert answer.stop_reason == "tool_use" and call.name == "weather", answer
    spoken = {"role": answer.role, "content": [block.to_dict() for block in answer.content]}
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    history = [*said("call the tool"), spoken, *said([result])]
    assert "sunny" in ask("", messages=history, **more).content[0].text
    messages = said("call the tool")
    with client.messages.stream(model=MODEL, max_tokens=200, messages=messages, **more) as helper:
        final = helper.get_final_message()
    assert final.stop_reason == "tool_use" and final.content[-1].input["city"], final


@check("scripted")
def a_form_is_kept():
    form = {"output_config": {"format": {"type": "json_schema", "schema": TOOL}}}
    assert ask("where", **form).content[0].text.startswith("{")


@check("scripted")
def a_failed_turn_is_an_error():
    refused(anthropic.InternalServerError, lambda: ask("fail"), status_code=502)
    refused(anthropic.APIStatusError, lambda: list(ask("fail", stream=True)))
    refused(anthropic.APIStatusError, lambda: list(ask("reworded", stream=True)))


@check("scripted")
def a_refusal_is_told_as_one():
    assert valid(ask("refuse")).stop_reason == "refusal"


@check("scripted")
def an_answer_that_was_cut_off_says_so():
    assert ask("cut").stop_reason == "max_tokens"


run()
