"""The calls of an agent that uses the `openai` SDK. It knows only the base URL of Sluice.

usage: sdk_openai.py CASE…      with OPENAI_BASE_URL (…/v1 or without) and, optionally:
  SDK_MODEL, SDK_JSON_MODEL, SDK_PROVIDER_MODEL, SDK_EMBEDDING_MODEL, SDK_COMPLETION_MODEL   names of models
  SDK_TEXT         what the model answers
  SDK_MAX_CALLS    how many calls the sidecar allows (case over_max_calls)
  SDK_MAX_BODY     a body length that is over the sidecar's limit (case body_too_large)
"""

import asyncio
import base64
import json

import httpx
import openai
import pydantic

from cases import ALLOWED_HEADERS, case, main, refused, setting, text_of

MODEL = setting("SDK_MODEL", "gpt-4o-mini")
JSON_MODEL = setting("SDK_JSON_MODEL", "gpt-4o-mini-json")
# LiteLLM's own mock knows neither tools nor streamed responses: these go to tests/python/provider.py.
PROVIDER_MODEL = setting("SDK_PROVIDER_MODEL", "provider-gpt")
EMBEDDING_MODEL = setting("SDK_EMBEDDING_MODEL", "text-embedding-3-small")
COMPLETION_MODEL = setting("SDK_COMPLETION_MODEL", "provider-completion")

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello."}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather in a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]

# A retry would hide a failure, and count as a call. The key is the sandbox's, which is worth nothing outside.
OPTIONS = {"api_key": setting("SDK_API_KEY", "sk-sandbox"), "max_retries": 0, "timeout": 240}
client = openai.OpenAI(**OPTIONS)


def chat(**more):
    return client.chat.completions.create(**{"model": MODEL, "messages": MESSAGES, **more})


def check_refusal(error, status, code):
    assert error.status_code == status, f"status {error.status_code}, expected {status}: {error}"
    assert error.code == code, f"code {error.code!r}, expected {code!r}: {error}"
    assert error.type, f"no type in {error.body}"
    assert error.message, f"no message in {error.body}"
    reason = error.response.headers.get("x-sluice-reason")
    assert reason == code, f"x-sluice-reason is {reason!r}, the body says {code!r}"


def is_empty(chunk):
    """An empty chunk: neither a delta nor the end. The OpenAI API sends none."""
    return not any(
        choice.finish_reason or choice.delta.model_dump(exclude_none=True) for choice in chunk.choices
    )


@case
def chat_unary():
    answer = chat(temperature=0.5, max_tokens=64, top_p=0.9, seed=1, stop=["END"], user="somebody-else")
    assert answer.object == "chat.completion", answer
    assert answer.choices[0].message.content == text_of(MODEL), answer
    assert answer.choices[0].finish_reason == "stop", answer
    assert answer.usage.prompt_tokens > 0 and answer.usage.completion_tokens > 0, answer.usage


@case
def chat_stream():
    chunks = list(chat(stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == text_of(MODEL), text
    assert len(chunks) > 2, "streamed as one chunk"
    assert all(chunk.usage is None for chunk in chunks), "a usage that nobody asked for"
    assert all(chunk.choices for chunk in chunks), "a chunk without choices that nobody asked for"
    assert not any(is_empty(chunk) for chunk in chunks), f"an empty chunk: {[c for c in chunks if is_empty(c)]}"
    assert chunks[-1].choices[0].finish_reason == "stop", chunks[-1]


@case
def chat_stream_usage_refused():
    chunks = list(chat(stream=True, stream_options={"include_usage": False}))
    assert all(chunk.usage is None for chunk in chunks), "a usage that was refused"
    assert not any(is_empty(chunk) for chunk in chunks), "an empty chunk"


@case
def chat_stream_usage():
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == text_of(MODEL), text
    with_usage = [chunk for chunk in chunks if chunk.usage]
    assert with_usage == chunks[-1:], f"usage belongs into the last chunk, once: {with_usage}"
    usage = with_usage[0].usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens > 0, usage


@case
def chat_stream_helper():
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "content.delta" in kinds and "content.done" in kinds, kinds
    assert final.choices[0].message.content == text_of(MODEL), final


@case
def chat_stream_left_early():
    stream = chat(stream=True)
    next(iter(stream))
    stream.close()
    # The connection that was torn down must not harm the next call.
    chat_unary()


@case
def tools_unary():
    answer = chat(model=PROVIDER_MODEL, tools=TOOLS, tool_choice="auto", parallel_tool_calls=False)
    assert answer.choices[0].finish_reason == "tool_calls", answer
    call = answer.choices[0].message.tool_calls[0]
    assert call.function.name == "weather", call
    assert json.loads(call.function.arguments) == {"city": "Paris"}, call
    # The second turn carries the tool's result back.
    turn = MESSAGES + [
        answer.choices[0].message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
    ]
    answer = chat(model=PROVIDER_MODEL, messages=turn)
    assert answer.choices[0].message.content == text_of(PROVIDER_MODEL), answer


@case
def tools_stream():
    chunks = list(chat(model=PROVIDER_MODEL, tools=TOOLS, stream=True))
    calls = [call for c in chunks if c.choices for call in c.choices[0].delta.tool_calls or []]
    assert [call.function.name for call in calls if call.function.name] == ["weather"], calls
    arguments = "".join(call.function.arguments or "" for call in calls)
    assert json.loads(arguments) == {"city": "Paris"}, arguments
    assert len(calls) > 2, "arguments came in one piece"
    assert chunks[-1].choices[0].finish_reason == "tool_calls", chunks[-1]
    assert all(chunk.usage is None for chunk in chunks), "a usage that nobody asked for"


@case
def json_mode():
    answer = chat(model=JSON_MODEL, response_format={"type": "json_object"})
    assert json.loads(answer.choices[0].message.content) == {"answer": 42}, answer


@case
def json_schema():
    class Answer(pydantic.BaseModel):
        answer: int

    answer = client.chat.completions.parse(model=JSON_MODEL, messages=MESSAGES, response_format=Answer)
    assert answer.choices[0].message.parsed == Answer(answer=42), answer


@case
def image_20mb():
    picture = base64.b64encode(bytes(range(256)) * (15 * 4096)).decode()
    url = "data:image/png;base64," + picture
    assert len(url) > 20 * 1024 * 1024
    content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]
    answer = chat(model=PROVIDER_MODEL, messages=[{"role": "user", "content": content}])
    assert answer.choices[0].message.content == text_of(PROVIDER_MODEL), answer


@case
def embeddings():
    answer = client.embeddings.create(model=EMBEDDING_MODEL, input="hello")
    assert answer.data[0].embedding == [0.25, -0.5, 0.125], answer
    assert answer.usage.prompt_tokens > 0, answer


@case
def completions_unary():
    answer = client.completions.create(model=COMPLETION_MODEL, prompt="Say hello.", max_tokens=16)
    assert answer.choices[0].text == text_of(COMPLETION_MODEL), answer
    assert answer.usage.total_tokens > 0, answer


@case
def completions_stream():
    chunks = list(client.completions.create(model=COMPLETION_MODEL, prompt="Say hello.", stream=True))
    text = "".join(chunk.choices[0].text or "" for chunk in chunks if chunk.choices)
    assert text == text_of(COMPLETION_MODEL), text
    assert len(chunks) > 2, "streamed as one chunk"
    # Left alone, LiteLLM puts a usage of zeros on each chunk here.
    assert not any(chunk.usage and chunk.usage.total_tokens for chunk in chunks), "a usage that nobody asked for"
    empty = [c for c in chunks if not any(choice.text or choice.finish_reason for choice in c.choices)]
    assert not empty, f"an empty chunk: {empty}"


@case
def completions_stream_usage():
    options = {"include_usage": True}
    prompt = {"model": COMPLETION_MODEL, "prompt": "Say hello.", "stream": True}
    chunks = list(client.completions.create(**prompt, stream_options=options))
    assert [bool(c.usage and c.usage.total_tokens) for c in chunks] == [False] * (len(chunks) - 1) + [True], chunks


@case
def responses_unary():
    answer = client.responses.create(model=MODEL, input="Say hello.", instructions="Be brief.")
    assert answer.output_text == text_of(MODEL), answer
    assert answer.usage.total_tokens > 0, answer


@case
def responses_stream():
    events = list(client.responses.create(model=PROVIDER_MODEL, input="Say hello.", stream=True))
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == text_of(PROVIDER_MODEL), text
    # The usage is part of this protocol, asked for or not.
    assert events[-1].response.usage.total_tokens > 0, events[-1]
    assert events[-1].response.output_text == text, events[-1]


@case
def responses_tools():
    tool = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
    answer = client.responses.create(model=MODEL, input=[{"role": "user", "content": "hello"}], tools=[tool])
    assert answer.output_text == text_of(MODEL), answer


@case
def models_list():
    names = [model.id for model in client.models.list()]
    assert MODEL in names, names


@case
def models_filtered():
    names = [model.id for model in client.models.list()]
    assert names == [MODEL], f"only the allowed model may be listed: {names}"


@case
def async_20():
    async def one(other, number):
        if number % 2:
            stream = await other.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
            return "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])
        answer = await other.chat.completions.create(model=MODEL, messages=MESSAGES)
        return answer.choices[0].message.content

    async def all_at_once():
        async with openai.AsyncOpenAI(**OPTIONS) as other:
            return await asyncio.gather(*(one(other, number) for number in range(20)))

    texts = asyncio.run(all_at_once())
    assert texts == [text_of(MODEL)] * 20, texts


@case
def headers_screened():
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES)
    assert raw.headers["x-litellm-call-id"], raw.headers
    leaked = {name.lower() for name in raw.headers} - ALLOWED_HEADERS
    assert not leaked, f"headers that must not pass: {leaked}"


@case
def error_param_refused():
    error = refused(openai.BadRequestError, lambda: chat(extra_body={"api_base": "http://evil"}))
    check_refusal(error, 400, "param_not_allowed")
    assert "api_base" in error.message, f"the message must name the member: {error.message}"
    assert error.param in (None, "api_base"), error.param


@case
def error_unknown_model():
    error = refused(openai.APIStatusError, lambda: chat(model="not-a-model"))
    assert 400 <= error.status_code < 500, error
    check_refusal(error, error.status_code, "model_not_allowed")


@case
def error_route_not_allowed():
    error = refused(openai.NotFoundError, lambda: client.files.list())
    check_refusal(error, 404, "route_not_allowed")


@case
def error_stream_param_refused():
    # An error of a stream comes as an error, not as an empty stream.
    error = refused(openai.BadRequestError, lambda: list(chat(stream=True, extra_body={"no-log": True})))
    check_refusal(error, 400, "param_not_allowed")


@case
def error_remote_image():
    part = {"type": "image_url", "image_url": {"url": "http://internal/secret.png"}}
    error = refused(openai.BadRequestError, lambda: chat(messages=[{"role": "user", "content": [part]}]))
    assert error.code, error
    check_refusal(error, 400, error.code)


@case
def error_body_too_large():
    text = "x" * int(setting("SDK_MAX_BODY", str(33 * 1024 * 1024)))
    error = refused(openai.APIStatusError, lambda: chat(messages=[{"role": "user", "content": text}]))
    assert error.status_code == 413, error
    check_refusal(error, 413, error.code)


@case
def over_max_calls():
    for _ in range(int(setting("SDK_MAX_CALLS", "1"))):
        chat_unary()
    error = refused(openai.APIStatusError, chat)
    check_refusal(error, 402, "budget_exceeded")


@case
def held_at_a_cap():
    # With the SDK's own retries. The operator raises the cap while the first call waits to try again, and denies the other.
    retrying = openai.OpenAI(**{**OPTIONS, "max_retries": 2})
    assert retrying.chat.completions.create(model=MODEL, messages=MESSAGES).choices
    error = refused(
        openai.BadRequestError,
        lambda: retrying.chat.completions.create(model=MODEL, messages=MESSAGES * 2),
    )
    check_refusal(error, 400, "budget_exceeded")


@case
def upstream_dead():
    error = refused(openai.InternalServerError, chat)
    assert error.status_code == 502, error
    check_refusal(error, 502, error.code)
    assert error.code.startswith("upstream"), error.code


@case
def error_upstream_auth():
    # With the SDK's own retries, which the sidecar marks as useless.
    retrying = openai.OpenAI(**{**OPTIONS, "max_retries": 2})
    error = refused(
        openai.InternalServerError,
        lambda: retrying.chat.completions.create(model=MODEL, messages=MESSAGES),
    )
    check_refusal(error, 502, "upstream_auth")
    assert error.response.headers["x-should-retry"] == "false", error.response.headers
    assert "Lr4T" not in str(error.body) + str(error.response.headers), error.body


def broken(events):
    """Reads a stream that must break; returns the events before, and the exception."""
    seen = []
    try:
        for event in events:
            seen.append(event)
    except (openai.APIError, httpx.TransportError) as error:
        return seen, error
    raise AssertionError(f"a stream that was cut ended as if it were whole: {seen}")


@case
def chat_stream_broken():
    seen, _ = broken(chat(stream=True))
    assert seen, "what had come before the break must arrive"


@case
def completions_stream_broken():
    seen, _ = broken(client.completions.create(model=COMPLETION_MODEL, prompt="Say hello.", stream=True))
    assert seen, "what had come before the break must arrive"


@case
def responses_stream_broken():
    seen, _ = broken(client.responses.create(model=PROVIDER_MODEL, input="Say hello.", stream=True))
    kinds = [event.type for event in seen]
    assert kinds[0] == "response.created" and kinds[-1] == "error", kinds
    assert seen[-1].message, seen[-1]


if __name__ == "__main__":
    main()
