"""Build pages from docs/*.md, the documents that they link to, and the source files that pages name.

`build` is called last, because it also makes a page of each file that another page links to.
"""

import html
from pathlib import Path

from mistune.util import striptags

from site_links import place_of
from site_markdown import render
from site_pages import REPOSITORY, Site


def build(site: Site) -> None:
    """Write docs/, source/ and the pictures that pages show."""
    documents = [*sorted(f"docs/{path.name}" for path in (REPOSITORY / "docs").glob("*.md"))]
    done: set[str] = set()
    while documents:
        source = documents.pop(0)
        if source in done:
            continue
        done.add(source)
        _write_document(site, source)
        documents += [path for path in site.links.used if path.endswith(".md")]
    for path, place in site.links.used.items():
        if place.startswith("images/"):
            site.copy(REPOSITORY / path, place)
        elif place.startswith("source/"):
            _write_source(site, path, place)
    site.copy(REPOSITORY / "LICENSE", "LICENSE.txt")


def _write_document(site: Site, source: str) -> None:
    page = place_of(source)
    text = (REPOSITORY / source).read_text("utf-8")
    document = render(text, site.links.resolver(source, page))
    parts = [(anchor, heading) for level, anchor, heading in document.headings if level == 2]
    site.write(
        page,
        "document.html",
        page="docs",
        heading=document.title,
        summary=_summary(text),
        body=document.html,
        parts=parts,
        source=source,
    )


def _summary(text: str) -> str:
    """Return the first sentence of a document, as plain text."""
    paragraphs = text.split("\n\n")[1:]
    first = next(one for one in paragraphs if one.strip() and one.lstrip()[0] not in "<#|`-")
    plain = render(first, lambda href: href).html
    words = html.unescape(" ".join(striptags(plain).split()))
    end = words.find(". ")
    return words if end < 0 else words[: end + 1]


def _write_source(site: Site, path: str, place: str) -> None:
    lines = (REPOSITORY / path).read_text("utf-8").splitlines()
    site.write(place, "source.html", page="docs", source=path, name=Path(path).name, lines=lines)
