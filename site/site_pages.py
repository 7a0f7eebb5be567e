"""What all pages of the site share: the output folder, the templates, and the links between pages."""

import json
import shutil
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import jinja2

from site_links import Links

REPOSITORY = Path(__file__).parents[1]
TEMPLATES = Path(__file__).parent / "templates"


@dataclass
class Site:
    """A site that is being built.

    out    the folder that the site is written to
    url    the address that the site will have, with a slash at the end; empty if it is not known. Link
           previews and the sitemap need it, because they do not work with relative addresses.
    links  where the pages' links to files of the repository lead
    """

    out: Path
    url: str = ""
    links: Links = field(default_factory=lambda: Links(REPOSITORY))

    def __post_init__(self) -> None:
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ValueError(f"SITE_URL must begin with http:// or https://, got {self.url!r}")
        if self.url and not self.url.endswith("/"):
            self.url += "/"

    @cached_property
    def templates(self) -> jinja2.Environment:
        """The templates of the pages."""
        loader = jinja2.FileSystemLoader(TEMPLATES)
        environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True)
        environment.filters["script_json"] = script_json
        return environment

    def write(self, path: str, template: str, **values: Any) -> None:
        """Write the page at `path`, relative to the site's root, from a template."""
        known = {
            "root": "../" * path.count("/"),
            "path": path,
            "site_url": self.url,
            # The preview of a link to a page that has no picture of its own.
            "image": "images/gallery/preemption.png",
            "image_alt": "The board of a run at the step in which a request is preempted.",
        }
        text = self.templates.get_template(template).render(known | values)
        self.write_text(path, text)

    def write_text(self, path: str, text: str) -> None:
        """Write a text file."""
        self.write_bytes(path, text.encode())

    def write_bytes(self, path: str, content: bytes) -> None:
        """Write a file."""
        target = self.out / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    def copy(self, source: Path, path: str) -> None:
        """Copy a file to `path`."""
        target = self.out / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def script_json(value: object) -> str:
    """Return JSON for a script element. It contains no "<", so it cannot end the element."""
    return json.dumps(value).replace("<", "\\u003c")
