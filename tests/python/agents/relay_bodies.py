"""Reports events that no reader should have to bear, and tells the status of each, as one JSON object."""

import json
import time
import urllib.error
import urllib.request

RUN = json.load(urllib.request.urlopen("http://localhost:8080/health"))["runId"]
URL = f"http://localhost:8080/api/v1/sandboxes/{RUN}/events"


def send(body):
    # Ten in a second, which is the limit of the sidecar.
    time.sleep(0.1)
    request = urllib.request.Request(URL, body, {"content-type": "application/json"})
    try:
        return urllib.request.urlopen(request, timeout=30).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        # An answer that comes before the whole body is read can end the connection.
        return 0


def event(data, kind="agent.progress"):
    return b'{"event_type":"%s","event_data":%s}' % (kind.encode(), data)


def last_or_429(statuses):
    return 429 if 429 in statuses else statuses[-1]


def nested(depth, open_, close):
    return b"1".join([open_ * depth, close * depth])


told = {
    "plain": send(event(b'{"text":"\\ud83d\\ude00 \\u202e\\u001b[2J"}')),
    "list": send(event(b"[]")),
    "text": send(event(b'"x"')),
    "null": send(event(b"null")),
    "depth 29": send(event(nested(29, b'{"a":', b"}"))),
    "depth 40": send(event(nested(40, b'{"a":', b"}"))),
    "objects 100000": send(event(nested(100_000, b'{"a":', b"}"))),
    "open only": send(event(b"[" * 500_000)),
    "members": send(event(b"{%s}" % b",".join(b'"%d":1' % n for n in range(1_100)))),
    "long name": send(event(b'{"%s":1}' % (b"n" * 1_000))),
    "nul": send(event(b'{"text":"a\\u0000b"}')),
    "nul in a name": send(event(b'{"a\\u0000b":1}')),
    "raw nul": send(event(b'{"text":"a\0b"}')),
    "high surrogate": send(event(b'{"text":"\\ud800"}')),
    "low surrogate": send(event(b'{"text":"\\udc00x"}')),
    "surrogates turned": send(event(b'{"text":"\\ude00\\ud83d"}')),
    "not UTF-8": send(event(b'{"text":"\xff\xfe"}')),
    "encoded surrogate": send(event(b'{"text":"\xed\xa0\x80"}')),
    "large data": send(event(b'{"text":"%s"}' % (b"x" * 100_001))),
    "escapes": send(event(b'{"text":"%s"}' % (b"\\u0061" * 20_000))),
    "large body": send(event(b'{"text":"%s"}' % (b"x" * (2 << 20)))),
    "huge number": send(event(b'{"n":%s}' % (b"9" * 5_000))),
    "exponent": send(event(b'{"n":1e999999999}')),
    "not a number": send(event(b'{"n":NaN}')),
    "twice": send(b'{"event_type":"agent.progress","event_type":"run.state_changed","event_data":{}}'),
    "another member": send(b'{"event_type":"agent.progress","event_data":{},"source":"system"}'),
    "long type": send(event(b"{}", "agent." + "x" * 100)),
    "type of the system": send(event(b"{}", "approval.decided")),
    "type with a NUL": send(event(b"{}", "agent.\\u0000")),
    "type with a dot": send(event(b"{}", "agent../../x")),
    "empty": send(b""),
    "two documents": send(event(b"{}") + event(b"{}")),
    "diff of 900 kB": send(event(b'{"file_path":"a","full_diff":"%s"}' % (b"+x\\n" * 220_000), "agent.file_edited")),
    "diff with surrogates": send(event(b'{"file_path":"\\ud800","full_diff":"\\udfff"}', "agent.file_edited")),
    "diff of a list": send(event(b'{"file_path":["a"],"full_diff":[[[[1]]]]}', "agent.file_edited")),
    "diff beyond the bytes of a minute": last_or_429(
        [send(event(b'{"file_path":"a","full_diff":"%s"}' % (b"+" * 900_000), "agent.file_edited")) for _ in range(4)]
    ),
}
print(json.dumps(told))
