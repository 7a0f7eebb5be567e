"""The front page, the playground, and the page that opens a reader's own trace."""

from authoring.contents import hours, lesson_lines
from authoring.routes import ROUTES
from page_front import recorded
from site_gallery import Entry
from site_pages import REPOSITORY, Site
from visualizer.packed import pack
from visualizer.playing.game import Game
from visualizer.sources import READERS
from visualizer.sources.limits import MAX_DROPPED

PREVIEW = "preemption"  # the run that a link to the front page shows
_FRONT = "logs/front.jsonl.gz"
_FIXTURES = REPOSITORY / "tests" / "fixtures"
SAMPLES = {
    "vLLM, preempting": "vllm/vllm_tight.jsonl.gz",
    "vLLM, a shared prefix": "vllm/vllm_shared_prefix.jsonl.gz",
    "KV events of vLLM": "vllm/vllm_tight.kv_events.jsonl.gz",
    "SGLang's forward passes": "sglang_forward_pass.jsonl.gz",
}


def build_front(site: Site, entries: list[Entry]) -> None:
    """Write the front page, the run that it shows until its engine has started, and the 404 page."""
    shown = next(one for one in entries if one.scenario.name == PREVIEW)
    lines = lesson_lines()
    lessons = [
        {
            "number": line.name[:2],
            "page": f"lessons/{line.name.removesuffix('.ipynb')}.html",
            "title": line.title,
            "question": line.question,
            "minutes": line.minutes.reading,
            "exercise": line.minutes.exercise,
        }
        for line in lines
    ]
    routes = [
        {
            "name": route.name,
            "promise": route.promise,
            "hours": round(hours(route, lines)),
            "is_all": route.is_all,
            "lessons": [lesson for lesson in lessons if lesson["number"] in route.lessons],
        }
        for route in ROUTES
    ]
    site.write_bytes(_FRONT, pack(recorded()))
    site.write(
        "index.html",
        "front.html",
        page="front",
        log=_FRONT,
        lessons=lessons,
        routes=routes,
        image=shown.card,
        image_alt=shown.drawn.words,
    )
    # A host shows this page at any address, so its links have to be absolute.
    site.write("404.html", "missing.html", page="", root=site.url)


def build_play(site: Site) -> None:
    """Write the playground, with the run that it shows until a control moves."""
    site.write("play/index.html", "play.html", page="play", page_html=Game().html())


def build_open(site: Site) -> None:
    """Write the page that opens a trace, and the samples that it offers."""
    samples = []
    for title, file in SAMPLES.items():
        path = f"logs/samples/{file.rpartition('/')[2]}"
        site.copy(_FIXTURES / file, path)
        samples.append({"title": title, "path": path})
    site.write(
        "open/index.html",
        "open.html",
        page="open",
        kinds=[reader.title for reader in READERS],
        samples=samples,
        most=MAX_DROPPED >> 20,
        last=16,
    )
