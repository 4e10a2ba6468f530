"""A provider that leads a real agent through a task, with the agent's own tools.

usage: agent_provider.py RECORD      (prints `listening on 127.0.0.1:PORT`, then serves until it is killed)

A prompt holds `[[task NAME OPTION…]]`. The model then writes the file `sluice-NAME.txt` by the agent's shell tool,
reads it back by two calls at once, and answers `task NAME is done` if both results held what was written, else
`task NAME failed: WHY`. The provider keeps no state of a conversation: the next step follows from what the request
holds. The options are

    429, 500, 529   answers one request with that status
    cut             breaks one stream off
    ok              lets one request pass; these four are used up in their order
    image[=SHA256]  an image (with that hash) must be in the request
    edit            for an agent without tools, which takes a block of text as an edit (aider)
    waits           the agent's first command makes the file `waits` and waits for the file `told`; then the agent writes
                    the word of `[[note WORD]]`, if the conversation has one by then, and answers `task NAME is done: WORD`
    repository      the agent adds the line `four` to the file `text` of the clone, by its tools for files where it has some,
                    commits, and pushes

RECORD gets one JSON line a request: task, method, path, model, status, stream, cut, bill (the tokens of the answer,
null where nothing is billed), headers, and body, with long strings as their length and hash.
"""

import base64
import hashlib
import json
import re
import sys
import threading

from provider import Handler, Provider, brief
from wire_formats import RENDER, ident

TASK = re.compile(r"\[\[task ([a-z0-9-]+)((?: [a-z0-9=]+)*)\]\]")
NOTE = re.compile(r"\[\[note ([a-z-]+)\]\]")
SHELLS = ("bash", "shell", "shell_command", "exec_command", "run_shell", "exec")
WRITTEN = "forty-two"
# mini-swe-agent tells its model to end by a command that prints this.
SUBMITS = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class Asked:
    """The content of a request, in any format."""

    def __init__(self, path, body, raw):
        self.path, self.body, self.raw = path, body, raw
        found = TASK.search(raw)
        self.task = found[1] if found else None
        self.options = found[2].split() if found else []
        self.tools = list(tools_of(body))
        self.results = list(results_of(path, body))
        self.images = list(images_of(body))

    def shell(self):
        """The call that runs a command in the agent's shell, as a function of the command; None without such a tool."""
        for wanted in SHELLS:
            for namespace, tool in self.tools:
                if tool.get("name", "").lower() == wanted:
                    return lambda command, tool=tool, namespace=namespace: shell_call(tool, namespace, command)
        return None


def tools_of(body):
    """(namespace, tool) of each tool, in the shape of /v1/responses or /v1/messages."""
    lists = [body.get("tools") or []]
    if isinstance(body.get("input"), list):
        lists += [item.get("tools") or [] for item in body["input"] if item.get("type") == "additional_tools"]
    for tool in (tool for tools in lists for tool in tools):
        if tool.get("type") == "namespace":
            yield from ((tool["name"], inner) for inner in tool.get("tools") or [])
        else:
            yield None, tool.get("function") or tool


def shell_call(tool, namespace, command):
    call = {"id": ident("call_")[:29], "name": tool["name"], "kind": "function", "namespace": namespace}
    # In Anthropic's format, `custom` is the type of any tool of the client's own.
    if tool.get("type") == "custom" and "input_schema" not in tool:
        # The code mode of Codex: JavaScript that calls the tools.
        script = f"const r = await tools.exec_command({json.dumps({'cmd': command})});\ntext(r.output);\n"
        return {**call, "kind": "custom", "input": script}
    schema = tool.get("parameters") or tool.get("input_schema") or {}
    properties = schema.get("properties") or {}
    name = next((name for name in ("command", "cmd", "script") if name in properties), "command")
    is_list = (properties.get(name) or {}).get("type") == "array"
    arguments = {name: ["bash", "-c", command] if is_list else command}
    for other in schema.get("required") or []:
        arguments.setdefault(other, "Writes a file and reads it." if other == "description" else 1000)
    return {**call, "arguments": arguments}


def text_of(value):
    """All text in a result, whatever holds it."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(text_of(item) for item in value)
    if isinstance(value, dict):
        return "\n".join(text_of(value[name]) for name in ("text", "content", "output") if name in value)
    return ""


def results_of(path, body):
    """The text of each tool result in the conversation."""
    if path == "/v1/responses":
        for item in body["input"] if isinstance(body.get("input"), list) else []:
            if str(item.get("type", "")).endswith("_call_output"):
                yield text_of(item.get("output"))
        return
    for message in body.get("messages") or []:
        if message.get("role") == "tool":
            yield text_of(message.get("content"))
        elif isinstance(message.get("content"), list):
            yield from (text_of(b.get("content")) for b in message["content"] if b.get("type") == "tool_result")


def images_of(value):
    """The SHA-256 of each image in a body."""
    if isinstance(value, list):
        for item in value:
            yield from images_of(item)
    elif isinstance(value, dict):
        if value.get("type") == "base64" and str(value.get("media_type", "")).startswith("image/"):
            yield hashlib.sha256(base64.b64decode(value["data"])).hexdigest()
        for name, member in value.items():
            if name in ("image_url", "url") and isinstance(member, str) and member.startswith("data:image/"):
                yield hashlib.sha256(base64.b64decode(member.split(",", 1)[1])).hexdigest()
            else:
                yield from images_of(member)


def turn(text=None, calls=(), thinking="The task is plain."):
    return {"thinking": thinking, "text": text, "calls": list(calls)}


def repository_turn(asked, shell):
    """The next turn of a task in the clone of a run."""
    text = "/workspace/repo/text"

    def call(name, **arguments):
        return {"id": ident("call_")[:29], "name": name, "kind": "function", "namespace": None, "arguments": arguments}

    edits = [shell(f"echo four >> {text}")]
    if {"Read", "Edit"} <= {tool.get("name") for _, tool in asked.tools}:
        edit = call("Edit", file_path=text, old_string="three\n", new_string="three\nfour\n")
        edits = [call("Read", file_path=text), edit]
    commit = "cd /workspace/repo && git commit --quiet --all --message 'Add a line' && echo committed"
    calls = [*edits, shell(commit), shell("git -C /workspace/repo push && echo pushed")]
    if len(asked.results) < len(calls):
        return turn(None, [calls[len(asked.results)]])
    for part in ("committed", "pushed"):
        if not any(part in result for result in asked.results):
            return turn(f"task {asked.task} failed: {part!r} is in none of the results {str(asked.results)[:1000]}")
    return turn(f"task {asked.task} is done")


def next_turn(asked):
    """The next turn of the model."""
    wanted = [option[6:] for option in asked.options if option.startswith("image")]
    if wanted and not asked.images or "".join(wanted) and wanted[0] not in asked.images:
        return turn(f"task {asked.task} failed: no such image among {asked.images}")
    name = f"sluice-{asked.task}.txt"
    write = f"printf 'the answer is {WRITTEN}\\n' > {name} && echo written"
    note = NOTE.search(asked.raw)
    word = note[1] if note else WRITTEN
    if "edit" in asked.options:
        before = f"the answer is {WRITTEN}\n" if note else ""
        block = f"{name}\n```\n<<<<<<< SEARCH\n{before}=======\nthe answer is {word}\n>>>>>>> REPLACE\n```\n"
        return turn(f"{block}\ntask {asked.task} is done")
    shell = asked.shell()
    if shell is None:
        # A title, a summary, a commit message: one line, or the object that its schema asks for.
        is_json = "json_schema" in json.dumps([asked.body.get(n) for n in ("output_config", "text", "response_format")])
        return turn('{"title": "Write a file"}' if is_json else "Write a file", thinking=None)
    if "waits" in asked.options:
        if not any("gone on" in result for result in asked.results):
            return turn("First a wait.", [shell("touch waits; until [ -e told ]; do sleep 0.1; done; echo gone on")])
        if not any(f"wrote {word}" in result for result in asked.results):
            return turn(None, [shell(f"printf 'the answer is {word}\\n' > {name} && echo wrote {word}")])
        return turn(f"task {asked.task} is done: {word}")
    if "repository" in asked.options:
        return repository_turn(asked, shell)
    if not asked.results:
        return turn("First the file.", [shell(write)])
    if len(asked.results) == 1:
        return turn(None, [shell(f"cat {name}"), shell(f"wc -c {name}")])
    # Calls that were made at once may be answered in any order.
    for part in ("written", f"is {WRITTEN}", f"24 {name}"):
        if not any(part in result for result in asked.results):
            return turn(f"task {asked.task} failed: {part!r} is in none of the results {str(asked.results)[:500]}")
    if SUBMITS in asked.raw:
        return turn("That is all.", [shell(f"echo {SUBMITS}; echo task {asked.task} is done")])
    return turn(f"task {asked.task} is done")


class Tasks:
    """The faults that are still to come, and the number of the next bill, of each task."""

    def __init__(self):
        self.lock = threading.Lock()
        self.faults, self.bills = {}, {}

    def fault(self, asked):
        with self.lock:
            left = self.faults.setdefault(asked.task, [o for o in asked.options if o.isdigit() or o in ("ok", "cut")])
            # A title may be asked for at the same time; the faults are the task's own.
            return left.pop(0) if left and (asked.shell() or "edit" in asked.options) else None

    def bill(self, asked):
        """Unlike any estimate, and unlike the last one."""
        with self.lock:
            number = self.bills[asked.task] = self.bills.get(asked.task, 0) + 1
        bill = {
            "fresh": 1000 + number,
            "cached": 400 * (number > 1),
            "written": 0,
            "output": 110 + number,
            "reasoning": 0,
        }
        if asked.path == "/v1/messages":
            return {**bill, "written": 50}
        return {**bill, "reasoning": 10} if asked.path == "/v1/responses" else bill


def error(status, path):
    kinds = {429: "rate_limit_error", 500: "api_error", 529: "overloaded_error"}
    message = f"the provider answers {status} for now"
    if path == "/v1/messages":
        return {"type": "error", "error": {"type": kinds[status], "message": message}}
    return {"error": {"message": message, "type": kinds[status], "param": None, "code": None}}


class AgentHandler(Handler):
    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("content-length") or 0)).decode("utf-8", "replace")
        path = self.path.split("?")[0]
        try:
            body = json.loads(raw) if raw else {}
        except ValueError:
            body = {}
        asked = Asked(path, body, raw)
        note = {
            "task": asked.task,
            "method": self.command,
            "path": self.path,
            "model": body.get("model"),
            "stream": bool(body.get("stream")),
            "status": 200,
            "cut": False,
            "bill": None,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": brief(body),
        }
        if path not in RENDER:
            known = path == "/v1/messages/count_tokens"
            self.server.note({**note, "status": 200 if known else 404})
            answer = {"input_tokens": 100} if known else {"error": {"message": f"no such route: {path}"}}
            self.answer(200 if known else 404, json.dumps(answer).encode())
            return
        fault = self.server.tasks.fault(asked)
        if fault and fault.isdigit():
            self.server.note({**note, "status": int(fault)})
            self.answer(int(fault), json.dumps(error(int(fault), path)).encode())
            return
        bill = self.server.tasks.bill(asked)
        result = RENDER[path](body, next_turn(asked), bill)
        self.server.note({**note, "cut": fault == "cut", "bill": bill})
        if isinstance(result, dict):
            self.answer(200, json.dumps(result).encode())
            return
        cut = fault == "cut"
        self.stream(result[:2] if cut else result, end=not cut)

    do_GET = do_DELETE = do_POST


def main():
    server = Provider(sys.argv[1], AgentHandler)
    server.tasks = Tasks()
    print(f"listening on 127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
