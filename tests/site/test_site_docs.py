"""Markdown of the repository as pages: anchors as on GitHub, links to the site's own pages."""

import pytest

from site_links import LinkError, Links, place_of
from site_markdown import render, slug
from site_pages import REPOSITORY, Site


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("docs/clients.md", "docs/clients.html"),
        ("CONTRIBUTING.md", "docs/CONTRIBUTING.html"),
        ("project/README.md", "docs/project/README.html"),
        ("notebooks/04_continuous_batching.ipynb", "lessons/04_continuous_batching.html"),
        ("docs/board-dark.png", "images/docs/board-dark.png"),
        ("engine/core/engine.py", "source/engine/core/engine.py.html"),
    ],
)
def test_each_kind_of_file_has_its_place(path, place):
    assert place_of(path) == place


def test_a_link_is_relative_to_the_page_that_shows_it():
    links = Links(REPOSITORY)
    resolve = links.resolver("notebooks/05_paged_kv.ipynb", "lessons/05_paged_kv.html")
    assert resolve("../docs/glossary.md#block") == "../docs/glossary.html#block"
    assert resolve("../engine/core/engine.py") == "../source/engine/core/engine.py.html"
    assert resolve("04_continuous_batching.ipynb") == "04_continuous_batching.html"
    assert resolve("../project") == "../docs/project/README.html"
    assert resolve("contents.ipynb") == "../index.html#lessons"
    assert resolve("https://vllm.ai") == "https://vllm.ai"
    assert resolve("#here") == "#here"
    assert "engine/core/engine.py" in links.used


def test_a_link_to_no_file_stops_the_build():
    with pytest.raises(LinkError, match=r"docs/a\.md links to gone\.md"):
        Links(REPOSITORY).resolve("gone.md", "docs/a.md", "docs/a.html")


def test_anchors_are_those_of_github():
    text = "# A `b.c()`, d\n\n## Rows without pandas\n\n## Rows without pandas\n"
    anchors = [anchor for _, anchor, _ in render(text, str).headings]
    assert anchors == ["a-bc-d", "rows-without-pandas", "rows-without-pandas-1"]
    assert slug("What's new?") == "whats-new"


def test_a_preview_is_absolute_if_the_address_is_known(tmp_path):
    for url, start in (("https://site.example/ug/", "https://site.example/ug/"), ("", "../")):
        site = Site(tmp_path, url)
        site.write("a/b.html", "missing.html", page="", image="images/c.png", image_alt="c")
        page = (tmp_path / "a" / "b.html").read_text("utf-8")
        assert f'<meta property="og:image" content="{start}images/c.png">' in page
        assert ('<link rel="canonical" href="https://site.example/ug/a/b.html">' in page) == bool(
            url
        )
