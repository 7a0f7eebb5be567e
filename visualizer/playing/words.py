"""What a change of the playground did, in one sentence, and what it cost, in one line."""

import html

from visualizer.playing.people import People, Person, wait_words
from visualizer.playing.questions import MEASURES
from visualizer.reading.durations import duration


def sentence(now: People, before: People | None, changed: list[str], focus: str) -> str:
    """Return HTML: what the change did to the first token of `focus`, and what still holds it up."""
    person = now.named(focus)
    if person is None or person.ttft is None:
        return "No request has a first token."
    told = f"{mark(person)}’s first token comes after {_ms(person.ttft)}."
    old = before.named(person.name) if before else None
    if before and old and old.ttft is not None:
        others = [
            (one.ttft - past.ttft, one)
            for one in now.all
            if one.name != person.name
            and one.ttft is not None
            and (past := before.named(one.name))
            and past.ttft is not None
        ]
        told = f"{mark(person)}’s first token comes {_moved(person.ttft - old.ttft)}"
        if others:
            by, most = max(others, key=lambda one: abs(one[0]))
            if round(by):
                told += f", and {mark(most)}’s {_moved(by)}"
        told += "."
        if changed:
            told = f"With {html.escape(_listed(changed))}, {told}"
    held = person.held_up_by()
    name = html.escape(person.name)
    if held is None:
        return f"{told} {name} does not wait for anything."
    cause, spent = held
    return f"{told} Of {name}’s {_ms(person.ttft)}, {_ms(spent)} are {wait_words(cause)}."


def cost(now: People, before: People) -> str:
    """Return HTML: the measure that became worse by the largest part, or the answer that ends later."""
    worse = []
    for measure in MEASURES:
        old, new = measure.of(before.log), measure.of(now.log)
        if old is None or new is None:
            continue
        loss = old - new if measure.more else new - old
        if measure.words(old) != measure.words(new) and loss > 0:
            name = measure.label.removesuffix(" after")
            changed = f"{measure.grew} from {measure.words(old)} to {measure.words(new)}"
            worse.append((loss / max(abs(old), 1), f"{name[0].lower()}{name[1:]} {changed}"))
    told = f"the {max(worse)[1]}" if worse else "nothing that is measured here"
    ends = [(one.end - past.end, one.name) for one in now.all if (past := before.named(one.name))]
    later, name = max(ends, default=(0, ""))
    if not worse and round(later) > 0:
        told = f"{name} finishes {_moved(later)}"
    return f"<b>What it cost:</b> {html.escape(told)}."


def mark(person: Person) -> str:
    """Return HTML: the request's mark and name."""
    return f'<b class="who"><i style="--hue:{hue(person.place)}"></i>{html.escape(person.name)}</b>'


def hue(place: int) -> str:
    """Return the colour of the request at this place, as CSS."""
    return f"var(--hue{place % 10})"


def moved(by: float) -> str:
    """Return how a time moved: "61 ms sooner"."""
    return _moved(by) if round(by) else "the same"


def _moved(by: float) -> str:
    if not round(by):
        return "at the same time"
    return f"{_ms(abs(by))} {'later' if by > 0 else 'sooner'}"


def _ms(time: float) -> str:
    return f"{time:,.0f} ms" if time < 10_000 else duration(time)


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
