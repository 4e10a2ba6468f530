"""An agent of OpenAI's Agents SDK: openai_agents.py MODEL PROMPT (AGENT_API=chat for chat completions)."""

import asyncio
import os
import sys

from agents import Agent, Runner, function_tool, set_default_openai_api
from shell import run_shell


async def main(model, prompt):
    if os.environ.get("AGENT_API") == "chat":
        set_default_openai_api("chat_completions")
    agent = Agent(name="clerk", instructions="Do what you are told.", model=model, tools=[function_tool(run_shell)])
    streamed = Runner.run_streamed(agent, prompt)
    async for _ in streamed.stream_events():
        pass
    print(streamed.final_output)


asyncio.run(main(*sys.argv[1:]))
