"""A pydantic-ai agent: pydantic_agent.py MODEL PROMPT; a model is named as `openai-chat:gpt-5.5`."""

import asyncio
import sys

from pydantic_ai import Agent
from shell import run_shell


async def main(model, prompt):
    agent = Agent(model, instructions="Do what you are told.", tools=[run_shell])

    async def read(_, events):
        async for _ in events:
            pass

    # With a reader of its events, it streams the model's answers.
    print((await agent.run(prompt, event_stream_handler=read)).output)


asyncio.run(main(*sys.argv[1:]))
