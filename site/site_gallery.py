"""The gallery: a page of pictures, a page for each scenario, and a page for each of its moments."""

import json
from dataclasses import dataclass

from site_pages import Site
from site_pictures import Drawn, Job, Moment, draw
from visualizer.packed import run_in_words, with_more
from visualizer.scenario import FOLDER, RECORDED, Scenario, gallery


@dataclass(frozen=True)
class Entry:
    """A scenario on the site; `log` and the pictures are relative to the site's root."""

    scenario: Scenario
    drawn: Drawn
    is_recorded: bool

    @property
    def log(self) -> str:
        """The log's file."""
        return f"logs/{self.scenario.name}.jsonl.gz"

    @property
    def run(self) -> str:
        """What is said of the whole run, as JSON."""
        log = self.scenario.log
        return json.dumps(with_more(run_in_words(log), log))

    @property
    def page(self) -> str:
        """The scenario's page."""
        return f"gallery/{self.scenario.name}.html"

    @property
    def card(self) -> str:
        """The picture that a link to the page shows."""
        return f"images/gallery/{self.scenario.name}.png"

    @property
    def thumbnails(self) -> tuple[str, str]:
        """The pictures on a light and on a dark background."""
        stem = f"images/gallery/{self.scenario.name}"
        return f"{stem}-light.svg", f"{stem}-dark.svg"

    def place_of(self, moment: Moment) -> str:
        """The page that stands for a moment, because a link's preview cannot depend on a fragment."""
        return f"gallery/{self.scenario.name}/{moment.step}.html"

    def card_of(self, moment: Moment) -> str:
        """The picture of a moment."""
        return f"images/gallery/{self.scenario.name}/{moment.step}.png"


def build(site: Site) -> list[Entry]:
    """Write the gallery, and return its entries."""
    entries = _entries(site)
    groups = {
        "This engine, simulated": [one for one in entries if not one.is_recorded],
        "A real vLLM, recorded": [one for one in entries if one.is_recorded],
    }
    shown = next(one for one in entries if one.scenario.name == "preemption")
    site.write(
        "gallery/index.html",
        "gallery.html",
        page="gallery",
        groups=groups,
        image=shown.card,
        image_alt=shown.drawn.words,
    )
    for at, entry in enumerate(entries):
        site.copy(FOLDER / f"{entry.scenario.name}.jsonl.gz", entry.log)
        site.write(
            entry.page,
            "scenario.html",
            page="gallery",
            entry=entry,
            image=entry.card,
            image_alt=entry.drawn.words,
            before=entries[at - 1],
            after=entries[(at + 1) % len(entries)],
        )
        for moment in entry.drawn.moments:
            site.write(
                entry.place_of(moment),
                "moment.html",
                page="gallery",
                entry=entry,
                moment=moment,
                image=entry.card_of(moment),
                image_alt=moment.words,
            )
    return entries


def _entries(site: Site) -> list[Entry]:
    scenarios = list(gallery().values())
    folder = site.out / "images" / "gallery"
    jobs = [
        Job(
            log=FOLDER / f"{one.name}.jsonl.gz",
            title=one.title,
            step=one.step,
            selected=one.select,
            card=folder / f"{one.name}.png",
            light=folder / f"{one.name}-light.svg",
            dark=folder / f"{one.name}-dark.svg",
            moments=folder / one.name,
        )
        for one in scenarios
    ]
    recorded = RECORDED.read_text("utf-8")
    return [
        Entry(one, drawn, is_recorded=f'"{one.name}"' in recorded)
        for one, drawn in zip(scenarios, draw(jobs), strict=True)
    ]
