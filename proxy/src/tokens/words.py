"""Makes and checks words.txt: the words whose tokens are known whatever ASCII stands around them. No network.

usage: .cache/venv/bin/python proxy/src/tokens/words.py make FOLDER...   counts the words of the texts below, writes it
       .cache/venv/bin/python proxy/src/tokens/words.py check            exit 1 unless each line holds

A line is a word and its class, a digit of CLASSES. It holds if no tokenizer makes more tokens of it, with any ASCII
byte that is no letter in front (that byte is one token more) and any contraction behind (each byte one token more).
"""

import collections
import importlib.util
import json
import multiprocessing
import os
import pathlib
import re
import sys

LITELLM = pathlib.Path(importlib.util.find_spec("litellm").origin).parent
FILES = LITELLM / "litellm_core_utils" / "tokenizers"
os.environ["TIKTOKEN_CACHE_DIR"] = str(FILES)

import tiktoken  # noqa: E402
import tokenizers  # noqa: E402

LIST = pathlib.Path(__file__).with_name("words.txt")
MAX_WORDS, MAX_BYTES, MAX_LETTERS = 8192, 64 * 1024, 16

# Tokens at most: after anything but a space, and with the space in front of it.
CLASSES = {"1": (1, 1), "2": (2, 1), "3": (2, 2), "4": (3, 3)}

FRONTS = [chr(c) for c in range(128) if not chr(c).isalpha()]
# o200k_base takes a contraction into the word, in any case; the long s folds to s.
SUFFIXES = [""] + sorted(
    {"'" + a + b for s in ("s", "t", "re", "ve", "m", "ll", "d") for a in {s[0], s[0].upper()} for b in {s[1:], s[1:].upper()}}
) + ["'\u017f"]
# The counter takes no word behind an apostrophe and one of these: cl100k_base cuts a contraction off there.
CONTRACTIONS = "sdmtlvrSDMTLVR"
# A JSON string inside a JSON string: its escape is text in the one reading, and a control character in the other.
TWICE = "ntr"

# Of each kind of file at most so many bytes, and its share of what agents send.
KIND_BYTES = 12_000_000
KINDS = {".md": 40, ".rst": 5, ".py": 20, ".rs": 10, ".js": 7, ".ts": 10, ".json": 5, ".sh": 2, ".go": 1}
CANDIDATES = 24_000


def load():
    claude = tokenizers.Tokenizer.from_file(str(FILES / "anthropic_tokenizer.json"))
    return [tiktoken.get_encoding("cl100k_base"), tiktoken.get_encoding("o200k_base"), claude]


def counters():
    cl100k, o200k, claude = load()

    def hugging(texts):
        return [len(e.ids) for e in claude.encode_batch(texts, add_special_tokens=False)]

    return [
        lambda texts: [len(cl100k.encode_ordinary(t)) for t in texts],
        lambda texts: [len(o200k.encode_ordinary(t)) for t in texts],
        hugging,
    ]


COUNTERS = None


def costs(word):
    """The tokens of the word at most, after anything but a space, and with a space in front."""
    global COUNTERS
    COUNTERS = COUNTERS or counters()
    alone, spaced = [], []  # text, what is allowed for what is not the word
    for suffix in SUFFIXES:
        extra = len(suffix.encode())
        alone.append((word + suffix, extra))
        spaced.append((" " + word + suffix, extra))
        for front in FRONTS:
            if not (front == "'" and word[0] in CONTRACTIONS):
                alone.append((front + word + suffix, extra + 1))
        for letter in TWICE:
            alone.append((letter + word + suffix, extra + 2))
            alone.append(("\\" + letter + word + suffix, extra + 3))
    found = []
    for cases in (alone, spaced):
        # The Claude tokenizer's expression makes a contraction a piece of its own, and joins only a space to a word.
        few = [case for case in cases if "'" not in case[0][1:] or case[0][0] in " '"]
        worst = 0
        for index, count in enumerate(COUNTERS):
            chosen = few if index == 2 else cases
            texts = [text for text, _ in chosen]
            worst = max(worst, max(n - allowed for n, (_, allowed) in zip(count(texts), chosen)))
        found.append(worst)
    return tuple(found)


def class_of(cost):
    fitting = [name for name, most in CLASSES.items() if cost[0] <= most[0] and cost[1] <= most[1]]
    return fitting[0] if fitting else None


def all_costs(words):
    with multiprocessing.Pool() as pool:
        return dict(zip(words, pool.map(costs, words, chunksize=64)))


def check_spaces():
    """The rule for runs of spaces in tokens.rs. Of the merges only those are used that come before the first one
    that joins a space and another white-space byte: then each run is merged for itself, whatever stands beside it, and
    later merges only make fewer."""
    white = set(b"\t\n\x0b\x0c\r ")
    for c in (0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000):
        white |= set(chr(c).encode())
    cl100k, o200k, _ = load()
    merges = json.loads((FILES / "anthropic_tokenizer.json").read_text())["model"]["merges"]
    # \u0120 is a space there, and other white space has letters above too: see bytes_to_unicode of GPT-2.
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [b for b in range(256) if b not in plain]
    letters = {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(other)}
    claude = {bytes(letters[c] for c in m.replace(" ", "")): i for i, m in enumerate(merges)}
    for ranks in (cl100k._mergeable_ranks, o200k._mergeable_ranks, claude):
        mixed = min(r for t, r in ranks.items() if 32 in t and len(set(t)) > 1 and set(t) <= white)
        pure = {len(t): r for t, r in ranks.items() if len(t) > 1 and set(t) == {32} and r < mixed}
        for n in [*range(1, 257), *range(1000, 1017)]:
            # The last one may go with what follows.
            most = max(merged_run(n, pure), merged_run(n - 1, pure) + 1)
            assert most <= n // 8 + 1 + (n % 8 >= 2) + (n % 8 >= 6), (n, most)


def merged_run(n, ranks):
    """The pieces that n equal bytes end in: the first pair of the lowest rank is merged, again and again."""
    pieces = [1] * n
    while True:
        pairs = [(ranks[a + b], i) for i, (a, b) in enumerate(zip(pieces, pieces[1:])) if a + b in ranks]
        if not pairs:
            return len(pieces)
        at = min(pairs)[1]
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]


def count_words(folders):
    files = collections.defaultdict(list)
    for folder in folders:
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.suffix in KINDS and ".min." not in path.name and path.is_file() and 500 < path.stat().st_size < 200_000:
                files[path.suffix].append(path)
    words = collections.Counter()
    for kind, paths in sorted(files.items()):
        found, size = collections.Counter(), 0
        # Every so manyth file, so that no one folder is all of it.
        step = max(1, sum(p.stat().st_size for p in paths) // KIND_BYTES)
        for path in paths[::step]:
            text = path.read_text(errors="replace")
            size += len(text)
            found.update(re.findall(r"(?<![^\x00-\x7f])(?<![A-Za-z])( ?[A-Za-z]+)(?![^\x00-\x7f])", text))
        print(f"{kind}: {len(paths[::step])} of {len(paths)} files, {size} characters", file=sys.stderr)
        for word, times in found.items():
            words[word] += times / size * KINDS[kind]
    return words


def make(folders):
    counted = count_words(folders)
    plain, spaced = collections.Counter(), collections.Counter()
    for word, times in counted.items():
        (spaced if word[0] == " " else plain)[word.strip()] += times
    words = [w for w in plain | spaced if len(w) <= MAX_LETTERS]
    words.sort(key=lambda w: (-(plain[w] + spaced[w]) * len(w), w))
    ranked = []
    for word, cost in all_costs(words[:CANDIDATES]).items():
        name = class_of(cost)
        if name is None:
            continue
        most = CLASSES[name]
        saved = plain[word] * (len(word) - most[0]) + spaced[word] * (len(word) + 1 - most[1])
        if saved > 0 and most[0] <= len(word) and most[1] <= len(word) + 1:
            ranked.append((-saved / (len(word) + 2), word, name, saved))
    ranked.sort()
    lines, size = [], 0
    for _, word, name, _ in ranked:
        if len(lines) < MAX_WORDS and size + len(word) + 2 <= MAX_BYTES:
            lines.append(word + name)
            size += len(word) + 2
    lines.sort(key=lambda line: (len(line), line))
    LIST.write_bytes("".join(line + "\n" for line in lines).encode())
    print(f"{len(lines)} words, {size} bytes, by class {dict(collections.Counter(l[-1] for l in lines))}", file=sys.stderr)


def check():
    lines = LIST.read_text().splitlines()
    assert lines == sorted(set(lines), key=lambda line: (len(line), line)), "not sorted"
    words = {line[:-1]: line[-1] for line in lines}
    assert len(words) == len(lines), "a word twice"
    assert all(word.isascii() and word.isalpha() and len(word) <= MAX_LETTERS for word in words), "no word"
    wrong = []
    for word, cost in all_costs(list(words)).items():
        most = CLASSES[words[word]]
        if cost[0] > most[0] or cost[1] > most[1] or most[0] > len(word):
            wrong.append((word, words[word], cost))
    return wrong


if __name__ == "__main__":
    check_spaces()
    if sys.argv[1:2] == ["make"] and sys.argv[2:]:
        make(sys.argv[2:])
    elif sys.argv[1:] != ["check"]:
        sys.exit(__doc__)
    wrong = check()
    print(f"{len(wrong)} lines do not hold: {wrong[:20]}" if wrong else "every line holds")
    sys.exit(bool(wrong))
