"""Turn links between files of the repository into links between pages of the site.

A lesson's notebook becomes a page in `lessons/`, a Markdown file a page in `docs/`, a picture a file in
`images/`, and any other file a page in `source/`. `Links.used` collects the files that are linked, so
that only those source files become pages.
"""

import posixpath
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

_PICTURES = (".png", ".svg", ".gif", ".jpg", ".webp")


class LinkError(ValueError):
    """A link to a file that does not exist."""


@dataclass
class Links:
    """The links of the site's pages.

    used  the files of the repository that pages link to, each with its place on the site
    """

    repository: Path
    used: dict[str, str] = field(default_factory=dict)

    def resolver(self, source: str, page: str) -> Callable[[str], str]:
        """Return `resolve` for the links of one file."""
        return lambda href: self.resolve(href, source, page)

    def resolve(self, href: str, source: str, page: str) -> str:
        """Return a link of the repository's file `source` as the relative address of the page `page`.

        Raises LinkError if the link leads to a file that is not in the repository.
        """
        parts = urlsplit(href)
        if parts.scheme or parts.netloc or not parts.path:
            return href
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), parts.path))
        if (self.repository / path).is_dir() and (self.repository / path / "README.md").is_file():
            path = f"{path}/README.md"
        if not (self.repository / path).is_file():
            raise LinkError(f"{source} links to {href}, which is not a file of the repository")
        fragment = f"#{parts.fragment}" if parts.fragment else ""
        if path in ("README.md", "notebooks/contents.ipynb"):
            return _relative("index.html", page) + (fragment or "#lessons")
        place = self.used.setdefault(path, place_of(path))
        return _relative(place, page) + fragment


def place_of(path: str) -> str:
    """Return the path on the site of a file of the repository."""
    folder, name = posixpath.split(path)
    if name.endswith(".ipynb"):
        return f"lessons/{name.removesuffix('.ipynb')}.html"
    if path == "docs/README.md":
        return "docs/index.html"
    if name.endswith(".md"):
        inside = posixpath.relpath(folder, "docs") if folder.startswith("docs") else folder
        return posixpath.normpath(f"docs/{inside}/{name.removesuffix('.md')}.html")
    if name.endswith(_PICTURES):
        return f"images/{path}"
    return f"source/{path}.html"


def _relative(place: str, page: str) -> str:
    return posixpath.relpath(place, posixpath.dirname(page) or ".")
