"""A provider for LiteLLM to call: answers in every wire format, and writes down each request as it arrived.

usage: provider.py RECORD     (prints `listening on 127.0.0.1:PORT`, then serves until it is killed)

RECORD gets one JSON line per request: method, path, headers (lower-case names), body (JSON, or null and `raw`).
Token counts are fixed and unlike anything that LiteLLM would estimate, so a test sees whose count it reads:
100 in, 50 out. The answer echoes nothing of the request but `model`. A string of more than 4,096
characters is written as {"length": N, "sha256": HEX}: an image would make the file slow to read.
A stream whose request has the word STALL in it stops after its second event, until its reader has gone; with the word
CUT the connection breaks there. A request with the word FAIL is answered with status 500, and one with SILENT not at
all. The word LONG makes 250,000 tokens of the 100, and PROMPTCACHE 1,000 fresh, 400 read from a prompt cache, 50 written to
it, and 100 out.
"""

import hashlib
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from wire_formats import ident, response_maker

WORDS = ["Hello", " from", " the", " provider."]
TEXT = "".join(WORDS)


def counts(body):
    """Fresh input, read from a prompt cache, written to it, and output."""
    words = json.dumps(body)
    if "PROMPTCACHE" in words:
        return 1000, 400, 50, 100
    return (250000 if "LONG" in words else 100), 0, 0, 50


def openai_usage(body):
    fresh, read, written, out = counts(body)
    usage = {"prompt_tokens": fresh + read + written, "completion_tokens": out, "total_tokens": fresh + read + written + out}
    return {**usage, "prompt_tokens_details": {"cached_tokens": read}} if read else usage


def responses_usage(body):
    fresh, read, written, out = counts(body)
    return {
        "input_tokens": fresh + read + written,
        "input_tokens_details": {"cached_tokens": read},
        "output_tokens": out,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": fresh + read + written + out,
    }


def brief(value):
    if isinstance(value, dict):
        return {name: brief(member) for name, member in value.items()}
    if isinstance(value, list):
        return [brief(member) for member in value]
    if isinstance(value, str) and len(value) > 4096:
        return {"length": len(value), "sha256": hashlib.sha256(value.encode()).hexdigest()}
    return value


def chat(body):
    called = body.get("tools") and {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": body["tools"][0]["function"]["name"], "arguments": '{"city": "Paris"}'},
            }
        ],
    }
    message = called or {"role": "assistant", "content": TEXT}
    finish = "tool_calls" if called else "stop"
    head = {"id": ident("chatcmpl-"), "created": 1700000000, "model": body["model"]}
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return {**head, "object": "chat.completion", "choices": [choice], "usage": openai_usage(body)}

    def chunk(delta, finish=None):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {**head, "object": "chat.completion.chunk", "choices": [choice]}

    chunks = [chunk({"role": "assistant", "content": "" if not called else None})]
    if called:
        call = called["tool_calls"][0]
        arguments = call["function"]["arguments"]
        first = {**call, "index": 0, "function": {"name": call["function"]["name"], "arguments": ""}}
        chunks.append(chunk({"tool_calls": [first]}))
        for part in (arguments[:5], arguments[5:]):
            chunks.append(chunk({"tool_calls": [{"index": 0, "function": {"arguments": part}}]}))
    else:
        chunks += [chunk({"content": word}) for word in WORDS]
    chunks.append(chunk({}, finish))
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({**head, "object": "chat.completion.chunk", "choices": [], "usage": openai_usage(body)})
    return [(None, c) for c in chunks] + [(None, "[DONE]")]


def completion(body):
    head = {"id": ident("cmpl-"), "object": "text_completion", "created": 1700000000, "model": body["model"]}

    def part(text, finish=None):
        return {**head, "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish}]}

    if not body.get("stream"):
        return {**part(TEXT, "stop"), "usage": openai_usage(body)}
    chunks = [part(word) for word in WORDS] + [part("", "stop")]
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({**head, "choices": [], "usage": openai_usage(body)})
    return [(None, c) for c in chunks] + [(None, "[DONE]")]


def embedding(body):
    values = body["input"] if isinstance(body["input"], list) else [body["input"]]
    data = [{"object": "embedding", "index": i, "embedding": [0.25, -0.5, 0.125]} for i in range(len(values))]
    return {"object": "list", "data": data, "model": body["model"], "usage": {"prompt_tokens": 100, "total_tokens": 100}}


def responses(body):
    def message(status, content):
        return {"id": item, "type": "message", "status": status, "role": "assistant", "content": content}

    response, item = response_maker(body), ident("msg_")
    text = {"type": "output_text", "text": TEXT, "annotations": []}
    done = response("completed", [message("completed", [text])], responses_usage(body))
    if not body.get("stream"):
        return done
    at = {"item_id": item, "output_index": 0, "content_index": 0}
    events = [
        {"type": "response.created", "response": response("in_progress", [], None)},
        {"type": "response.output_item.added", "output_index": 0, "item": message("in_progress", [])},
        {"type": "response.content_part.added", **at, "part": {**text, "text": ""}},
        *({"type": "response.output_text.delta", **at, "delta": word, "logprobs": []} for word in WORDS),
        {"type": "response.output_text.done", **at, "text": TEXT, "logprobs": []},
        {"type": "response.content_part.done", **at, "part": text},
        {"type": "response.output_item.done", "output_index": 0, "item": message("completed", [text])},
        {"type": "response.completed", "response": done},
    ]
    return [(e["type"], {**e, "sequence_number": n}) for n, e in enumerate(events)]


def messages(body):
    tools = body.get("tools")
    block = (
        {"type": "tool_use", "id": "toolu_1", "name": tools[0]["name"], "input": {"city": "Paris"}}
        if tools
        else {"type": "text", "text": TEXT}
    )
    reason = "tool_use" if tools else "end_turn"
    fresh, read, written, out = counts(body)
    usage = {"input_tokens": fresh, "cache_creation_input_tokens": written, "cache_read_input_tokens": read, "output_tokens": out}
    head = {"id": ident("msg_"), "type": "message", "role": "assistant", "model": body["model"], "stop_sequence": None}
    if not body.get("stream"):
        return {**head, "content": [block], "stop_reason": reason, "usage": usage}
    start = {**head, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    if tools:
        empty = {**block, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in ("", '{"city"', ': "Paris"}')]
    else:
        empty = {**block, "text": ""}
        deltas = [{"type": "text_delta", "text": word} for word in WORDS]
    events = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "ping"},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": out},
        },
        {"type": "message_stop"},
    ]
    return [(e["type"], e) for e in events]


ROUTES = {
    "/v1/chat/completions": chat,
    "/v1/completions": completion,
    "/v1/embeddings": embedding,
    "/v1/responses": responses,
    "/v1/messages": messages,
    "/v1/messages/count_tokens": lambda body: {"input_tokens": 100},
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body of an answer are separate writes; without this each costs a delayed acknowledgement.
    disable_nagle_algorithm = True

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        path = self.path.split("?")[0]
        self.server.note(
            {
                "method": self.command,
                "path": self.path,
                "headers": {name.lower(): value for name, value in self.headers.items()},
                "body": brief(body),
                "raw": None if body is not None else raw.decode("latin-1"),
            }
        )
        make = ROUTES.get(path)
        if make is None or body is None:
            self.answer(404, json.dumps({"error": {"message": f"no such route: {path}"}}).encode())
            return
        if b"FAIL" in raw:
            self.answer(500, json.dumps({"error": {"message": "the server had an error"}}).encode())
            return
        if b"SILENT" in raw:
            self.connection.recv(1)
            self.close_connection = True
            return
        result = make(body)
        if isinstance(result, dict):
            self.answer(200, json.dumps(result).encode())
            return
        if b"STALL" in raw:
            self.stream(result[:2], end=False)
            # Returns when the reader has gone.
            self.connection.recv(1)
            return
        cut = b"CUT" in raw
        self.stream(result[:2] if cut else result, end=not cut)

    do_GET = do_DELETE = do_POST

    def stream(self, events, end=True):
        """Sends events, each in a chunk of its own; without an end, the stream breaks off."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for name, data in events:
            text = data if isinstance(data, str) else json.dumps(data)
            event = ((f"event: {name}\n" if name else "") + f"data: {text}\n\n").encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        if end:
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.close_connection = True

    def answer(self, status, data):
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


class Provider(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, record, handler=Handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.record = os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, request):
        os.write(self.record, (json.dumps(request) + "\n").encode())


def main():
    server = Provider(sys.argv[1])
    print(f"listening on 127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
