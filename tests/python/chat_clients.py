"""Clients of OpenAI that choose an agent of a daemon as their model: chat_clients.py openai | langchain

CHAT_BASE_URL and CHAT_API_KEY name the daemon. The agent's answer is `one two three`, in parts.
"""
import os
import sys

BASE = {"base_url": os.environ["CHAT_BASE_URL"], "api_key": os.environ["CHAT_API_KEY"]}
AGENT = "sandbox:agent"
ANSWER = "one two three"
MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "count"}]
TOOL = {"type": "function", "function": {"name": "f"}}


def same(found, expected):
    if found != expected:
        sys.exit(f"found {found!r}, and not {expected!r}")


def with_openai():
    import openai

    client = openai.OpenAI(**BASE)
    same(AGENT in [model.id for model in client.models.list()], True)
    answer = client.chat.completions.create(model=AGENT, messages=MESSAGES, temperature=0.2, tools=[TOOL], user="ann")
    same((answer.choices[0].message.content, answer.choices[0].finish_reason), (ANSWER, "stop"))
    same(answer.usage.total_tokens > 0, True)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(client.chat.completions.create(model=AGENT, messages=MESSAGES, **options))
    parts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    same("".join(parts), ANSWER)
    same(chunks[-1].usage.total_tokens, answer.usage.total_tokens)
    for error, change in [
        (openai.BadRequestError, {"n": 2}),
        (openai.BadRequestError, {"tools": [TOOL], "tool_choice": "required"}),
        (openai.NotFoundError, {"model": "sandbox:nobody"}),
    ]:
        try:
            client.chat.completions.create(**{"model": AGENT, "messages": MESSAGES, **change})
        except error as refused:
            same(bool(refused.code and refused.param), True)
        else:
            sys.exit(f"{change} was not refused")
    try:
        openai.OpenAI(**{**BASE, "api_key": "slu_none"}).models.list()
    except openai.AuthenticationError:
        pass
    else:
        sys.exit("a wrong key was taken")


def with_langchain():
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model=AGENT, stream_usage=True, **BASE)
    same(model.invoke("count").content, ANSWER)
    chunks = list(model.stream([("system", "be brief"), ("user", "count")]))
    same("".join(chunk.content for chunk in chunks), ANSWER)
    same(sum(chunk.usage_metadata["total_tokens"] for chunk in chunks if chunk.usage_metadata) > 0, True)


{"openai": with_openai, "langchain": with_langchain}[sys.argv[1]]()
