"""The official OpenAI client for Python against a door of drupe. See README.md."""

import openai
from checks import KEY, MODEL, TOOL, URL, check, refused, run, valid
from pydantic import BaseModel

client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)
FUNCTION = {"name": "weather", "description": "Tells the weather.", "parameters": TOOL}


class Place(BaseModel):
    city: str


def said(text):
    return [{"role": "user", "content": text}]


@check("core")
def models_are_listed():
    ids = [model.id for model in client.models.list()]
    assert "drupe" in ids, ids
    assert valid(client.models.retrieve("drupe")).object == "model"


@check("core")
def a_chat_is_answered():
    answer = valid(client.chat.completions.create(model=MODEL, messages=said("hello")))
    choice = answer.choices[0]
    assert choice.finish_reason == "stop" and choice.message.content, answer
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-"), answer
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, usage


@check("core")
def a_chat_streams():
    options = {"include_usage": True}
    stream = client.chat.completions.create(
        model=MODEL, messages=said("hello"), stream=True, stream_options=options
    )
    chunks = [valid(chunk) for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant", chunks[0]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices), chunks
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop", chunks
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens >= 0, chunks[-1]
    assert all(c.usage is None for c in chunks[:-1]), chunks
    assert len({c.id for c in chunks}) == 1, chunks


@check("core")
def a_chat_streams_through_the_helper():
    with client.chat.completions.stream(model=MODEL, messages=said("hello")) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.content


@check("core")
def a_history_is_taken():
    messages = [
        {"role": "system", "content": "Be short."},
        *said([{"type": "text", "text": "hello"}]),
        {"role": "assistant", "content": "Hello."},
        *said("and again"),
    ]
    assert client.chat.completions.create(model=MODEL, messages=messages).choices


@check("core")
def what_cannot_be_done_is_refused_by_name():
    def chat(**more):
        return lambda: client.chat.completions.create(
            **{"model": MODEL, "messages": said("hello"), **more}
        )

    bad = openai.BadRequestError
    refused(bad, chat(n=2), param="n", type="invalid_request_error", code="unsupported_parameter")
    refused(bad, chat(logprobs=True), param="logprobs")
    refused(bad, chat(messages=[]), param="messages")
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
    refused(bad, chat(messages=said(image)), param="messages[0].content[0].type")
    missing = openai.NotFoundError
    refused(missing, chat(model="no-such-agent"), code="model_not_found", param="model")
    refused(missing, lambda: client.models.retrieve("no-such-agent"), code="model_not_found")


@check("core")
def a_wrong_key_is_refused():
    stranger = client.with_options(api_key="wrong")
    refused(openai.AuthenticationError, lambda: stranger.models.list(), code="invalid_api_key")


@check("core")
def a_response_is_given():
    answer = valid(
        client.responses.create(model=MODEL, input="hello", instructions="Be short.")
    )
    assert answer.status == "completed" and answer.output_text, answer
    assert answer.instructions == "Be short." and answer.id.startswith("resp_"), answer
    usage = answer.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens, usage


@check("core")
def a_response_streams():
    stream = client.responses.create(model=MODEL, input=said("hello"), stream=True)
    events = [valid(event) for event in stream]
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"], kinds
    assert kinds[-1] == "response.completed", kinds
    assert [event.sequence_number for event in events] == list(range(len(events))), events
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text and text.endswith(events[-1].response.output[-1].content[0].text), text


@check("core")
def a_response_streams_through_the_helper():
    with client.responses.stream(model=MODEL, input="hello") as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text


@check("core")
def tools_of_other_types_are_skipped():
    tools = [{"type": "web_search"}]
    assert client.responses.create(model=MODEL, input="hello", tools=tools).tools == []


@check("core")
def a_wrong_response_is_refused():
    def respond(**more):
        return lambda: client.responses.create(**{"model": MODEL, "input": "hello", **more})

    missing = openai.NotFoundError
    refused(missing, respond(previous_response_id="other"), code="previous_response_not_found")
    refused(openai.BadRequestError, respond(background=True, store=False), param="background")


@check("session")
def a_session_is_joined():
    more = {"model": MODEL, "metadata": {"session": "clients-openai"}}
    assert client.chat.completions.create(messages=said("hello"), **more).choices
    first = client.responses.create(input="hello", **more)
    assert client.responses.create(model=MODEL, input="again", previous_response_id=first.id)


@check("tools")
def a_chat_calls_the_clients_tools():
    tools = [{"type": "function", "function": FUNCTION}]
    messages = said("call the tool")
    more = {"model": MODEL, "tools": tools}
    answer = valid(client.chat.completions.create(messages=messages, **more)).choices[0]
    assert answer.finish_reason == "tool_calls", answer
    call = answer.message.tool_calls[0]
    assert call.function.name == "weather" and call.type == "function", call
    messages += [answer.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    answer = client.chat.completions.create(messages=messages, **more).choices[0]
    assert answer.finish_reason == "stop" and "sunny" in answer.message.content, answer
    with client.chat.completions.stream(messages=said("call the tool"), **more) as stream:
        for _ in stream:
            pass
        choice = stream.get_final_completion().choices[0]
    assert choice.message.tool_calls[0].function.name == "weather", choice


@check("tools")
def a_response_calls_the_clients_tools():
    more = {"model": MODEL, "tools": [{"type": "function", "strict": True, **FUNCTION}]}
    with client.responses.stream(input="call the tool", **more) as stream:
        for _ in stream:
            pass
        answer = stream.get_final_response()
    call = [item for item in answer.output if item.type == "function_call"][0]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    history = [*said("call the tool"), *(i.to_dict() for i in answer.output), result]
    for item in history:
        item.pop("parsed_arguments", None)
    assert "sunny" in client.responses.create(input=history, **more).output_text


@check("scripted")
def a_form_is_kept():
    helper = client.chat.completions.parse
    answer = helper(model=MODEL, messages=said("where"), response_format=Place)
    assert answer.choices[0].message.parsed.city
    assert client.responses.parse(model=MODEL, input="where", text_format=Place).output_parsed.city
    with client.responses.stream(model=MODEL, input="where", text_format=Place) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_parsed.city


@check("scripted")
def a_failed_turn_is_an_error():
    def chat(stream):
        return lambda: list(
            client.chat.completions.create(model=MODEL, messages=said("fail"), stream=stream)
        )

    refused(openai.InternalServerError, chat(False), type="server_error")
    refused(openai.APIError, chat(True), type="server_error")
    refused(openai.InternalServerError, lambda: client.responses.create(model=MODEL, input="fail"))
    last = valid(list(client.responses.create(model=MODEL, input="fail", stream=True))[-1])
    assert last.type == "response.failed" and last.response.error.code == "server_error", last


@check("scripted")
def a_refusal_is_told_as_one():
    answer = valid(client.chat.completions.create(model=MODEL, messages=said("refuse")))
    assert answer.choices[0].message.refusal and not answer.choices[0].message.content, answer
    with client.responses.stream(model=MODEL, input="refuse") as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output[0].content[0].type == "refusal"


@check("scripted")
def what_is_said_on_the_way_is_commentary():
    with client.responses.stream(model=MODEL, input="steps") as stream:
        for _ in stream:
            pass
        phases = [item.phase for item in stream.get_final_response().output]
    assert phases == ["commentary", "final_answer"], phases


@check("scripted")
def an_answer_that_is_begun_anew_is_right_in_the_end():
    with client.responses.stream(model=MODEL, input="reworded") as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == "In France."
    stream = client.chat.completions.create(model=MODEL, messages=said("reworded"), stream=True)
    refused(openai.APIError, lambda: list(stream))


@check("scripted")
def an_answer_that_was_cut_off_says_so():
    answer = client.chat.completions.create(model=MODEL, messages=said("cut"))
    assert answer.choices[0].finish_reason == "length", answer
    answer = valid(client.responses.create(model=MODEL, input="cut"))
    assert answer.incomplete_details.reason == "max_output_tokens", answer


run()
