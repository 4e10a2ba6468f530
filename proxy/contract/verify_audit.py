#!/usr/bin/env python3
"""Verifies an audit file of Sluice: verify_audit.py FILE [--key HEX|FILE]... [--against SEQ:HASH]...

A key FILE has one public key on each line, as sluice audit keys prints them.
Exit 0: complete. 1: tampered, with the first bad line. 3: incomplete, with what is missing. 2: usage. 4: unreadable, or
the control log, which is not the audit file of a run.
Without --key no signature is checked. It needs Python alone, and shares no code with the program that writes the files.
"""
import hashlib, json, re, sys
from decimal import ROUND_HALF_EVEN, Decimal, getcontext

getcontext().prec = 200
LINE_MAX = 2**20  # bytes of a line with its newline: a longer one is not a record
USAGE = ["cache_write", "cached_input", "input", "output", "reasoning", "total"]
TOKENS = " ".join(f"usage.{name}:i?" for name in USAGE)
CHANGED = "{0}.deadline_s:i? {0}.decision:s? {0}.hold_id:s? {0}.max_calls:i? {0}.max_cost_usd:s? {0}.max_tokens:i? "
CHANGED += "{0}.messages:d? {0}.open_calls:i? {0}.paused:b? {0}.stopped:b? "
COMMON = "attempt:u kind:s prev:h run_id:s seq:i ts:t v:u"
KINDS = {  # NAME:TYPE, with ? if it may be null, and ! if only with its parent; types stand below, =A|B is one of these words
    "open": "billing_account_id:s boot_id:s build:s graph_id:s limits:o limits.deadline_s:i? limits.max_body:i "
    "limits.max_calls:i? limits.max_concurrency:i limits.max_cost_usd:s? limits.max_memory:i? limits.max_tokens:i? "
    "limits.rate_per_s:i? pid:u policy:s proxy_version:s sync:s upstream:s",
    "intent": "bound:i? call:i call_id:s injected_message_ids:l? method:s model:s? path:s peer:o peer.pid:p? peer.uid:u "
    "req_bytes:i reserved_strict:b? reserved_tokens:i? reserved_usd:s? "
    "stream:b stripped:l",
    "outcome": "account:s? budget_limit_usd:s? budget_of:s? budget_spent_usd:s? cache_hit:b? call:i call_id:s "
    "connect_detail:s? connect_error:s? cost_source:=header|chunk|none cost_usd:m? drained:b? "
    "end:=complete|cut_by_client|cut_by_upstream|cut_by_limit litellm_call_id:s? model:s? model_served:s? "
    "null_reason:=not_sent|no_usage|no_cost|zero_cost|upstream_error|cut|unreadable|not_billed? resp_bytes:i "
    "response_id:s? result:=ok|upstream_error|timeout|client_abort|deadline|interrupted|unknown status:w? timing_us:o "
    "timing_us.connect:i? timing_us.first_token:i? timing_us.longest_gap:i? timing_us.own:i timing_us.queue:i "
    "timing_us.total:i timing_us.ttfb:i? usage:o? " + TOKENS,
    "refused": "account:s? method:s model:s? param:s? path:s reason:s status:w tool:s?",
    "recovered": "bytes:i offset:i open_calls:l sha256:s",
    "epoch": "boot_id:s build:s pid:u policy:s sync:s upstream:s",
    "control": "by:s? from:o reason:s? to:o what:s " + CHANGED.format("from") + CHANGED.format("to"),
    "held": "asked:s? cap:s hold_id:s max_wait_s:i",
    "released": "by:s decision:=approve|deny|draining|interrupted|later|left|resume|timeout hold_id:s waited_ms:i",
    "close": "calls:i certificate:o? certificate.key_id:s! certificate.public_key:s! certificate.signature:s! cost_usd:s "
    "head:h key_id:s? reason:s refused:i relay:o? relay.refused:i! relay.requests:i! signature:s? unknown:i usage:o " + TOKENS,
}
# The members of each line of the control log: the actions of people and tokens. It has no record of a run.
CONTROL = "after before key_id object operation owner prev principal reason request result role seq signature source ts v"
CONTROL += " way"


def is_amount(text):
    """A number without a sign, with an exponent and digits within the bounds of the writer."""
    shape = type(text) is str and re.fullmatch(r"[0-9]+(\.[0-9]+)?([eE][+-]?(?=[0-9])0*([0-9]{0,2}))?", text)
    if not shape or int(shape[3] or 0) > 40:
        return False
    number = Decimal(text)
    _, digits, exponent = number.normalize().as_tuple()  # it rounds
    return number.normalize() == number and len(digits) + max(0, exponent) <= 40 and -exponent <= 80


TYPES = {
    "b": lambda x: type(x) is bool, "i": lambda x: type(x) is int and x >= 0, "s": lambda x: type(x) is str,
    "l": lambda x: type(x) is list and all(type(item) is str for item in x), "o": lambda x: type(x) is dict,
    "d": lambda x: type(x) is list and all(
        type(item) is dict and type(item.get("message_id")) is str and type(item.get("sha256")) is str for item in x),
    "h": lambda x: type(x) is str and re.fullmatch("[0-9a-f]{64}", x),
    "m": is_amount, "w": lambda x: TYPES["i"](x) and x < 2**16, "u": lambda x: TYPES["i"](x) and x < 2**32,
    "p": lambda x: TYPES["i"](x) and x < 2**31,
    "t": lambda x: type(x) is str and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z", x),
}


class Bad(Exception):
    """The first bad line, from 1, and what is wrong with it."""


def sha(data):
    return hashlib.sha256(data).hexdigest()


def canonical(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def parse(text):
    """One object in its only spelling: sorted ASCII names, whole numbers below 2^53, no blanks. Else None."""
    def pairs(members):
        if not all(re.fullmatch(r"[ !#-\[\]-~]*", name) for name, _ in members):
            raise ValueError
        return dict(members)

    def whole(digits):
        if len(digits) > 17 or abs(int(digits)) >= 2**53:
            raise ValueError
        return int(digits)

    def height(value):
        inner = value.values() if type(value) is dict else value if type(value) is list else ()
        return max((1 + height(item) for item in inner), default=0)

    try:
        value = json.loads(text.decode(), object_pairs_hook=pairs, parse_int=whole, parse_float=whole, parse_constant=whole)
        return value if type(value) is dict and height(value) <= 32 and canonical(value) == text else None
    except (ValueError, RecursionError):
        return None


def check_members(number, line):
    kind = line.get("kind")
    for field in f"{COMMON} {KINDS.get(kind, '') if type(kind) is str else ''}".split():
        (path, want), value, parent = field.split(":"), line, line
        for name in path.split("."):
            parent, value = value, value.get(name) if value is not None else None
        fits = value in want[1:].strip("?").split("|") if want[0] == "=" else TYPES[want[0]](value)
        if not fits and not (value is None and (want[-1] == "?" or want[-1] == "!" and parent is None)):
            raise Bad(number, f"members: {path} is {value!r}")
    if line["v"] != 1:
        raise Bad(number, f"schema: expected 1, found {line['v']}")


def ed25519(public, message, signature):
    """RFC 8032 with plain numbers: slow, and good enough for one signature."""
    p, order = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
    d = -121665 * pow(121666, -1, p) % p

    def point(data):
        y, sign = int.from_bytes(data, "little") % 2**255, data[31] >> 7
        square = (y * y - 1) * pow(d * y * y + 1, -1, p) % p
        x = pow(square, (p + 3) // 8, p)
        x = x if x * x % p == square else x * pow(2, (p - 1) // 4, p) % p
        if y >= p or x * x % p != square or (x == 0 and sign):
            raise ValueError("no point of the curve")
        return (x if x % 2 == sign else p - x, y)

    def add(a, b):
        k = d * a[0] * b[0] * a[1] * b[1] % p
        x, y = (a[0] * b[1] + b[0] * a[1]) * pow(1 + k, -1, p), (a[1] * b[1] + a[0] * b[0]) * pow(1 - k, -1, p)
        return (x % p, y % p)

    def times(n, a):
        total = (0, 1)
        while n:
            total, a, n = add(total, a) if n % 2 else total, add(a, a), n // 2
        return total

    try:
        key, r, s = point(public), point(signature[:32]), int.from_bytes(signature[32:], "little")
    except ValueError:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % order
    base = point((4 * pow(5, -1, p) % p).to_bytes(32, "little"))
    return s < order and times(s, base) == add(r, times(k, key))


def head_of(close):
    """The hash of a close without the two members that depend on it."""
    return sha(canonical({name: value for name, value in close.items() if name not in ("head", "signature")}))


def seal_of(number, close, keys):
    head, id, signature = close["head"], close.get("key_id"), close.get("signature")
    if head_of(close) != head:
        raise Bad(number, f"head: expected {head_of(close)}, found {head}")
    if (id, signature) != (None, None) and not re.fullmatch("[0-9a-f]{32} [0-9a-f]{128}", f"{id} {signature}"):
        raise Bad(number, "signature: not one, or without its key")
    certificate, known = close.get("certificate"), {sha(key)[:32]: key for key in keys}
    if certificate is not None:
        certifier, public, proof = (certificate.get(name) or "" for name in ("key_id", "public_key", "signature"))
        shape = re.fullmatch("[0-9a-f]{32} [0-9a-f]{64} [0-9a-f]{128}", f"{certifier} {public} {proof}")
        if not shape or sha(bytes.fromhex(public))[:32] != id:
            raise Bad(number, "signature: the certificate is not one of the key that signed")
    if not keys:
        return f"signature of {certifier if certificate else id} not checked" if id else "not signed"
    expected = f"signature: expected one over the head by {' or '.join(known)}"
    key, vouching = known.get(id), id
    if certificate and not key:
        # A key of this run and attempt alone, for which a trusted key vouches.
        statement = f"sluice audit run key v1\n{close['attempt']}\n{close['run_id']}\n{public}"
        if certifier not in known or not ed25519(known[certifier], statement.encode(), bytes.fromhex(proof)):
            raise Bad(number, f"{expected}, or by a key that it has certified for this run and attempt")
        key, vouching = bytes.fromhex(public), certifier
    if not key or not ed25519(key, f"sluice audit head v1\n{head}".encode(), bytes.fromhex(signature)):
        raise Bad(number, expected)
    return f"signed by {vouching}"


def is_vouched(raw, after):
    """Whether the next line states this one's hash, or a close its own; None if nobody can say."""
    line, following = parse(raw[:-1]), parse(after[:-1])
    if line and line.get("kind") == "close":
        return line.get("head") == head_of(line)
    return following and following.get("prev") == sha(raw)


def verify(file, keys=(), seen=()):
    """Whether a file is complete, and a report. Raises Bad if it was altered. Holds one line at a time."""
    lines, count, torn = iter(lambda: file.readline(LINE_MAX + 1), b""), 0, b""
    first, close, seal, prev, offset = None, None, "not signed", "0" * 64, 0
    calls, is_open, past, refused, recovered = {}, {}, set(), 0, 0
    holds, lost = [], []
    usage, nanos, unknown = dict.fromkeys(USAGE), 0, 0
    for seq, raw in enumerate(lines):
        number = seq + 1
        if len(raw) > LINE_MAX:
            raise Bad(number, f"length: more than {LINE_MAX} bytes")
        if not raw.endswith(b"\n"):
            torn = raw
            break
        count, line = number, parse(raw[:-1])
        if line is None:
            raise Bad(number, "canonical: not one object in canonical form")
        check_members(number, line)
        kind, first = line["kind"], first or line
        if line["seq"] != seq:
            raise Bad(number, f"seq: expected {seq}, found {line['seq']}")
        if line["prev"] != prev:
            # Two lines disagree: the later one was altered, if what follows does not vouch for it either.
            if seq == 0 or is_vouched(raw, next(lines, b"")) is False:
                raise Bad(number, f"prev: expected {prev}, found {line['prev']}")
            raise Bad(seq, f"hash: expected {line['prev']}, found {prev}")
        if (kind == "open") != (seq == 0) or close or (kind != "close" and "head" in line):
            raise Bad(number, f"order: {kind} cannot stand here")
        if (line["run_id"], line["attempt"]) != (first["run_id"], first["attempt"]):
            raise Bad(number, "run: another than in the first line")
        id = line.get("call_id")
        if kind == "intent":
            if line["call"] != len(calls) + 1 or id in calls:
                raise Bad(number, f"call: {line['call']} with id {id} is not the next")
            calls[id] = is_open[id] = line["call"]
        elif kind == "outcome":
            if is_open.pop(id, None) != line["call"] or id in past:
                raise Bad(number, f"call: {line['call']} with id {id} is not open")
            if line.get("cost_usd") is not None:
                cost = Decimal(line["cost_usd"]).scaleb(9).to_integral_value(ROUND_HALF_EVEN)
                nanos += min(int(cost), 2**63 - 1)  # the writer counts no more of one call
            elif line.get("null_reason") not in ("not_sent", "not_billed"):
                unknown += 1
            for name in USAGE:
                if (line.get("usage") or {}).get(name) is not None:
                    usage[name] = min((usage[name] or 0) + line["usage"][name], 2**53 - 1)
        elif kind == "refused":
            refused += 1
        elif kind == "held":
            holds.append(line["hold_id"])
        elif kind == "released":
            if line["hold_id"] not in holds:
                raise Bad(number, f"hold: {line['hold_id']} does not wait")
            holds.remove(line["hold_id"])
        elif kind == "recovered":
            if line["open_calls"] != list(is_open) or (line["offset"] != offset and (line["offset"], seq) != (0, 1)):
                raise Bad(number, "call: other calls were open, or it was cut elsewhere")
            recovered += 1
        elif kind == "close":
            seal = seal_of(number, line, keys)
            sums = [len(calls), unknown + len(is_open), format(Decimal(nanos).scaleb(-9).normalize(), "f"), usage]
            stated = {name: line["usage"].get(name) for name in USAGE}
            if [line["calls"], line["unknown"], line["cost_usd"], stated] != sums or line["refused"] < refused:
                raise Bad(number, f"totals: expected {sums}, and refused {refused} or more")
            close = line
        if kind in ("recovered", "epoch"):
            past.update(calls)
            lost, holds = lost + sorted(holds), []
        prev, offset = sha(raw), offset + len(raw)
        for at, head in seen:
            if at == seq and head != prev:
                raise Bad(number, f"witness: expected {head}, found {prev}")
    if any(at >= count for at, _ in seen):
        raise Bad(count + 1, "witness: a line that was seen is gone")
    report = [f"{count} lines, {len(calls)} calls, {seal}"]
    report += ["no close"] * (not close) + [f"{len(torn)} bytes of a torn line"] * bool(torn)
    report += [f"recovered {recovered} times"] * bool(recovered) + ["open calls: " + " ".join(is_open)] * bool(is_open)
    lost += sorted(holds)
    report += ["open holds: " + " ".join(lost)] * bool(lost)
    return len(report) == 1, ", ".join(report)


def is_control_log(file):
    """Whether each line has the members of the control log. One record of a run makes it a file of that run."""
    if not file.seekable():
        return False
    file.seek(0)
    count = 0
    for raw in iter(lambda: file.readline(LINE_MAX + 1), b""):
        if not raw.endswith(b"\n"):
            return count > 0 and len(raw) <= LINE_MAX
        try:
            line = json.loads(raw.decode())
        except (ValueError, RecursionError):
            return False
        if type(line) is not dict or sorted(line) != CONTROL.split():
            return False
        count += 1
    return count > 0


def main(args):
    keys, seen, paths = [], [], []
    try:
        while args:
            arg = args.pop(0)
            if arg == "--key":
                text = args.pop(0)
                lines = (text if re.fullmatch("[0-9a-f]{64}", text) else open(text).read()).split()
                if not lines:
                    raise ValueError  # without a key, no signature would be checked
                keys += [bytes.fromhex(line) for line in lines]
            elif arg == "--against":
                seq, head = args.pop(0).split(":")
                seen.append((int(seq), head))
            else:
                paths.append(arg)
        (path,) = paths
        if any(len(key) != 32 for key in keys):
            raise ValueError
    except (ValueError, IndexError, OSError):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        with open(path, "rb") as file:
            try:
                complete, report = verify(file, keys, seen)
                code, said = 0 if complete else 3, f"{'complete' if complete else 'incomplete'}: {report}"
            except Bad as bad:
                code, said = 1, f"tampered: line {bad.args[0]}: {bad.args[1]}"
                # The auditor who names a line that was seen asks about the file of a run.
                if not seen and is_control_log(file):
                    code, said = 4, "not an audit file: this is the control log; sluice audit verify control checks it"
    except OSError as error:
        print(f"cannot read {path}: {error}", file=sys.stderr)
        return 4
    # The words of a file may be anybody's, and must not speak to a terminal.
    print("".join(c if c.isprintable() else " " for c in said))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
