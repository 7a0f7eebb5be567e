"""Check that every link of a built site leads to a file and that no page loads from another host."""

from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Attributes with an address that a browser loads, and those with one that a reader follows.
_LOADED = {("img", "src"), ("script", "src"), ("link", "href"), ("source", "srcset")}
_FOLLOWED = {("a", "href")}
_NAMED = {"og:image", "og:url"}  # meta elements; their addresses are absolute if the site has one


class _Page(HTMLParser):
    """The anchors of a page, and its links as (address, whether it is loaded)."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[tuple[str, bool]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the anchors and the links of an element."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "link" and values.get("rel") == "canonical":
            return
        for name, value in values.items():
            if (tag, name) in _LOADED | _FOLLOWED:
                self.links.append((value, (tag, name) in _LOADED))
            elif name in ("data-log", "data-sample") and not value.startswith("data:"):
                self.links.append((value, True))
        if tag == "meta" and values.get("property") in _NAMED:
            self.links.append((values["content"], False))


def problems(out: Path, url: str = "") -> Iterator[str]:
    """Yield each link that leads nowhere, and each file that a page would load from another host.

    `url` is the address that the site will have; absolute links below this address are checked, too.
    """

    @cache
    def page_at(path: Path) -> _Page:
        return _Page(path.read_text("utf-8"))

    for path in sorted(out.rglob("*.html")):
        for href, is_loaded in page_at(path).links:
            where = f"{path.relative_to(out)}: {href}"
            own = href.removeprefix(url) if url and href.startswith(url) else href
            base = out if own != href else path.parent
            parts = urlsplit(own)
            if parts.scheme == "data":
                continue
            if parts.scheme or parts.netloc:
                if is_loaded:
                    yield f"{where} would be loaded from another host"
                continue
            target = (base / unquote(parts.path)).resolve() if parts.path else path.resolve()
            if target.is_dir():
                target /= "index.html"
            if not target.is_file() or not target.is_relative_to(out.resolve()):
                yield f"{where} leads to no file of the site"
            elif parts.fragment and target.suffix == ".html":
                anchors = page_at(target).anchors
                # A fragment with "=" is the view of a board.
                if "=" not in parts.fragment and unquote(parts.fragment) not in anchors:
                    yield f"{where} leads to no element of that page"
