"""The check of a built site notices what a reader would stumble over."""

from pathlib import Path

from site_check import problems

GOOD = '<h1 id="top">A</h1><a href="b/c.html#there">x</a><img src="p.png"><a href="https://vllm.ai">y</a>'


def _site(folder: Path, **pages: str) -> Path:
    (folder / "b").mkdir()
    (folder / "p.png").write_bytes(b"")
    (folder / "b" / "c.html").write_text('<p id="there"><a href="../index.html#top">up</a>')
    (folder / "index.html").write_text(GOOD)
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text)
    return folder


def test_a_sound_site_has_no_problems(tmp_path):
    assert not list(problems(_site(tmp_path)))


def test_each_kind_of_broken_link_is_named(tmp_path):
    broken = {
        "gone": '<a href="missing.html">',
        "anchor": '<a href="b/c.html#nowhere">',
        "own_anchor": '<a href="#nowhere">',
        "outside": '<a href="../elsewhere.html">',
        "picture": '<source srcset="q.png">',
        "log": '<div data-log="logs/x.gz">',
        "tracker": '<script src="https://example.org/x.js">',
        "card": '<meta property="og:image" content="https://site.example/q.png">',
    }
    site = _site(tmp_path, **broken)
    found = list(problems(site, "https://site.example/"))
    assert {one.partition(".html")[0] for one in found} == set(broken)


def test_the_view_of_a_board_is_no_anchor(tmp_path):
    assert not list(problems(_site(tmp_path, view='<a href="b/c.html#step=3&amp;selected=1">')))
