"""The files, and what is generated in each of them."""

import re
from collections.abc import Callable
from pathlib import Path

from authoring.contents import routes
from authoring.generated import event_types, failures, fields, models, settings, sources

ROOT = Path(__file__).parents[3]
_FRONTEND = "visualizer/frontend/src"
Rewrite = Callable[[str], str]  # a file's text -> the text that it should have


def _marked(render: Callable[[], str]) -> Rewrite:
    """Replace what stands between the marks of a page."""
    marked = re.compile(
        r"(<!-- `make tables` writes what follows -->\n).*?(<!-- end -->)", re.DOTALL
    )

    def rewrite(text: str) -> str:
        after, count = marked.subn(lambda found: found[1] + render() + found[2], text)
        assert count == 1, "the page must have the marks once"
        return after

    return rewrite


def _whole(render: Callable[[], str]) -> Rewrite:
    return lambda _text: render()


FILES: dict[str, Rewrite] = {
    "README.md": _marked(lambda: routes("notebooks/")),
    "docs/clients.md": _marked(fields.render),
    "docs/cluster.md": _marked(failures.render),
    "docs/glossary.md": _marked(settings.table_of_flags),
    "docs/metrics.md": _marked(settings.table_of_metrics),
    "docs/models.md": _marked(models.render),
    "docs/sources.md": _marked(sources.tables),
    f"{_FRONTEND}/model/vocabulary.ts": _whole(event_types.of_logs),
    f"{_FRONTEND}/model/facts.ts": _whole(event_types.of_facts),
    f"{_FRONTEND}/cluster/vocabulary.ts": _whole(event_types.of_clusters),
}


def write() -> None:
    """Generate all of them anew."""
    for name, rewrite in FILES.items():
        file = ROOT / name
        file.write_text(rewrite(file.read_text("utf-8")), "utf-8")
