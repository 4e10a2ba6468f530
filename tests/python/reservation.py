"""Plays a provider that answers with all it may, and bills by LiteLLM's own tokenizer and cost calculator.

Prints one line, the price list as GET /model/info would give it. Then reads lines from stdin, each one call: its body as
it goes upstream, and what was reserved for it. Prints the figures as one line of JSON, or each call that costs more
than was reserved, and exits 1."""

import copy
import json
import math
import os
import statistics
import struct
import sys
from base64 import b64decode
from fractions import Fraction

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm  # noqa: E402
from litellm.litellm_core_utils.prompt_templates.common_utils import unpack_defs  # noqa: E402
from litellm.types.utils import (  # noqa: E402
    CacheCreationTokenDetails,
    CompletionTokensDetailsWrapper,
    ModelResponse,
    PromptTokensDetailsWrapper,
    Usage,
)

MODELS = """
anthropic/claude-sonnet-4-5 anthropic/claude-haiku-4-5 anthropic/claude-haiku-5-5 anthropic/claude-sonnet-5
bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0 openai/gpt-4o openai/gpt-4o-mini openai/gpt-4.1 openai/gpt-5
openai/gpt-5-mini openai/gpt-5.4 openai/gpt-6-luna openai/gpt-6-astra openai/o3 openai/o4-mini openai/gpt-5-codex
openai/o1-pro openai/gpt-audio gemini/gemini-2.5-pro gemini/gemini-2.5-flash gemini/gemini-3.1-pro-preview
vertex_ai/gemini-3.5-flash gemini/gemini-omni-flash-preview xai/grok-4.3 deepseek/deepseek-v4-flash
dashscope/qwen-flash mistral/mistral-large-latest perplexity/sonar openai/text-embedding-3-small
openai/text-embedding-3-large gemini/gemini-embedding-2 cohere/embed-v4.0 vertex_ai/text-embedding-005
""".split()
INFOS = {model: litellm.get_model_info(model) for model in MODELS}
# LiteLLM writes each reference of a tool's schema out for these.
UNPACKED = ("gemini/", "vertex_ai/", "bedrock/")
# It asks these through the Responses API, whatever the route.
BRIDGED = {model for model, info in INFOS.items() if info["mode"] == "responses"}
# LiteLLM raises a smaller bound to this on its way to the Responses API of OpenAI.
OUTPUT_MIN = 16
# Of a model whose longest answer is not known; the sidecar then names a bound itself.
TIERS = ["priority", "flex", "default"]


def price_list():
    entries = [
        {"model_name": model, "litellm_params": {"model": model}, "model_info": info} for model, info in INFOS.items()
    ]
    return json.dumps({"data": entries}, default=str)


class Body:
    """One body as it came upstream."""

    def __init__(self, wire, model, body):
        self.wire, self.model, self.body = wire, model, body
        self.images = []
        self.is_unpacked = model.startswith(UNPACKED)

    def text(self, text):
        return litellm.token_counter(model=self.model, text=text) if text else 0

    def prompt_tokens(self):
        """The largest of the counts."""
        body = self.body
        if self.wire == "embeddings":
            return self.inputs(body["input"])
        if self.wire == "completions":
            return self.inputs(body["prompt"])
        messages = {"chat": self.chat, "responses": self.responses, "messages": self.messages}[self.wire]()
        by_litellm = litellm.token_counter(model=self.model, messages=messages)
        no_images = [{**m, "content": without_images(m.get("content"))} for m in messages]
        by_provider = litellm.token_counter(model=self.model, messages=no_images)
        by_provider += sum(provider_image_tokens(self.model, *image) for image in self.images)
        tools = [t if isinstance(t.get("function", t), dict) else t for t in [*body.get("tools", []), *body.get("functions", [])]]
        return max(by_litellm, by_provider) + self.tools(tools) + sum(map(self.schema, self.answers()))

    def inputs(self, value):
        """A text, several, or tokens; or an image, which is billed by its pixels."""
        if isinstance(value, str):
            if value.startswith("data:image/"):
                return self.image(value, "auto")
            return self.text(value)
        if value and isinstance(value[0], int):
            return len(value)
        return sum(map(self.inputs, value))

    def image(self, url, detail):
        size = png_size(url)
        self.images.append((size, detail))
        return provider_image_tokens(self.model, size, detail)

    def parts(self, content):
        """The images of some content, and the content as LiteLLM counts it."""
        if not isinstance(content, list):
            return content
        parts = []
        for part in content:
            if part["type"] in ("input_text", "output_text"):
                part = {"type": "text", "text": part["text"]}
            elif part["type"] == "input_image":
                part = {"type": "image_url", "image_url": {"url": part["image_url"], "detail": part.get("detail", "auto")}}
            if part["type"] == "image_url":
                image = part["image_url"]
                url, detail = (image, "auto") if isinstance(image, str) else (image["url"], image.get("detail", "auto"))
                self.images.append((png_size(url), detail))
            elif part["type"] == "image":
                self.images.append((png_size("," + part["source"]["data"]), "auto"))
            elif part["type"] == "tool_result":
                part = {**part, "content": self.parts(part["content"])}
            elif part["type"] == "tool_use" and not self.model.startswith("anthropic/"):
                # The arguments of a tool call are a text in other APIs.
                part = {"type": "text", "text": json.dumps(part["input"])}
            parts.append(part)
        return parts

    def chat(self):
        return [{**m, "content": self.parts(m.get("content"))} for m in self.body["messages"]]

    def messages(self):
        system = self.body.get("system")
        first = [{"role": "system", "content": self.parts(system)}] if system else []
        return first + self.chat()

    def responses(self):
        messages = []
        if self.body.get("instructions"):
            messages.append({"role": "system", "content": self.body["instructions"]})
        items = self.body["input"]
        if isinstance(items, str):
            items = [{"role": "user", "content": items}]
        for item in items:
            if item.get("type") == "function_call":
                call = {"id": "c", "type": "function", "function": {"name": item["name"], "arguments": item["arguments"]}}
                messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            elif item.get("type") == "function_call_output":
                messages.append({"role": "tool", "content": item["output"]})
            else:
                messages.append({"role": item["role"], "content": self.parts(item["content"])})
        return messages

    def tools(self, tools):
        if not tools:
            return 0
        tools = copy.deepcopy(tools)
        for tool in tools:
            for holder in (tool, tool.get("function") or {}):
                for name in ("parameters", "input_schema"):
                    if self.is_unpacked and name in holder:
                        holder[name] = unpacked(holder[name])
        # Either as LiteLLM counts them, or as a model that reads JSON.
        primed = litellm.token_counter(model=self.model, messages=[])
        counted = litellm.token_counter(model=self.model, messages=[], tools=tools) - primed
        return max(counted, self.text(compact(tools)))

    def answers(self):
        """The schemas that the answer is held to."""
        body = self.body
        found = [
            (body.get("response_format") or {}).get("json_schema"),
            (body.get("text") or {}).get("format"),
            body.get("output_format"),
            (body.get("output_config") or {}).get("format"),
        ]
        return [one["schema"] for one in found if one and "schema" in one]

    def schema(self, schema):
        if self.is_unpacked:
            schema = unpacked(schema)
        tool = {"type": "function", "function": {"name": "json_tool_call", "parameters": schema}}
        return max(self.text(compact(schema)), litellm.token_counter(model=self.model, messages=[], tools=[tool]))

    def completion_tokens(self):
        """With each answer as long as it may be."""
        body = self.body
        names = {"chat": ["max_tokens", "max_completion_tokens"], "responses": ["max_output_tokens"]}
        bounds = [body[name] for name in names.get(self.wire, ["max_tokens"]) if body.get(name) is not None]
        each = max(bounds, default=0)
        if 0 in bounds or not bounds:
            each = INFOS[self.model]["max_output_tokens"]
            assert each, "neither the client nor the sidecar named a bound"
        elif self.wire in ("responses", "messages") or self.model in BRIDGED:
            each = max(each, OUTPUT_MIN)
        prompt = body.get("prompt")
        several = isinstance(prompt, list) and [p for p in prompt if not isinstance(p, int)]
        answers = max(body.get("n") or 1, body.get("best_of") or 1) * (len(several) if several else 1)
        return each * answers

    def predicted_tokens(self):
        """Of a predicted answer, none of which comes true."""
        predicted = (self.body.get("prediction") or {}).get("content") or ""
        if isinstance(predicted, list):
            predicted = "".join(part["text"] for part in predicted)
        return self.text(predicted)

    def usages(self, prompt, completion):
        """Each way in which the provider may split the tokens into classes."""
        ways_in = [{}, {"cached_tokens": prompt}, {"cache_creation_tokens": prompt}]
        if '"1h"' in compact(self.body):
            hour = CacheCreationTokenDetails(ephemeral_5m_input_tokens=0, ephemeral_1h_input_tokens=prompt)
            ways_in.append({"cache_creation_tokens": prompt, "cache_creation_token_details": hour})
        if self.images:
            ways_in.append({"image_tokens": prompt})
        ways_out = [{}, {"reasoning_tokens": completion}]
        modalities = self.body.get("modalities") or []
        for way in ("audio", "image", "video"):
            if way in modalities:
                ways_out.append({f"{way}_tokens": completion})
        for way_in in ways_in:
            for way_out in ways_out:
                usage = Usage(
                    prompt_tokens=prompt,
                    completion_tokens=completion,
                    total_tokens=prompt + completion,
                    prompt_tokens_details=PromptTokensDetailsWrapper(**way_in) if way_in else None,
                    completion_tokens_details=CompletionTokensDetailsWrapper(**way_out) if way_out else None,
                )
                # A workspace may have a default for where it is served.
                usage.inference_geo = "us"
                yield usage

    def tiers(self):
        named = self.body.get("service_tier")
        return TIERS if named == "auto" else [named]

    def cost(self, prompt, completion):
        """The dearest of all, with a surcharge for the region where the model has one."""
        provider = self.model.split("/")[0]
        if self.wire == "embeddings":
            usages = [Usage(prompt_tokens=prompt, completion_tokens=0, total_tokens=prompt)]
            if self.images:
                usages[0].prompt_tokens_details = PromptTokensDetailsWrapper(image_tokens=prompt)
        else:
            usages = self.usages(prompt, completion)
        where = {"data_residency": "eu"} if provider == "openai" else {}
        where = {"vertex_location": "us-east5"} if provider == "vertex_ai" else where
        return max(
            litellm.completion_cost(
                completion_response=ModelResponse(model=self.model, usage=usage),
                model=self.model,
                custom_llm_provider=provider,
                call_type="embedding" if self.wire == "embeddings" else "completion",
                service_tier=tier,
                **where,
            )
            for usage in usages
            for tier in self.tiers()
        )


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def unpacked(schema):
    schema = copy.deepcopy(schema)
    defs = {**schema.pop("definitions", {}), **schema.pop("$defs", {})}
    for one in defs.values():
        unpack_defs(one, copy.deepcopy(defs))
    unpack_defs(schema, defs)
    return schema


def without_images(content):
    if not isinstance(content, list):
        return content
    kept = [part for part in content if part["type"] not in ("image_url", "image")]
    return [{**p, "content": without_images(p["content"])} if p["type"] == "tool_result" else p for p in kept]


def png_size(url):
    head = b64decode(url.split(",", 1)[1][:48])
    assert head.startswith(b"\x89PNG")
    return struct.unpack(">II", head[16:24])


def provider_image_tokens(model, size, detail):
    """The rules for images of OpenAI, Anthropic and Google, in their simplest form."""
    short, long = min(size), max(size)
    name = model.split("/")[1]
    if "claude" in name:
        scale = min(1, 1568 / long)
        return math.ceil(min(short * long * scale * scale / 750, 1568))
    tiles = {"gpt-4o": (85, 170), "gpt-4.1": (85, 170), "gpt-4o-mini": (2833, 5667), "gpt-5": (70, 140), "o3": (75, 150)}
    if name in tiles:
        base, tile = tiles[name]
        if detail == "low":
            return base
        scale = min(1, 2048 / long)
        scale *= min(1, 768 / (short * scale))
        return base + tile * math.ceil(short * scale / 512) * math.ceil(long * scale / 512)
    if name.startswith("gemini"):
        return 258
    return 0


def main():
    print(price_list(), flush=True)
    calls, strict, over, ratios = 0, 0, 0, []
    for line in sys.stdin:
        call = json.loads(line)
        calls += 1
        if not call["strict"]:
            continue
        strict += 1
        body = Body(call["wire"], call["model"], json.loads(call["body"]))
        prompt = body.prompt_tokens()
        answers = 0 if body.wire == "embeddings" else body.completion_tokens()
        completion = answers + body.predicted_tokens()
        # LiteLLM's client for embeddings tries three times, and each may be billed.
        tries = 3 if body.wire == "embeddings" else 1
        tokens = prompt * tries + completion
        cost = Fraction(body.cost(prompt, completion)) * tries
        for way, reserved in call["reserved"].items():
            femtos = Fraction(int(reserved["femtos"]), 10**15)
            # What a sum of floats may be off by.
            is_longer = tokens > reserved["tokens"] or answers > reserved["answers"]
            if is_longer or cost > femtos * (1 + Fraction(1, 10**12)):
                over += 1
                if over <= 20:
                    print(
                        f"{way}: {prompt} and {completion} tokens for ${float(cost):.9f}, reserved {reserved['tokens']} for "
                        f"${float(femtos):.9f}: {call['wire']} {call['body'][:1200]}"
                    )
            if cost:
                ratios.append(float(femtos / cost))
    if over:
        print(f"{over} reservations are exceeded")
        sys.exit(1)
    print(json.dumps({"calls": calls, "strict": strict, "median": round(statistics.median(ratios), 2), "least": round(min(ratios), 3)}))


main()
