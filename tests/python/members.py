"""Each documented member of the APIs, one request each: through the sidecar, and to LiteLLM alone.

usage: members.py THROUGH DIRECT KEY RECORD      (base URLs without /v1, LiteLLM's key, the record of provider.py)

The members are read from the types of the pinned SDKs: a new version of them that has a new member fails until SAMPLES
has a value for it. What the provider received and what the client got must be the same both ways, but for what INTENDED
names. Prints `ok ROUTE MEMBER` for each and `N members passed`, or every other difference, and exits with 1.
"""

import json
import re
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

import anthropic
import httpx
import openai
from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_create_params as beta_message_create_params
from member_samples import INTENDED, MARK, SAMPLES, VARIANTS
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params

ROUTES = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "embeddings": "/v1/embeddings",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "count_tokens": "/v1/messages/count_tokens",
}

TYPES = {
    "chat": [chat_create_params.CompletionCreateParamsBase],
    "completions": [completion_create_params.CompletionCreateParamsBase],
    "embeddings": [embedding_create_params.EmbeddingCreateParams],
    "responses": [response_create_params.ResponseCreateParamsBase],
    "messages": [message_create_params.MessageCreateParamsBase, beta_message_create_params.MessageCreateParamsBase],
    "count_tokens": [message_count_tokens_params.MessageCountTokensParams],
}

# Values that the SDK sends as headers.
HEADERS = {("messages", "betas")}


def base(route, mark):
    """The smallest body of a route, with `mark` to find it by at the provider."""
    asked = [{"role": "user", "content": mark}]
    return {
        "chat": {"model": "provider-gpt", "messages": asked},
        "completions": {"model": "provider-completion", "prompt": mark},
        "embeddings": {"model": "provider-embedding", "input": mark},
        "responses": {"model": "provider-gpt", "input": mark},
        "messages": {"model": "provider-claude", "max_tokens": 2048, "messages": asked},
        "count_tokens": {"model": "provider-claude", "messages": asked},
    }[route]


def members(route):
    names = {name for kind in TYPES[route] for name in kind.__annotations__}
    return sorted(name for name in names if (route, name) not in HEADERS)


def sample(route, member, mark):
    value = SAMPLES[route].get(member) if member in SAMPLES[route] else VARIANTS[route][member]
    part = value if member in VARIANTS[route] or isinstance(value, dict) and member in value else {member: value}
    part = json.loads(json.dumps(part).replace(json.dumps(MARK), json.dumps(mark)))
    return {**base(route, mark), **part}


# The account of the sidecar.
ACCOUNT = "acct-1"


class Way:
    """One way to LiteLLM."""

    def __init__(self, name, url, key):
        self.name = name
        # LiteLLM closes a connection after 5 s without a call, also in the moment in which the next one is sent.
        self.client = httpx.Client(
            base_url=url,
            headers={"authorization": f"Bearer {key}", "anthropic-version": "2023-06-01", "connection": "close"},
            timeout=240,
        )

    def ask(self, route, member):
        mark = f"mark {uuid.uuid4().hex}"
        body = sample(route, member, mark) if member != "model" else base(route, mark)
        answer = self.client.post(ROUTES[route], json=body)
        return mark, answer


def plain(text, mark):
    """Removes the values that differ in each call."""
    text = text.replace(mark, MARK)
    text = re.sub(r'"(id|item_id|response_id|litellm_call_id)": ?"[^"]*"', r'"\1": "ID"', text)
    return re.sub(r'"(created|created_at)": ?\d+', r'"\1": 0', text)


def shape(text):
    """A JSON answer without its order, a stream as it is."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return text


def received(record, mark):
    with open(record) as lines:
        bodies = [json.loads(line)["body"] for line in lines if mark in line]
    for body in bodies:
        # The sidecar names the account that pays, and LiteLLM tells it the provider.
        if body.get("user") == ACCOUNT:
            del body["user"]
        if (body.get("metadata") or {}).get("user_id") == ACCOUNT:
            del body["metadata"]
    return [plain(json.dumps(body, sort_keys=True), mark) for body in bodies]


def compare(route, member, through, direct, record):
    """`same`, `dropped`, `refused WORD`, or the difference."""
    mark, answer = through.ask(route, member)
    word = answer.headers.get("x-sluice-reason")
    if word:
        return f"refused {word}"
    direct_mark, direct_answer = direct.ask(route, member)
    got, got_direct = received(record, mark), received(record, direct_mark)
    texts = [shape(plain(a.text, m)) for a, m in ((answer, mark), (direct_answer, direct_mark))]
    dropped = answer.headers.get("x-sluice-dropped", "").split(", ")
    if answer.status_code == 200 and direct_answer.status_code >= 400 and member in dropped:
        return f"dropped, and LiteLLM alone answers {direct_answer.status_code}"
    bodies = [json.loads(g) for g in (got[0], got_direct[0])] if got and got_direct else [{}, {}]
    if bodies[0].get("stream_options") == {"include_usage": True} and "stream_options" not in bodies[1]:
        del bodies[0]["stream_options"]
        if bodies[0] == bodies[1] and texts[0] == texts[1].replace(ZERO, ""):
            return "asked for its usage"
    if answer.status_code != direct_answer.status_code or texts[0] != texts[1]:
        statuses = [answer.status_code, direct_answer.status_code]
        return f"the answer is {statuses[0]} {texts[0][:700]}\n    and directly {statuses[1]} {texts[1][:700]}"
    if got == got_direct:
        return "same" if answer.status_code == 200 and got else f"the same {answer.status_code}"
    bodies[1].pop(member, None)
    if bodies[0] == bodies[1] and bodies[0]:
        return "dropped" if member in dropped or member in SILENT else "dropped without a word"
    return f"the provider got {got}\n    and directly {got_direct}"


# Members that LiteLLM adds to the events of a completion whose client did not ask for its usage.
ZERO = ',"usage":{"completion_tokens":0,"prompt_tokens":0,"total_tokens":0}'
# Dropped and not named to the client: they change no answer.
SILENT = {"metadata", "user", "safety_identifier"}


def main(through, direct, key, record):
    through, direct = Way("through", through, "none"), Way("direct", direct, key)
    todo, faults = [], []
    for route in ROUTES:
        names = members(route)
        new = [name for name in names if name not in SAMPLES[route] and name != "model"]
        faults += [f"{route} {name}: SAMPLES has no value for this new member" for name in new]
        todo += [(route, name) for name in ["model", *SAMPLES[route], *VARIANTS[route]]]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda one: compare(*one, through, direct, record), todo))
    for (route, name), seen in zip(todo, found):
        intended, why = INTENDED.get((route, name), ("same", None))
        if seen == intended:
            print(f"ok {route} {name}: {seen}{f' ({why})' if why else ''}")
        else:
            faults.append(f"{route} {name}: intended is {intended!r}, but it is {seen}")
    faults += [
        f"{route} {name}: INTENDED names what is no member" for route, name in INTENDED if (route, name) not in todo
    ]
    if faults:
        print("\n".join(faults), file=sys.stderr)
        print(
            f"openai {openai.__version__}, anthropic {anthropic.__version__}: {len(faults)} differences",
            file=sys.stderr,
        )
        sys.exit(1)
    print(f"{len(todo)} members passed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
