"""Runs named cases of an SDK program: `ok NAME` for each, `N cases passed` at the end, exit 1 at the first failure."""

import os
import sys

CASES = {}

# Headers that the sidecar may send back; the rest is the server's framing.
ALLOWED_HEADERS = {
    "content-type",
    "content-length",
    "retry-after",
    "allow",
    "x-litellm-call-id",
    "x-litellm-response-cost",
    "x-sluice-reason",
    "x-sluice-dropped",
    "x-request-id",
    "request-id",
    "x-should-retry",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "date",
}

# The answer of each model of litellm.yaml.
TEXTS = {
    "gpt-4o-mini": "Hello from the mock model.",
    "gpt-4o": "Hello from the larger mock model.",
    "claude-haiku-4-5": "Hello from the mock Claude.",
}


def case(function):
    CASES[function.__name__] = function
    return function


def setting(name, default):
    return os.environ.get(name, default)


def text_of(model):
    """The expected text of `model`; SDK_TEXT overrides, for an upstream that is not our LiteLLM."""
    return setting("SDK_TEXT", TEXTS.get(model, "Hello from the provider."))


def refused(error, call):
    """Calls, and returns the exception of type `error` that must come."""
    try:
        answer = call()
    except error as refusal:
        return refusal
    raise AssertionError(f"expected {error.__name__}, got an answer: {answer!r}"[:500])


def main():
    names = sys.argv[1:]
    unknown = [name for name in names if name not in CASES]
    if unknown or not names:
        print(f"unknown cases {unknown}; there are: {' '.join(CASES)}", file=sys.stderr)
        sys.exit(2)
    for name in names:
        try:
            CASES[name]()
        except BaseException:
            print(f"FAILED {name}", flush=True)
            raise
        print(f"ok {name}", flush=True)
    print(f"{len(names)} cases passed", flush=True)
