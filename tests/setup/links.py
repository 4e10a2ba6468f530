#!/usr/bin/env python3
"""Checks links in the documents: links.py reads the Markdown files, links.py --book DIRECTORY the book that mdBook made.

A file or an anchor that a link names must exist; addresses with a scheme are not fetched. In Markdown also: a page of the
book must be in docs/SUMMARY.md under its own title, must link only to pages of the book (the book holds no other file), and a
file of the repository that a text names in backticks must exist (`tests/stages.sh`; of Rust files also the end: `json.rs`).
"""
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FILE = re.compile(r"(?:controller|deploy|docs|proxy|runtime-image|tests)/[\w./-]*\.[a-z]+|[\w/]+\.rs")


def slug(heading):
    """The anchor that GitHub and mdBook make of a heading."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return "".join("-" if c.isspace() else c for c in text if c.isalnum() or c in "_-" or c.isspace())


class Page:
    """Links, anchors and named files of one Markdown file."""

    def __init__(self, path):
        text = re.sub(r"^( *)(```+|~~~+).*?^\1\2\s*$", "", path.read_text(), flags=re.M | re.S)
        text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
        self.anchors = set()
        headings = re.findall(r"^#{1,6} +(.*?)#* *$", text, re.M)
        self.title = headings[0] if headings else None
        for heading in headings:
            anchor, count = slug(heading), 0
            while (name := f"{anchor}-{count}" if count else anchor) in self.anchors:
                count += 1
            self.anchors.add(name)
        self.files = {code for code in re.findall(r"`([^`\n]+)`", text) if FILE.fullmatch(code)}
        self.links = re.findall(r"\]\(\s*<?([^)\s>]+)", re.sub(r"`[^`\n]+`", "", text))
        self.entries = re.findall(r"^ *- \[(.*)\]\(([^)]+)\)$", text, re.M)  # of a table of contents


def files(pattern):
    """Files of the repository, new ones too, as git lists them."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", pattern], cwd=ROOT, check=True, text=True,
                            stdout=subprocess.PIPE).stdout.split()
    return [name for name in listed if (ROOT / name).exists()]


def check_markdown():
    pages = {ROOT / name: Page(ROOT / name) for name in files("*.md")}
    sources = files("*.rs")
    def exists(file):
        return (ROOT / file).exists() or file.endswith(".rs") and any(name.endswith(f"/{file}") for name in sources)
    faults = []
    for path, page in pages.items():
        name = path.relative_to(ROOT)
        faults += [f"{name}: names {file}, which does not exist" for file in sorted(page.files) if not exists(file)]
        for link in page.links:
            address = urlsplit(link)
            if address.scheme or link.startswith("//"):
                continue
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            if not target.exists():
                faults.append(f"{name}: {link}: there is no such file")
            elif path.is_relative_to(DOCS) and target not in pages and target.parent != DOCS / "images":
                faults.append(f"{name}: {link}: not a page; name the file in backticks")
            elif path.is_relative_to(DOCS) and not target.is_relative_to(DOCS):
                faults.append(f"{name}: {link}: leads out of the book; name the file in backticks")
            elif address.fragment and target in pages and address.fragment not in pages[target].anchors:
                faults.append(f"{name}: {link}: there is no such heading")
    summary = DOCS / "SUMMARY.md"
    for contents in (summary, DOCS / "design" / "index.md"):
        for title, link in pages[contents].entries:
            page = pages.get((contents.parent / link).resolve())
            if page and page.title != title:
                faults.append(f"{contents.relative_to(ROOT)}: '{title}': the page is called '{page.title}'")
    chapters = {(DOCS / link).resolve() for link in pages[summary].links}
    missing = {path for path in pages if path.is_relative_to(DOCS)} - chapters - {summary}
    return len(pages), faults + [f"{path.relative_to(ROOT)}: not in docs/SUMMARY.md" for path in sorted(missing)]


class Html(HTMLParser):
    """Links and ids of one page of the book."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links = set(), []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids |= {attrs[name] for name in ("id", "name") if attrs.get(name)}
        self.links += [attrs[name] for name in ("href", "src") if attrs.get(name)]


def check_book(book):
    # print.html repeats all chapters, whose links mdBook rewrites; 404.html may be served from any directory.
    pages = {path.resolve(): Html(path) for path in book.rglob("*.html") if path.name not in ("404.html", "print.html", "toc.html")}
    faults = []
    for path, page in pages.items():
        for link in page.links:
            address = urlsplit(link)
            if address.scheme or link.startswith("//"):
                continue
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                faults.append(f"{path.relative_to(book.resolve())}: {link}: there is no such file")
            elif address.fragment and target in pages and unquote(address.fragment) not in pages[target].ids:
                faults.append(f"{path.relative_to(book.resolve())}: {link}: there is no such anchor")
    return len(pages), faults


def main(arguments):
    if arguments and (len(arguments) != 2 or arguments[0] != "--book"):
        sys.exit(__doc__)
    count, faults = check_book(Path(arguments[1])) if arguments else check_markdown()
    if not count:
        sys.exit("links: there is no page")
    if faults:
        sys.exit("\n".join([f"links: {fault}" for fault in faults]))


if __name__ == "__main__":
    main(sys.argv[1:])
