"""Render Markdown for the site, with anchors and with links that lead to the site's pages."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mistune
from mistune.renderers.html import HTMLRenderer

# The links of HTML inside Markdown, such as the README's pictures.
_ATTRIBUTE = re.compile(r'\b(src|srcset|href)="([^"]+)"')


@dataclass
class Rendered:
    """A document as HTML, and its headings: (level, anchor, text as HTML)."""

    html: str
    headings: list[tuple[int, str, str]]

    @property
    def title(self) -> str:
        """The first heading as plain text; empty if there is none."""
        return mistune.util.striptags(self.headings[0][2]) if self.headings else ""


def render(text: str, resolve: Callable[[str], str]) -> Rendered:
    """Render Markdown. `resolve` returns the address of each link and picture."""
    renderer = _Renderer(resolve)
    html = mistune.create_markdown(renderer=renderer, plugins=["table", "strikethrough"])(text)
    assert isinstance(html, str)
    return Rendered(html, renderer.headings)


def slug(text: str) -> str:
    """Return a heading's anchor, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


@dataclass
class _Renderer(HTMLRenderer):
    resolve: Callable[[str], str]
    headings: list[tuple[int, str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(escape=False)

    def heading(self, text: str, level: int, **_attributes: Any) -> str:
        anchor = base = slug(mistune.util.unescape(mistune.util.striptags(text)))
        taken = {one for _, one, _ in self.headings}
        number = 1
        while anchor in taken:
            anchor, number = f"{base}-{number}", number + 1
        self.headings.append((level, anchor, text))
        return f'<h{level} id="{anchor}">{text}</h{level}>\n'

    def link(self, text: str, url: str, title: str | None = None) -> str:
        return super().link(text, self.resolve(url), title)

    def image(self, text: str, url: str, title: str | None = None) -> str:
        return super().image(text, self.resolve(url), title)

    def inline_html(self, html: str) -> str:
        return self._linked(html)

    def block_html(self, html: str) -> str:
        return self._linked(html) + "\n"

    def _linked(self, html: str) -> str:
        return _ATTRIBUTE.sub(lambda m: f'{m[1]}="{self.resolve(m[2])}"', html)

    def table(self, text: str) -> str:
        # A wide table scrolls separately. Without a tab stop, it could not be scrolled by keyboard.
        return f'<div class="scroll" tabindex="0" role="group"><table>\n{text}</table></div>\n'

    def block_code(self, code: str, info: str | None = None) -> str:
        return super().block_code(code, info).replace("<pre>", '<pre tabindex="0">', 1)
