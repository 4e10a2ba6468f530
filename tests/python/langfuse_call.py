"""Calls of LiteLLM in this process, with metadata as an in-process integration sends it, and both callbacks for Langfuse.

usage: langfuse_call.py PROVIDER ACCOUNT CALLS      (LANGFUSE_* name the recording endpoint)

PROVIDER is a URL without /v1. CALLS is a JSON list of {kind, metadata, text}: `chat`, `stream`, `failed`, `responses`,
`messages`.
"""

import asyncio
import json
import sys

import litellm

provider, account, calls = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
litellm.success_callback = ["langfuse"]
litellm.failure_callback = ["langfuse"]
litellm.callbacks = ["langfuse_otel"]

GPT = {"model": "openai/gpt-4o-mini", "api_base": provider + "/v1", "api_key": "none", "user": account}
CLAUDE = {"model": "anthropic/claude-haiku-4-5", "api_base": provider, "api_key": "none", "max_tokens": 64}


async def call(kind, metadata, text):
    messages = [{"content": text, "role": "user"}]
    if kind == "chat":
        await litellm.acompletion(**GPT, messages=messages, metadata=metadata)
    elif kind == "stream":
        options = {"stream": True, "stream_options": {"include_usage": True}}
        async for _ in await litellm.acompletion(**GPT, **options, messages=messages, metadata=metadata):
            pass
    elif kind == "failed":
        try:
            await litellm.acompletion(**GPT, messages=messages, metadata=metadata, num_retries=0, max_retries=0)
        except litellm.InternalServerError:
            return
        raise AssertionError("the provider fails")
    elif kind == "responses":
        await litellm.aresponses(**GPT, input=text, metadata=metadata)
    else:
        # On this route `metadata` is a member of the body.
        await litellm.anthropic.messages.acreate(**CLAUDE, messages=messages, litellm_metadata=metadata)


async def main():
    for one in calls:
        await call(one["kind"], one["metadata"], one["text"])
    # The callbacks work in the background: exporters are flushed at the end of the process.
    await asyncio.sleep(3)


asyncio.run(main())
