"""One call with the SDK of OpenAI or Anthropic, all settings at their defaults: one_call.py openai|anthropic MODEL PROMPT

Prints the answer, or the error of the SDK on stderr with exit code 1.
"""

import sys

vendor, model, prompt = sys.argv[1:4]
messages = [{"role": "user", "content": prompt}]
try:
    if vendor == "openai":
        import openai

        answer = openai.OpenAI().chat.completions.create(model=model, messages=messages)
        print(answer.choices[0].message.content)
    else:
        import anthropic

        answer = anthropic.Anthropic().messages.create(model=model, max_tokens=100, messages=messages)
        print(answer.content[0].text)
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
