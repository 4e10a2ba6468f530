"""The calls of an agent that uses the `anthropic` SDK. It knows only the base URL of Sluice.

usage: sdk_anthropic.py CASE…      with ANTHROPIC_BASE_URL (without /v1) and, optionally:
  SDK_MODEL, SDK_PROVIDER_MODEL    names of models: mocked by LiteLLM; behind tests/python/provider.py
  SDK_TEXT                         what the model answers
  SDK_BETA                         a beta that the sidecar lets pass (case beta_header)
  SDK_MAX_CALLS                    how many calls the sidecar allows (case over_max_calls)
"""

import asyncio
import base64

import anthropic

from cases import ALLOWED_HEADERS, case, main, refused, setting, text_of

MODEL = setting("SDK_MODEL", "claude-haiku-4-5")
# LiteLLM's own mock knows neither tools nor streams here.
PROVIDER_MODEL = setting("SDK_PROVIDER_MODEL", "provider-claude")
BETA = setting("SDK_BETA", "interleaved-thinking-2025-05-14")

MESSAGES = [{"role": "user", "content": "Say hello."}]
TOOLS = [
    {
        "name": "weather",
        "description": "The weather in a city",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
]
ERROR_TYPES = {
    "invalid_request_error",
    "authentication_error",
    "billing_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
    "rate_limit_error",
    "timeout_error",
    "api_error",
    "overloaded_error",
}

# A retry would hide a failure, and count as a call. The key is the sandbox's, which is worth nothing outside.
OPTIONS = {"api_key": setting("SDK_API_KEY", "sk-sandbox"), "max_retries": 0, "timeout": 240}
client = anthropic.Anthropic(**OPTIONS)


def ask(**more):
    return client.messages.create(**{"model": MODEL, "max_tokens": 64, "messages": MESSAGES, **more})


def check_refusal(error, status, reason, type=None):
    assert error.status_code == status, f"status {error.status_code}, expected {status}: {error}"
    assert isinstance(error.body, dict) and error.body.get("type") == "error", error.body
    assert error.type in ERROR_TYPES, f"type {error.type!r} is none of the API's: {error.body}"
    assert type is None or error.type == type, f"type {error.type!r}, expected {type!r}"
    assert error.api_message, f"no message in {error.body}"
    said = error.response.headers.get("x-sluice-reason")
    assert said, f"no x-sluice-reason: {error.response.headers}"
    assert reason is None or said == reason, f"x-sluice-reason is {said!r}, expected {reason!r}"


@case
def messages_unary():
    # This SDK no longer names the sampling members; older ones, still in use, send them.
    answer = ask(stop_sequences=["END"], extra_body={"temperature": 0.5, "top_k": 5})
    assert answer.type == "message" and answer.role == "assistant", answer
    assert [block.text for block in answer.content] == [text_of(MODEL)], answer
    assert answer.stop_reason == "end_turn", answer
    assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0, answer.usage


@case
def messages_stream():
    with client.messages.stream(model=PROVIDER_MODEL, max_tokens=64, messages=MESSAGES) as stream:
        texts = list(stream.text_stream)
        final = stream.get_final_message()
    assert "".join(texts) == text_of(PROVIDER_MODEL), texts
    assert len(texts) > 2, "streamed as one event"
    assert final.stop_reason == "end_turn", final
    assert (final.usage.input_tokens, final.usage.output_tokens) == (100, 50), final.usage


@case
def messages_stream_events():
    kinds = [event.type for event in ask(model=PROVIDER_MODEL, stream=True)]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], kinds
    assert kinds.count("content_block_delta") > 2, kinds


@case
def messages_stream_left_early():
    with client.messages.stream(model=PROVIDER_MODEL, max_tokens=64, messages=MESSAGES) as stream:
        next(iter(stream.text_stream))
    # The connection that was torn down must not harm the next call.
    messages_unary()


@case
def tools_unary():
    answer = ask(model=PROVIDER_MODEL, tools=TOOLS, tool_choice={"type": "auto"})
    assert answer.stop_reason == "tool_use", answer
    call = answer.content[0]
    assert (call.type, call.name, call.input) == ("tool_use", "weather", {"city": "Paris"}), call
    # The second turn carries the tool's result back.
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    used = {"type": "tool_use", "id": call.id, "name": call.name, "input": call.input}
    turn = MESSAGES + [{"role": "assistant", "content": [used]}, {"role": "user", "content": [result]}]
    answer = ask(model=PROVIDER_MODEL, messages=turn)
    assert answer.content[0].text == text_of(PROVIDER_MODEL), answer


@case
def tools_stream():
    more = {"model": PROVIDER_MODEL, "max_tokens": 64, "messages": MESSAGES, "tools": TOOLS}
    with client.messages.stream(**more) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    assert len(pieces) > 1, pieces
    assert final.content[0].input == {"city": "Paris"}, final


def picture(size):
    data = base64.b64encode((bytes(range(256)) * (size // 256 + 1))[:size]).decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "What is this?"}]
    return [{"role": "user", "content": content}]


@case
def image_base64():
    answer = ask(model=PROVIDER_MODEL, messages=picture(100_000))
    assert answer.content[0].text == text_of(PROVIDER_MODEL), answer


@case
def image_20mb():
    answer = ask(model=PROVIDER_MODEL, messages=picture(15 * 1024 * 1024))
    assert answer.content[0].text == text_of(PROVIDER_MODEL), answer


@case
def count_tokens():
    answer = client.messages.count_tokens(model=PROVIDER_MODEL, messages=MESSAGES, system="Be brief.")
    assert answer.input_tokens == 100, answer


@case
def system_and_metadata():
    # The sidecar overrides the metadata without an error: the agent's code still works.
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    answer = ask(model=PROVIDER_MODEL, system=system, metadata={"user_id": "somebody-else"})
    assert answer.content[0].text == text_of(PROVIDER_MODEL), answer


@case
def thinking():
    more = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048}
    answer = ask(model=PROVIDER_MODEL, **more)
    assert answer.content[0].text == text_of(PROVIDER_MODEL), answer


@case
def beta_header():
    more = {"model": PROVIDER_MODEL, "max_tokens": 64, "messages": MESSAGES}
    answer = client.beta.messages.create(**more, betas=[BETA])
    assert answer.content[0].text == text_of(PROVIDER_MODEL), answer


@case
def beta_not_allowed():
    # A beta that is not on the list is taken out, not refused.
    more = {"model": PROVIDER_MODEL, "max_tokens": 64, "messages": MESSAGES}
    answer = client.beta.messages.create(**more, betas=[BETA, "not-a-beta-2020-01-01"])
    assert answer.content[0].text == text_of(PROVIDER_MODEL), answer


@case
def async_20():
    more = {"model": PROVIDER_MODEL, "max_tokens": 64, "messages": MESSAGES}

    async def one(other, number):
        if number % 2:
            async with other.messages.stream(**more) as stream:
                return "".join([text async for text in stream.text_stream])
        return (await other.messages.create(**more)).content[0].text

    async def all_at_once():
        async with anthropic.AsyncAnthropic(**OPTIONS) as other:
            return await asyncio.gather(*(one(other, number) for number in range(20)))

    texts = asyncio.run(all_at_once())
    assert texts == [text_of(PROVIDER_MODEL)] * 20, texts


@case
def headers_screened():
    raw = client.messages.with_raw_response.create(model=MODEL, max_tokens=64, messages=MESSAGES)
    assert raw.headers["x-litellm-call-id"], raw.headers
    leaked = {name.lower() for name in raw.headers} - ALLOWED_HEADERS
    assert not leaked, f"headers that must not pass: {leaked}"


@case
def error_param_refused():
    error = refused(anthropic.BadRequestError, lambda: ask(extra_body={"api_base": "http://evil"}))
    check_refusal(error, 400, "param_not_allowed", "invalid_request_error")
    assert "api_base" in error.api_message, f"the message must name the member: {error.api_message}"


@case
def error_stream_param_refused():
    more = {"model": PROVIDER_MODEL, "max_tokens": 64, "messages": MESSAGES, "extra_body": {"no-log": True}}

    def streamed():
        with client.messages.stream(**more) as stream:
            return list(stream)

    error = refused(anthropic.BadRequestError, streamed)
    check_refusal(error, 400, "param_not_allowed", "invalid_request_error")


@case
def error_unknown_model():
    error = refused(anthropic.APIStatusError, lambda: ask(model="not-a-model"))
    assert 400 <= error.status_code < 500, error
    check_refusal(error, error.status_code, "model_not_allowed")


@case
def error_server_tool():
    tool = {"type": "web_search_20250305", "name": "web_search"}
    error = refused(anthropic.BadRequestError, lambda: ask(tools=[tool]))
    check_refusal(error, 400, None, "invalid_request_error")


@case
def error_remote_image():
    source = {"type": "url", "url": "http://internal/secret.png"}
    content = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    error = refused(anthropic.BadRequestError, lambda: ask(messages=content))
    check_refusal(error, 400, None, "invalid_request_error")


@case
def error_route_not_allowed():
    error = refused(anthropic.NotFoundError, lambda: client.messages.batches.list())
    check_refusal(error, 404, "route_not_allowed", "not_found_error")


@case
def over_max_calls():
    for _ in range(int(setting("SDK_MAX_CALLS", "1"))):
        messages_unary()
    error = refused(anthropic.APIStatusError, ask)
    check_refusal(error, 402, "budget_exceeded")


@case
def held_at_a_cap():
    # With the SDK's own retries. The operator raises the cap while the first call waits to try again, and denies the other.
    retrying = anthropic.Anthropic(**{**OPTIONS, "max_retries": 2})
    assert retrying.messages.create(model=MODEL, max_tokens=64, messages=MESSAGES).content
    error = refused(
        anthropic.BadRequestError,
        lambda: retrying.messages.create(model=MODEL, max_tokens=64, messages=MESSAGES * 2),
    )
    check_refusal(error, 400, "budget_exceeded", "invalid_request_error")


@case
def upstream_dead():
    error = refused(anthropic.InternalServerError, ask)
    check_refusal(error, 502, None, "api_error")
    assert error.response.headers["x-sluice-reason"].startswith("upstream"), error.response.headers


@case
def error_upstream_auth():
    # With the SDK's own retries, which the sidecar marks as useless.
    retrying = anthropic.Anthropic(**{**OPTIONS, "max_retries": 2})
    error = refused(
        anthropic.InternalServerError,
        lambda: retrying.messages.create(model=MODEL, max_tokens=64, messages=MESSAGES),
    )
    check_refusal(error, 502, "upstream_auth", "api_error")
    assert error.response.headers["x-should-retry"] == "false", error.response.headers
    assert "Lr4T" not in str(error.body) + str(error.response.headers), error.body


@case
def messages_stream_broken():
    seen = []

    def read():
        for event in ask(model=PROVIDER_MODEL, stream=True):
            seen.append(event)
        return seen

    # The error event of the protocol, which the SDK knows, and not only a connection that fell silent.
    error = refused(anthropic.APIStatusError, read)
    assert error.body["type"] == "error" and error.body["error"]["message"], error.body
    assert seen and seen[0].type == "message_start", seen


if __name__ == "__main__":
    main()
