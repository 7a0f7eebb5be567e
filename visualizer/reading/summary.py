"""A summary of a run in a few lines of text, for the shell."""

import math
from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import chain, compress
from typing import Any

from engine.cluster.cluster_log import ClusterLog
from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from engine.simulation.facts import Fact
from engine.simulation.quantile import quantile
from visualizer.indexed.facts import Request, Steps
from visualizer.indexed.known import Known, known_of
from visualizer.indexed.step_facts import COUNTS
from visualizer.logs import settings_of
from visualizer.reading.durations import duration
from visualizer.reading.knowledge import UNKNOWN, WORDS, gap_words, part_words
from visualizer.reading.reading import read
from visualizer.reading.regimes import regimes_of
from visualizer.reading.rows.times import US_PER_MS

PERCENTILES = {"median": 0.5, "p95": 0.95, "p99": 0.99}
# The facts that a foreign log must have for each row.
_NEEDS: dict[str, tuple[Fact, ...]] = {
    "limit": ("queue",),
    "requests": ("arrivals",),
    "tokens": ("scheduled_tokens",),
    "TTFT": ("arrivals", "step_times"),
    "ITL": ("scheduled_tokens", "admissions", "step_times"),
    "prefix cache": ("cached_tokens",),
    "preemptions": ("preemptions",),
    "KV blocks": ("block_tables", "evictions"),
}
_TIERS = {"host": "host memory", "disk": "disk"}
IDLE_SHARE = 0.01  # of the run: less time without a step is not worth words
_ITL = {"p50": "median"}  # as `Run.itl` names it
MIN_VALUES = {"median": 1, "p95": 20, "p99": 100}  # with fewer, a percentile is meaningless


def summary(log: EventLog | ClusterLog) -> str:
    """Return a line for what limited the run, and one each for requests, steps, tokens, TTFT and so on.

    The summary of a foreign log also names its engine and its gaps, and has "unknown" in a row whose
    facts the log lacks. That of a cluster has those of its replicas.
    """
    if isinstance(log, ClusterLog):
        parts = [f"replica {part.name}\n{summary(part.log)}" for part in log.parts]
        return "\n\n".join([_of_cluster(log), *parts])
    return _Summary(log).text()


def _of_cluster(log: ClusterLog) -> str:
    """Return the lines about all replicas: what limited them, and how the router's decisions ended."""
    asked = read(log)
    rows = asked.decision_rows
    judged = [row for row in rows if row.prompt_tokens and row.cached_tokens is not None]
    found = sum(row.cached_tokens or 0 for row in judged)
    prompts = sum(row.prompt_tokens + row.output_tokens for row in judged)
    counts = {
        "routed again": len({row.request for row in rows if row.attempt > 1}),
        "continued": len({row.request for row in rows if row.output_tokens}),
        "lost": len({row.request for row in rows if row.lost}),
    }
    firsts: dict[int, float] = {}
    for row in rows:
        if row.ttft_ms is not None:
            firsts.setdefault(row.request, row.ttft_ms)
    lines = {
        "limit": asked.regimes.sentence,
        "requests": f"{len({row.request for row in rows}):,}"
        + _in_brackets({name: number for name, number in counts.items() if number}),
        "TTFT": percentiles_text(list(firsts.values())),
        "prefix cache": f"{found:,} of {prompts:,} prompt tokens found{_percent(found, prompts)}",
    }
    return "\n".join(f"{name:13}{text}" for name, text in lines.items())


class _Summary:
    """What is known of a log, and sums of it."""

    def __init__(self, log: EventLog) -> None:
        self.log, self.knows = log, read(log).knowledge
        self.known = known_of(log)
        self.regimes = regimes_of(log, self.known)
        self.steps, self.sums = array("q"), Counter[str]()
        self.output = 0  # tokens
        self.gaps: list[dict[str, Any]] = []
        for part in self.known.steps:
            self._add(part)

    def _add(self, part: Steps) -> None:
        """Add up the measures of some steps, of those that began in the log."""
        whole = [number > self.known.run.steps_before for number in part.step]
        began = [one != "pending" for one in part.status]
        self.steps.extend(compress(part.step, map(all, zip(whole, began, strict=True))))
        for name, values in zip(COUNTS, part.counts, strict=True):
            self.sums[name] += sum(compress(values, whole))
        self.output += sum(part.counts[COUNTS.index("output")])
        self.gaps += chain.from_iterable(part.missing)

    def text(self) -> str:
        """See `summary`."""
        known, knows, steps = self.known, self.knows, self.steps
        count = found = asked = forced = 0
        appeared = dict[str, int]()  # the first request that ended so
        ends, firsts = Counter[str](), _FirstTokens(known)
        for one in known.each_request("forced"):
            count += 1
            forced += len(one.forced)
            firsts.add(one)
            if one.finished is not None:
                reason = one.finished[1]
                ends[reason] += 1
                appeared[reason] = min(one.index, appeared.get(reason, one.index))
            # A request that was admitted before the log begins has 0 as that step.
            if one.id == one.root and one.admitted and one.admitted[0]:
                # Of a request that another replica began, its output may be cached, too.
                found += min(one.admitted[1], one.prompt_length)
                asked += one.prompt_length
        is_known = not knows.lacks("scheduled_tokens") and (count or not knows.source)
        output = self.output if is_known else None
        said = UNKNOWN if output is None else f"{output:,}"
        ended = {
            one: ends[one] for one in sorted(ends, key=lambda one: (-ends[one], appeared[one]))
        }
        ended |= {"unfinished": count - ends.total()}
        accepted, drafted = self.sums["accepted"], self.sums["drafted"]
        blocks = settings_of(self.log)["num_blocks"]
        used = max((used for part in known.plans for used in part.used), default=0)
        evicted = f"{self.sums['evicted']:,} evicted"
        rows = {
            "requests": f"{count:,}{_in_brackets({k: n for k, n in ended.items() if n})}",
            "steps": f"{len(steps):,}{self._run_time(output)}",
            "tokens": f"{self.sums['tokens']:,} computed, {said} output"
            + _in_brackets(
                {"forced": forced, "drafts accepted": accepted} if forced or accepted else {}
            ),
            "TTFT": percentiles_text(firsts.values),
            "ITL": _shown({_ITL.get(name, name): us / US_PER_MS for name, us in known.run.itl}),
            "prefix cache": f"{found:,} of {asked:,} prompt tokens found{_percent(found, asked)}",
            "drafts": self._drafts(accepted, drafted),
            "preemptions": f"{self.sums['preempted']:,}",
            "KV blocks": f"at most {used:,} of {blocks:,} held by requests, {evicted}",
        }
        if fetched := {tier: tokens for tier in _TIERS if (tokens := self.sums[tier])}:
            rows["prefix cache"] += "; fetched from " + " and ".join(
                f"{_TIERS[tier]}: {tokens:,}{_percent(tokens, asked)}"
                for tier, tokens in fetched.items()
            )
        if adapters := self._adapters():
            rows["adapters"] = adapters
        if not drafted:
            del rows["drafts"]
        if not steps:
            del rows["KV blocks"]
        rows = {"limit": self.regimes.sentence} | rows
        rows |= {name: UNKNOWN for name, facts in _NEEDS.items() if knows.lacks(*facts)}
        if knows.lacks("block_tables") and not knows.lacks("evictions"):
            rows["KV blocks"] = evicted
        if knows.source:
            rows = {"source": knows.origin} | rows
        if missing := self.gaps:
            rows["gaps"] = (
                f"{len(missing):,}, first: {gap_words(missing[0]['count'], missing[0]['message'])}"
            )
        if why := part_words(self.log):
            span = {"first": steps[0], "last": steps[-1]} if steps else {"first": 0, "last": 0}
            words = WORDS["part"].format(
                **{k: f"{n:,}" for k, n in (span | {"of": span["last"]}).items()}
            )
            rows = {"part": f"{words}: {why}"} | rows
        return "\n".join(f"{name:13}{text}" for name, text in rows.items())

    def _adapters(self) -> str:
        """Say how many adapters shared how many slots, and how often one had to leave; "" if none."""
        changes = [one for one in self.log.of(v.AdapterChanged) if one.adapter]
        if not changes:
            return ""
        different = len({one.adapter for one in changes})
        replaced = sum(bool(one.evicted) for one in changes)
        slots = settings_of(self.log)["max_loras"]
        return f"{different:,} in {slots:,} slots, loaded {len(changes):,} times, {replaced:,} replaced"

    def _drafts(self, accepted: int, drafted: int) -> str:
        """Say how many drafts were accepted; a row with drafts gains those and one more token."""
        if not drafted:
            return ""
        mean = 1 + accepted / max(1, self.sums["guessing"])
        share = f"{accepted:,} of {drafted:,} accepted{_percent(accepted, drafted)}"
        return f"{share}, {mean:.2f} tokens in each step of a request with drafts"

    def _run_time(self, output: int | None) -> str:
        """Return how long steps ran, the output tokens per second of it, and the other time."""
        busy, begin, last = sum(self.regimes.columns.steps.busy), None, 0.0
        if self.known.unit == "steps" or not busy:
            return ""
        for done in self.known.finished:
            begin = done.begin[0] or 0 if begin is None else begin
            last = max(last, *filter(None, done.end))
        whole = last - (begin or 0)
        words = f" in {duration(busy / 1000)}"
        if whole - busy >= IDLE_SHARE * whole:
            words += f", {duration((whole - busy) / 1000)} paused or idle not counted"
        if output is None:  # a foreign log may lack output tokens
            return words
        return f"{words}: {three_digits(1e6 * output / busy)} output tokens/s"


class _FirstTokens:
    """The TTFT of each request that has one, in ms: `values`."""

    def __init__(self, known: Known) -> None:
        self.values = array("d")
        self._paused, self._ends = known.paused, array("d")
        for done in known.finished:
            self._ends.extend(math.nan if end is None else end for end in done.end)

    def add(self, one: Request) -> None:
        """Add a request."""
        arrived: Any = one.arrived_at
        end: Any = math.nan if one.first_token is None else self._ends[one.first_token]
        if arrived is not None and not math.isnan(end):
            self.values.append((end - arrived - self._paused.between(arrived, end)) / US_PER_MS)


def three_digits(value: float) -> str:
    """Return a number with three significant digits and thousands separators."""
    return f"{float(f'{value:.3g}'):,.10g}"


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return {name: value} for the percentiles that this number of values supports."""
    values = sorted(values)
    return {
        name: quantile(values, share, is_sorted=True)
        for name, share in PERCENTILES.items()
        if len(values) >= MIN_VALUES[name]
    }


def percentiles_text(values: Sequence[float]) -> str:
    """Return the percentiles and the maximum of `values`, which are durations in ms."""
    return _shown(percentiles(values) | {"max": max(values, default=0)} if values else {})


def _shown(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {duration(value)}" for name, value in values.items()) or "none"


def _in_brackets(counts: dict[str, int]) -> str:
    return f" ({', '.join(f'{count:,} {name}' for name, count in counts.items())})" * bool(counts)


def _percent(part: int, whole: int) -> str:
    return f" ({100 * part / whole:.1f}%)" if whole else ""
