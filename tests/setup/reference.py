#!/usr/bin/env python3
"""Writes the generated parts of docs/reference; with --check only compares them and fails with the diff.

usage: tests/setup/reference.py [--check]

A part stands between `<!-- generated: NAME -->` and `<!-- /generated -->`; the rest of a page is written by hand. The file
openapi.json is the document of the daemon's API, from examples/openapi.rs, with sorted names. The other sources are --help of both programs, the settings and reasons that examples/settings.rs and examples/refusals.rs print, and the
doc comments of reasons, exit codes and records. A table that this script cannot read whole is an error, not a shorter page.
"""
import difflib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "reference"
EXAMPLES = {"sluice-controller": "settings", "sluice-daemon": "openapi", "sluice-proxy": "refusals"}
CONTRACT = "proxy/contract/src"
GOLDEN = ROOT / "proxy/contract/tests/golden"
BUILT = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "debug"
COMMON = ["attempt", "kind", "prev", "run_id", "seq", "ts", "v"]


def run(*command):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
    environment |= {"COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, check=True, text=True, stdout=subprocess.PIPE).stdout


def cell(text):
    """Text for a cell of a table; rustdoc's links become code."""
    text = re.sub(r"\[`(?:crate::)?([^`]*)`\]", r"`\1`", text)
    return text.replace("|", "\\|").replace("<", "&lt;")


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def fenced(text):
    lines = [line.rstrip() for line in text.strip().splitlines()]
    return "```text\n" + "\n".join(lines) + "\n```"


# -- The command lines -------------------------------------------------------------------------------------------------

def help_of(program, *command):
    return run(str(BUILT / program), *command, "--help")


def commands_of(text):
    """Names of the commands that a help text lists."""
    listed = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.M)
    return [] if not listed else [name for name in re.findall(r"^  ([a-z][a-z-]*) ", listed[1], re.M) if name != "help"]


def all_commands(*above):
    """Every command of `sluice` with its help text, parents first."""
    text = help_of("sluice", *above)
    yield above, text
    for name in commands_of(text):
        yield from all_commands(*above, name)


def without_common(text):
    """A help text without the flags that all commands have: they are listed once, at `sluice sweep`."""
    parts = re.split(r"\n\n(?=The host:\n)", text)
    if len(parts) == 1 or "--key-mode" in parts[1]:
        return text
    rest = re.split(r"\n\n(?=\S)", parts[1], maxsplit=1)
    return parts[0] + ("\n\n" + rest[1] if len(rest) > 1 else "") + "\n"


def sluice_commands():
    parts = []
    for name, text in all_commands():
        shown = text if name == ("sweep",) else without_common(text)
        parts.append(f"## {' '.join(('sluice', *name))}\n\n{fenced(shown)}")
    return "\n\n".join(parts)


def exit_codes_by_command():
    parts = []
    for name, text in all_commands():
        codes = re.search(r"^Exit codes.*\Z", text.rstrip(), re.M | re.S)
        if codes:
            parts.append(f"`{' '.join(('sluice', *name))}`:\n\n{fenced(codes[0])}")
    return "\n\n".join(parts)


# -- Settings and variables --------------------------------------------------------------------------------------------

def example(package):
    """The table that the example of this package prints."""
    return json.loads(run("cargo", "run", "--quiet", "--locked", "-p", package, "--example", EXAMPLES[package]))


def settings_table():
    rows = []
    for item in example("sluice-controller"):
        default = f"`{item['default']}`" if item["default"] else ""
        variables = ", ".join(f"`{name}`" for name in item["variables"])
        rows.append([f"`{item['name']}`", variables, default, cell(item["meaning"])])
    return table(["setting", "variable", "default", "meaning"], rows)


def separators():
    names = {" ": "a blank", ";": "a semicolon", ":": "a colon"}
    rows = [[f"`{item['variables'][0]}`", names[item["separator"]]] for item in example("sluice-controller") if item["separator"]]
    return table(["variable with several values", "between two values"], rows)


def variables_of_sidecar():
    # An example in the help may begin like a flag.
    flags = dict.fromkeys(re.findall(r"^      --([a-z-]+)", help_of("sluice-proxy"), re.M))
    assert len(flags) > 30, flags
    rows = [[f"`SLUICE_{flag.upper().replace('-', '_')}`", f"`--{flag}`"] for flag in flags]
    return table(["variable", "flag of `sluice-proxy`"], rows)


# -- Tables in the sources ---------------------------------------------------------------------------------------------

def sources(*under):
    """Texts of the Rust files in these directories."""
    return [path.read_text() for root in under for path in sorted((ROOT / root).rglob("*.rs")) if "target" not in path.parts]


def blocks(opening, *under):
    """The texts between the braces that follow each `opening`."""
    form = re.compile(rf"^{re.escape(opening)} \{{\n(.*?)^\}}", re.M | re.S)
    found = [text for source in sources(*under) for text in form.findall(source)]
    assert found, f"{', '.join(under)}: there is no `{opening}`"
    return found


def block(opening, *under):
    """The text between the braces that follow `opening`, which exactly one file has."""
    found = blocks(opening, *under)
    assert len(found) == 1, f"{', '.join(under)}: `{opening}` is there {len(found)} times"
    return found[0]


def entries(text, form):
    """Doc comment, match and whether JSON may lack it, for each line of code; every line must have this form."""
    doc, result, left_out = [], [], False
    for line in (line.strip() for line in text.splitlines()):
        if line.startswith("///"):
            doc.append(line[3:].strip())
        elif line.startswith("#["):
            left_out |= "skip_serializing_if" in line
        elif line and not line.startswith("//"):
            match = re.fullmatch(form, line)
            assert match, f"cannot read: {line}"
            result.append((" ".join(doc), match, left_out))
            doc, left_out = [], False
    return result


def refusals():
    docs = {match[1]: doc for doc, match, _ in entries(block("reasons!", "proxy"), r"(\w+) = \S+ \w+,")}
    rows = []
    for reason in example("sluice-proxy"):
        rows.append([str(reason["status"]), f"`{reason['word']}`", cell(docs[reason["name"]])])
    return table(["status", "reason", "meaning"], sorted(rows, key=lambda row: row[0]))


def exits_of_sluice():
    text, = [text for text in sources(CONTRACT) if "pub enum SidecarExit" in text]
    found = re.findall(r"((?:^///.*\n)+)^pub const \w+: u8 = (\d+);", text, re.M)
    assert len(found) == text.count(": u8 = ") > 5, "cannot read every exit code"
    rows = []
    for doc, code in found:
        match = re.fullmatch(r"Exit code of (.*?) when (.*)", " ".join(re.findall(r"/// (.*)", doc)))
        assert match, f"cannot read what {code} means: {doc}"
        rows.append([code, cell(match[1]), cell(match[2])])
    return table(["exit code", "of", "when"], rows)


def exits_of_sidecar():
    rows = [[match[1], cell(doc)] for doc, match, _ in entries(block("pub enum SidecarExit", CONTRACT), r"\w+ = (\d+),")]
    return table(["exit code", "meaning"], rows)


def type_of(rust):
    """What JSON has for this type of Rust: a plain type, or a link to the table of an object or of words."""
    inner = re.fullmatch(r"Option<(.*)>", rust)
    if inner:
        return type_of(inner[1]) + " or null"
    if re.fullmatch(r"[ui]\d+", rust):
        return "integer"
    if rust == "bool":
        return "true or false"
    if rust in ("Cow<'a, str>", "&'a str", "String"):
        return "text"
    if rust == "Vec<Cow<'a, str>>":
        return "list of texts"
    items = re.fullmatch(r"Vec<(\w+)(?:<'a>)?>", rust)
    if items:
        return "list of " + type_of(items[1])
    name = rust.removesuffix("<'a>")
    assert re.fullmatch(r"\w+", name), f"cannot read the type {rust}"
    # A type with one unnamed field is that field in JSON.
    field = re.search(rf"^pub struct {name}(?:<'a>)?\(pub (.*)\);$", "\n".join(sources(CONTRACT)), re.M)
    return type_of(field[1]) if field else f"[{name}](#{name.lower()})"


def member(doc, match, left_out):
    name, rust = match[1], match[2]
    form = type_of(rust)
    if left_out:
        form = form.removesuffix(" or null") + ", optional"
    return [f"`{name}`", form, cell(doc)]


def members(text, but=()):
    rows = [member(*entry) for entry in entries(text, r"(?:pub )?(\w+): (.*),")]
    return table(["member", "type", "meaning"], [row for row in rows if row[0].strip("`") not in but])


def records():
    """Kind, doc comment and members of each record, in the order in which a file has them."""
    order = ["open", "intent", "outcome", "refused", "recovered", "epoch", "control", "held", "released", "close"]
    text = "".join(blocks("records!", CONTRACT))
    form = r"((?:    ///[^\n]*\n)+)    (\w+)<'a> = \"(\w+)\" \{\n(.*?)^    \}"
    found = re.findall(form, text, re.M | re.S)
    assert len(found) == text.count('> = "'), "cannot read every record"
    assert sorted(kind for _, _, kind, _ in found) == sorted(order), "the order of the records is not complete"
    found.sort(key=lambda record: order.index(record[2]))
    return [(kind, " ".join(re.findall(r"/// (.*)", doc)), body) for doc, _, kind, body in found]


def golden_lines():
    """Lines of the golden files of this build, whole ones only."""
    for path in sorted(GOLDEN.glob("*.jsonl")):
        if path.stem != "additive":  # has members and kinds of a later version
            for line in path.read_bytes().split(b"\n")[:-1]:
                yield line.decode()


def record_tables():
    examples = {}
    known = {kind: set(re.findall(r"^        (\w+):", body, re.M)) for kind, _, body in records()}
    for line in golden_lines():
        value = json.loads(line)
        unknown = set(value) - known[value["kind"]]
        assert not unknown, f"golden files have members of {value['kind']} that the table lacks: {unknown}"
        if len(line) > len(examples.get(value["kind"], "")):
            examples[value["kind"]] = line
    parts = []
    for kind, doc, body in records():
        example = json.dumps(json.loads(examples[kind]), indent=1)
        parts.append(f"### `{kind}`\n\n{doc}\n\n{members(body, COMMON)}\n\nAn example, from the golden files, with line breaks added:"
                     f"\n\n```json\n{example}\n```")
    return "\n\n".join(parts)


def words():
    """Table of the words of each type that is a set of words."""
    text = "".join(blocks("words!", CONTRACT))
    found = re.findall(r"((?:    ///[^\n]*\n)+)    (\w+) \{\n(.*?)^    \}", text, re.M | re.S)
    for doc, name, body in found:
        rows = [[f"`{match[1]}`", cell(meaning)] for meaning, match, _ in entries(body, r'\w+ = "(\w+)",')]
        yield name, f"{' '.join(re.findall(r'/// (.*)', doc))}\n\n{table(['word', 'meaning'], rows)}"


def objects():
    """Tables of the objects and of the words that members of records have, in the order of their names."""
    parts = dict(words())
    body = "".join(sources(CONTRACT))
    tables = [members(record) for _, _, record in records()]
    while tables:
        for name in set(re.findall(r"\[(\w+)\]\(#", tables.pop())) - set(parts):
            life = "<'a>" if f"pub struct {name}<'a> {{" in body else ""
            parts[name] = members(block(f"pub struct {name}{life}", CONTRACT))
            # An object has objects in turn.
            tables.append(parts[name])
    return "\n\n".join(f"### {name}\n\n{parts[name]}" for name in sorted(parts))


def stamp():
    return members(block("pub struct Stamp<'a>", CONTRACT))


# -- Pages -------------------------------------------------------------------------------------------------------------

PARTS = {
    "sluice": sluice_commands,
    "sluice-proxy": lambda: fenced(help_of("sluice-proxy")),
    "sluice-proxy bridge": lambda: fenced(help_of("sluice-proxy", "bridge")),
    "settings": settings_table,
    "separators": separators,
    "variables of sluice-proxy": variables_of_sidecar,
    "exit codes of sluice": exits_of_sluice,
    "exit codes by command": exit_codes_by_command,
    "exit codes of sluice-proxy": exits_of_sidecar,
    "refusals": refusals,
    "common members": stamp,
    "records": record_tables,
    "objects and words": objects,
}
FILES = {
    "openapi.json": lambda: json.dumps(example("sluice-daemon"), indent=2, ensure_ascii=False, sort_keys=True) + "\n",
}
MARKED = re.compile(r"(<!-- generated: ([a-z -]+) -->\n).*?(<!-- /generated -->)", re.S)


def missing_words(page):
    """Words of the enum of error codes that the page on exit codes does not explain."""
    variants = re.findall(r"^    (\w+),", block("pub enum ErrorCode", "controller", CONTRACT), re.M)
    words = [re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower() for name in variants]
    return [word for word in words if f"`{word}`" not in page]


def main(arguments):
    if arguments not in ([], ["--check"]):
        sys.exit(__doc__)
    run("cargo", "build", "--quiet", "--locked", "-p", "sluice-proxy", "-p", "sluice-controller", "--bins")
    stale, used, generated = [], set(), []
    for path in sorted(PAGES.glob("*.md")):
        old = path.read_text()
        used |= {name for _, name, _ in MARKED.findall(old)}
        generated.append((path, old, MARKED.sub(lambda part: f"{part[1]}\n{PARTS[part[2]]()}\n\n{part[3]}", old)))
    for name, content in FILES.items():
        path = PAGES / name
        generated.append((path, path.read_text() if path.exists() else "", content()))
    for path, old, new in generated:
        if new == old:
            continue
        if arguments:
            name = str(path.relative_to(ROOT))
            stale.extend(difflib.unified_diff(old.splitlines(), new.splitlines(), name, f"{name}, generated", lineterm=""))
        else:
            path.write_text(new)
    if used != set(PARTS):
        sys.exit(f"reference: no page has the part {', '.join(sorted(set(PARTS) - used))}")
    missing = missing_words((PAGES / "exit-codes.md").read_text())
    if missing:
        sys.exit(f"reference: docs/reference/exit-codes.md does not explain {', '.join(missing)}")
    if stale:
        print("\n".join(stale))
        sys.exit("reference: the pages above are stale; run make reference")


if __name__ == "__main__":
    main(sys.argv[1:])
