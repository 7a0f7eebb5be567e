"""The waterfall in words: a sentence, and a line per part. `waterfall_words.ts` says the same."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from visualizer.reading.durations import duration
from visualizer.reading.messages import MESSAGES, adopted_words, fill, text
from visualizer.reading.waterfall.causes import WORK
from visualizer.reading.waterfall.parts import Part

if TYPE_CHECKING:
    from visualizer.reading.waterfall.waterfall import RequestTime, Unit, Waterfall

_WORDS = MESSAGES["waterfall"]
_STEPS_NAMED = 4  # more are counted
_NAMES_NAMED = 3


def in_words(time: int, unit: "Unit") -> str:
    """Return a time in the waterfall's unit: "35.1 s", "120 ms" or "7 steps"."""
    return duration(time / 1000) if unit == "us" else f"{time} step{'s' * (time != 1)}"


def cause_name(cause: str) -> str:
    """Return a few words for a cause, for keys and labels."""
    reason = MESSAGES["reasons"].get(cause)
    return str(reason["short"] if reason else _WORDS["causes"].get(cause, cause))


def why_slow(time: "RequestTime") -> str:
    """Return the sentence and the parts of a request. The parts add up to its total."""
    unit = time.unit
    lines = [headline(time)]
    for part in time.parts:
        mark = "" if part.mark == "recorded" else f", {part.mark}"
        lines.append(f"{in_words(part.time, unit):>10}  {part.words}{_steps(part)}{mark}")
    if words := helped(time):
        lines.append(f"{words}.")
    return "\n".join(lines)


def headline(time: "RequestTime") -> str:
    """Return how long a request took, and what took most of that time."""
    ended = _WORDS["total_so_far" if time.reason is None else "total"]
    total, work = in_words(time.total, time.unit), in_words(time.work, time.unit)
    words = [*fill(ended, who=time.name, total=total, work=work)]
    rest = {cause: spent for cause, spent in time.by_cause.items() if cause not in WORK}
    if rest:
        most = max(rest, key=lambda cause: rest[cause])
        spent = in_words(rest[most], time.unit)
        words += fill(_WORDS["most"], time=spent, cause=cause_name(most))
    return "".join(map(str, words))


def helped(time: "RequestTime") -> str:
    """Return what would have helped, if the log says so, or "".

    This is about one decision; a replay shows what a whole run gains from more blocks.
    """
    if time.life.short is None:
        return ""
    step, missing = time.life.short
    words = text(_WORDS["helped"], missing=missing, step=step)
    computed = [one.step for one in time.spans if one.cause in (*WORK, "recomputed")]
    later = next((one for one in computed if one > step), None)
    return words if later is None else words + text(_WORDS["helped_later"], later=later)


def part_words(part: Part, time: "RequestTime", names: Mapping[int, str]) -> str:
    """Return what a part's time was spent on."""
    rows = _WORDS["rows"]
    who = _listed([_named(one, time.request, names) for one in part.about])
    work = [one for one in time.life.work.values() if not one.in_vain]
    match part.cause:
        case "prefill":
            tokens = sum(one.new for one in work if one.is_prefill)
            cached = text(rows["cached"], found=time.life.found) if time.life.found else ""
            cached += adopted_words(*time.life.adopted)
            words = fill(rows["prefill"], tokens=tokens, cached=cached)
        case "decode":
            words = fill(rows["decode"], tokens=sum(one.new for one in work if not one.is_prefill))
        case "recomputed":
            words = fill(rows["recomputed"], tokens=sum(one.again for one in work))
        case "preempted":
            words = fill(rows["preempted" if part.about else "preempted_by_unknown"], who=who)
        case cause if cause in MESSAGES["reasons"]:
            words = fill(
                rows["behind" if part.is_behind else "waiting"], who=who, reason=cause_name(cause)
            )
        case cause:
            words = [str(rows[cause])]
    return "".join(map(str, words))


def overview(waterfall: "Waterfall") -> str:
    """Return the time by cause over all requests, largest first."""
    total = sum(waterfall.totals.values())
    lines = [f"{len(waterfall)} requests, {in_words(total, waterfall.unit)} in all"]
    for cause, time in sorted(waterfall.totals.items(), key=lambda item: -item[1]):
        share = f"{100 * time / total:.0f} %"
        lines.append(f"{in_words(time, waterfall.unit):>10}  {share:>5}  {cause_name(cause)}")
    return "\n".join(lines)


def _named(request: int, own: int, names: Mapping[int, str]) -> str:
    name = names.get(request, f"r{request}")
    words = fill(_WORDS["rows"]["itself"], who=name) if request == own else [name]
    return "".join(map(str, words))


def _listed(names: list[str]) -> str:
    if len(names) > _NAMES_NAMED:
        names = [*names[: _NAMES_NAMED - 1], f"{len(names) - _NAMES_NAMED + 1} more"]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else ""


def _steps(part: Part) -> str:
    if part.cause in WORK:
        return ""
    if len(part.steps) > _STEPS_NAMED:
        return f" ({len(part.steps)} steps)"
    return f" (step{'s' * (len(part.steps) > 1)} {', '.join(map(str, part.steps))})"
