"""One turn of a model in the three wire formats, whole or as the events of a stream, as the real providers send them.

A turn is {"thinking": TEXT or None, "text": TEXT or None, "calls": [CALL, …]}; a call is {"id", "name", "kind"} with
`arguments` (an object) or, for kind "custom", `input` (text); `namespace` where the tool stands in one. A bill is
{"fresh", "cached", "written", "output", "reasoning"}: each token counted once, reasoning as a part of the output.
"""

import json
import uuid


def ident(prefix):
    return prefix + uuid.uuid4().hex


def pieces(text, size=24):
    return [text[at : at + size] for at in range(0, len(text), size)] or [""]


def chat_usage(bill):
    tokens_in = bill["fresh"] + bill["cached"] + bill["written"]
    return {
        "prompt_tokens": tokens_in,
        "completion_tokens": bill["output"],
        "total_tokens": tokens_in + bill["output"],
        "prompt_tokens_details": {"cached_tokens": bill["cached"]},
        "completion_tokens_details": {"reasoning_tokens": bill["reasoning"]},
    }


def chat(body, turn, bill):
    calls = [
        {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": json.dumps(c["arguments"])}}
        for c in turn["calls"]
    ]
    finish = "tool_calls" if calls else "stop"
    head = {"id": ident("chatcmpl-"), "created": 1700000000, "model": body["model"], "service_tier": "default"}
    if not body.get("stream"):
        message = {"role": "assistant", "content": turn["text"], "refusal": None}
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return {**head, "object": "chat.completion", "choices": [choice], "usage": chat_usage(bill)}

    counted = (body.get("stream_options") or {}).get("include_usage")

    def chunk(delta, finish=None):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        chunk = {**head, "object": "chat.completion.chunk", "choices": [choice]}
        return (None, {**chunk, "usage": None} if counted else chunk)

    events = [chunk({"role": "assistant", "content": None if calls else "", "refusal": None})]
    events += [chunk({"content": part}) for part in (pieces(turn["text"]) if turn["text"] else [])]
    for index, call in enumerate(calls):
        function = call["function"]
        events.append(chunk({"tool_calls": [{"index": index, **call, "function": {**function, "arguments": ""}}]}))
        for part in pieces(function["arguments"]):
            events.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]}))
    events.append(chunk({}, finish))
    if counted:
        events.append((None, {**head, "object": "chat.completion.chunk", "choices": [], "usage": chat_usage(bill)}))
    return events + [(None, "[DONE]")]


def responses_usage(bill):
    tokens_in = bill["fresh"] + bill["cached"] + bill["written"]
    return {
        "input_tokens": tokens_in,
        "input_tokens_details": {"cached_tokens": bill["cached"]},
        "output_tokens": bill["output"],
        "output_tokens_details": {"reasoning_tokens": bill["reasoning"]},
        "total_tokens": tokens_in + bill["output"],
    }


def responses_items(body, turn):
    items = []
    if turn["thinking"]:
        reasoning = {
            "id": ident("rs_"),
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": turn["thinking"]}],
        }
        if "reasoning.encrypted_content" in (body.get("include") or []):
            reasoning["encrypted_content"] = "gAAAA" + uuid.uuid4().hex
        items.append(reasoning)
    if turn["text"]:
        part = {"type": "output_text", "text": turn["text"], "annotations": [], "logprobs": []}
        items.append(
            {"id": ident("msg_"), "type": "message", "status": "completed", "role": "assistant", "content": [part]}
        )
    for call in turn["calls"]:
        common = {"call_id": call["id"], "name": call["name"], "status": "completed"}
        if call.get("namespace"):
            common["namespace"] = call["namespace"]
        if call["kind"] == "custom":
            items.append({"id": ident("ctc_"), "type": "custom_tool_call", **common, "input": call["input"]})
        else:
            arguments = json.dumps(call["arguments"])
            items.append({"id": ident("fc_"), "type": "function_call", **common, "arguments": arguments})
    return items


def response_maker(body):
    """A function that makes the response object of this request, from its status, output and usage."""
    head = {
        "id": ident("resp_"),
        "object": "response",
        "created_at": 1700000000,
        "error": None,
        "incomplete_details": None,
        "model": body["model"],
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "tool_choice": "auto",
        "tools": [],
    }
    return lambda status, output, usage: {**head, "status": status, "output": output, "usage": usage}


def responses(body, turn, bill):
    response = response_maker(body)
    items = responses_items(body, turn)
    done = response("completed", items, responses_usage(bill))
    if not body.get("stream"):
        return done
    events = [
        {"type": "response.created", "response": response("in_progress", [], None)},
        {"type": "response.in_progress", "response": response("in_progress", [], None)},
    ]
    for index, item in enumerate(items):
        at = {"item_id": item["id"], "output_index": index}
        empty = {**item, "status": "in_progress"} if "status" in item else dict(item)
        for name in ("arguments", "input"):
            if name in item:
                empty[name] = ""
        for name in ("content", "summary"):
            if name in item:
                empty[name] = []
        events.append({"type": "response.output_item.added", "output_index": index, "item": empty})
        if item["type"] == "message":
            part = item["content"][0]
            text = {**at, "content_index": 0}
            events.append({"type": "response.content_part.added", **text, "part": {**part, "text": ""}})
            for piece in pieces(part["text"]):
                events.append({"type": "response.output_text.delta", **text, "delta": piece, "logprobs": []})
            events.append({"type": "response.output_text.done", **text, "text": part["text"], "logprobs": []})
            events.append({"type": "response.content_part.done", **text, "part": part})
        elif item["type"] == "reasoning":
            part = item["summary"][0]
            text = {**at, "summary_index": 0}
            events.append({"type": "response.reasoning_summary_part.added", **text, "part": {**part, "text": ""}})
            for piece in pieces(part["text"]):
                events.append({"type": "response.reasoning_summary_text.delta", **text, "delta": piece})
            events.append({"type": "response.reasoning_summary_text.done", **text, "text": part["text"]})
            events.append({"type": "response.reasoning_summary_part.done", **text, "part": part})
        else:
            name, kind = (
                ("arguments", "function_call_arguments") if "arguments" in item else ("input", "custom_tool_call_input")
            )
            for piece in pieces(item[name]):
                events.append({"type": f"response.{kind}.delta", **at, "delta": piece})
            events.append({"type": f"response.{kind}.done", **at, name: item[name]})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": done})
    return [(e["type"], {**e, "sequence_number": n}) for n, e in enumerate(events)]


def messages_usage(bill):
    return {
        "input_tokens": bill["fresh"],
        "cache_creation_input_tokens": bill["written"],
        "cache_read_input_tokens": bill["cached"],
        "cache_creation": {"ephemeral_5m_input_tokens": bill["written"], "ephemeral_1h_input_tokens": 0},
        "output_tokens": bill["output"],
        "service_tier": "standard",
    }


def messages(body, turn, bill):
    blocks = []
    if turn["thinking"] and (body.get("thinking") or {}).get("type") in ("enabled", "adaptive"):
        blocks.append({"type": "thinking", "thinking": turn["thinking"], "signature": "EqQB" + uuid.uuid4().hex})
    if turn["text"]:
        blocks.append({"type": "text", "text": turn["text"]})
    for call in turn["calls"]:
        blocks.append({"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["arguments"]})
    reason = "tool_use" if turn["calls"] else "end_turn"
    usage = messages_usage(bill)
    head = {"id": ident("msg_"), "type": "message", "role": "assistant", "model": body["model"], "stop_sequence": None}
    if not body.get("stream"):
        return {**head, "content": blocks, "stop_reason": reason, "usage": usage}
    start = {**head, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    events = [{"type": "message_start", "message": start}]
    for index, block in enumerate(blocks):
        if block["type"] == "thinking":
            empty = {**block, "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        elif block["type"] == "text":
            empty = {**block, "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
        else:
            empty = {**block, "input": {}}
            parts = ["", *pieces(json.dumps(block["input"]))]
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in parts]
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        if index == 0:
            events.append({"type": "ping"})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    # The counts of the end are those of the whole answer.
    last = {name: value for name, value in usage.items() if name not in ("cache_creation", "service_tier")}
    events.append({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": last})
    events.append({"type": "message_stop"})
    return [(e["type"], e) for e in events]


RENDER = {"/v1/chat/completions": chat, "/v1/responses": responses, "/v1/messages": messages}
