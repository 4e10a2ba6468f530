"""A LangGraph agent: langgraph_agent.py MODEL PROMPT [IMAGE]; a model `claude-…` is asked in Anthropic's format."""

import base64
import sys

from langchain.agents import create_agent
from shell import run_shell


def content(prompt, image):
    if image is None:
        return prompt
    with open(image, "rb") as file:
        data = base64.b64encode(file.read()).decode()
    return [
        {"type": "text", "text": prompt},
        {"type": "image", "base64": data, "mime_type": "image/png"},
    ]


def main(model, prompt, image=None):
    provider = "anthropic" if model.startswith("claude") else "openai"
    agent = create_agent(f"{provider}:{model}", tools=[run_shell], system_prompt="Do what you are told.")
    asked = {"messages": [{"role": "user", "content": content(prompt, image)}]}
    # With `messages`, it streams the model's answers.
    for mode, event in agent.stream(asked, stream_mode=["messages", "values"]):
        if mode == "values":
            last = event["messages"][-1]
    print(last.text)


main(*sys.argv[1:])
