"""One call of LiteLLM in this process, with metadata as an in-process integration sends it, and both callbacks for Langfuse.

usage: langfuse_call.py METADATA MODEL ANSWER ACCOUNT TEXT      (LANGFUSE_* name the recording endpoint)
"""

import asyncio
import json
import sys

import litellm

metadata, model, answer, account, text = sys.argv[1:]
litellm.success_callback = ["langfuse"]
litellm.callbacks = ["langfuse_otel"]


async def main():
    messages = [{"content": text, "role": "user"}]
    response = await litellm.acompletion(
        model=model, messages=messages, metadata=json.loads(metadata), user=account, mock_response=answer, api_key="none"
    )
    assert response.choices[0].message.content == answer
    # The callbacks work in the background: exporters are flushed at the end of the process.
    await asyncio.sleep(3)


asyncio.run(main())
