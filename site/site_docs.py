"""Build pages from docs/*.md, the documents that they link to, and the source files that pages name.

`build` is called last, because it also makes a page of each file that another page links to.
"""

import html
import posixpath
from dataclasses import dataclass
from pathlib import Path

from mistune.util import striptags

from site_links import place_of
from site_markdown import render
from site_pages import REPOSITORY, Site

# The documents in the table of contents, grouped by what a reader wants to do.
GROUPS = {
    "Use": [
        "clients",
        "models",
        "lmtp",
        "cluster",
        "under_load",
        "metrics",
        "kv_events",
    ],
    "Look at vLLM and SGLang": ["operators", "sources", "what_if", "frames"],
    "Learn and teach": ["glossary", "teaching", "classroom", "solutions"],
    "Build": ["extending", "add_a_lesson", "hosting", "windows"],
}
_ALSO = {
    "Learn and teach": ["project/README.md"],
    "Build": ["CONTRIBUTING.md", "engine/bundled/README.md", "THIRD_PARTY.md"],
}


@dataclass(frozen=True)
class Entry:
    """A line of the contents: `href` is relative to docs/."""

    title: str
    href: str
    summary: str


def build(site: Site) -> None:
    """Write docs/, source/ and the pictures that pages show."""
    documents = [*sorted(f"docs/{path.name}" for path in (REPOSITORY / "docs").glob("*.md"))]
    documents += [one for more in _ALSO.values() for one in more]
    entries = {}
    done: set[str] = set()
    while documents:
        source = documents.pop(0)
        if source in done:
            continue
        done.add(source)
        entries[source] = _write_document(site, source)
        documents += [path for path in site.links.used if path.endswith(".md")]
    _write_contents(site, entries)
    for path, place in site.links.used.items():
        if place.startswith("images/"):
            site.copy(REPOSITORY / path, place)
        elif place.startswith("source/"):
            _write_source(site, path, place)
    site.copy(REPOSITORY / "LICENSE", "LICENSE.txt")


def _write_document(site: Site, source: str) -> Entry:
    page = place_of(source)
    text = (REPOSITORY / source).read_text("utf-8")
    document = render(text, site.links.resolver(source, page))
    parts = [(anchor, heading) for level, anchor, heading in document.headings if level == 2]
    title, summary = document.title, _summary(text)
    site.write(
        page,
        "document.html",
        page="docs",
        heading=title,
        summary=summary,
        body=document.html,
        parts=parts,
        source=source,
    )
    return Entry(title, posixpath.relpath(page, "docs"), summary)


def _summary(text: str) -> str:
    """Return the first sentence of a document, as plain text."""
    paragraphs = text.split("\n\n")[1:]
    first = next(one for one in paragraphs if one.strip() and one.lstrip()[0] not in "<#|`-")
    plain = render(first, lambda href: href).html
    words = html.unescape(" ".join(striptags(plain).split()))
    end = words.find(". ")
    return words if end < 0 else words[: end + 1]


def _write_contents(site: Site, entries: dict[str, Entry]) -> None:
    groups = {}
    left = dict(entries)
    for title, names in GROUPS.items():
        sources = [*(f"docs/{name}.md" for name in names), *_ALSO.get(title, [])]
        groups[title] = [left.pop(source) for source in sources if source in left]
    groups["More"] = list(left.values())
    site.write("docs/index.html", "docs.html", page="docs", groups=groups)


def _write_source(site: Site, path: str, place: str) -> None:
    lines = (REPOSITORY / path).read_text("utf-8").splitlines()
    site.write(place, "source.html", page="docs", source=path, name=Path(path).name, lines=lines)
