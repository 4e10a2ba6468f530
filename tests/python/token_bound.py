"""Checks bounds of tokens against the tokenizers that LiteLLM counts with. Reads lines {"text": JSON text without its
quotes, "bound": n} from stdin; prints `N texts hold`, or each text that has more tokens than its bound, and exits 1."""

import importlib.util
import json
import os
import pathlib
import sys
import unicodedata

FILES = pathlib.Path(importlib.util.find_spec("litellm").origin).parent / "litellm_core_utils" / "tokenizers"
os.environ["TIKTOKEN_CACHE_DIR"] = str(FILES)

import tiktoken  # noqa: E402
import tokenizers  # noqa: E402

TIKTOKEN = {name: tiktoken.get_encoding(name) for name in ("cl100k_base", "o200k_base")}
CLAUDE = tokenizers.Tokenizer.from_file(str(FILES / "anthropic_tokenizer.json"))
# No bound is promised of these with the Claude tokenizer.
LONGER = {
    chr(c)
    for c in range(0x80, 0x110000)
    if not 0xD800 <= c < 0xE000 and len(unicodedata.normalize("NFKC", chr(c)).encode()) > len(chr(c).encode())
}


def decoded(text):
    """The text, and its second decoding if it has one: arguments of a tool are JSON inside JSON."""
    for _ in range(2):
        try:
            text = json.loads(f'"{text}"')
        except ValueError:
            return
        # Half a surrogate pair is one replacement character for every tokenizer.
        yield text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def main():
    cases, checked = [], 0
    for line in sys.stdin:
        case = json.loads(line)
        found = list(decoded(case["text"]))
        assert found, f"not the text of a JSON string: {line}"
        cases += [(text, case["bound"], case["text"]) for text in found]
        checked += 1
    texts = [text for text, _, _ in cases]
    counts = {name: [len(t) for t in each.encode_ordinary_batch(texts)] for name, each in TIKTOKEN.items()}
    counts["claude"] = [
        0 if LONGER.intersection(text) else len(e.ids)
        for text, e in zip(texts, CLAUDE.encode_batch(texts, add_special_tokens=False))
    ]
    wrong = 0
    for name, tokens in counts.items():
        for (text, bound, raw), found in zip(cases, tokens):
            if found > bound:
                wrong += 1
                if wrong <= 20:
                    print(f"{name}: {found} tokens, bound {bound}: {text!r} of {raw!r}")
    print(f"{wrong} counts over the bound" if wrong else f"{checked} texts hold")
    sys.exit(bool(wrong))


main()
