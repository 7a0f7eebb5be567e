"""The front page: what Underglass is, a run that plays, the ways to start, the lessons."""

from authoring.contents import lesson_lines
from site_gallery import Entry
from site_pages import Site

SCENARIO = "preemption"


def build(site: Site, entries: list[Entry]) -> None:
    """Write the front page, and the page for a missing address."""
    shown = next(one for one in entries if one.scenario.name == SCENARIO)
    lessons = [
        {
            "page": f"lessons/{line.name.removesuffix('.ipynb')}.html",
            "title": line.title,
            "question": line.question,
            "minutes": line.minutes,
        }
        for line in lesson_lines()
    ]
    site.write(
        "index.html",
        "front.html",
        page="front",
        entry=shown,
        lessons=lessons,
        scenarios=len(entries),
        image=shown.card,
        image_alt=shown.drawn.words,
    )
    # A host shows this page at any address, so its links have to be absolute.
    site.write("404.html", "missing.html", page="", root=site.url)
