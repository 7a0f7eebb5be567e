"""A summary of a run in a few lines of text, for the shell."""

from collections import Counter
from collections.abc import Iterable, Sequence

from engine.cluster.cluster_log import ClusterLog
from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from engine.simulation.facts import Fact
from engine.simulation.quantile import quantile
from visualizer.logs import settings_of
from visualizer.reading.busy_time import busy_us
from visualizer.reading.durations import duration
from visualizer.reading.knowledge import UNKNOWN, WORDS, gap_words, part_words
from visualizer.reading.reading import read
from visualizer.reading.rows import OutputTokenRow, StepRow

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
IDLE_SHARE = 0.01  # of the run: less time without a step is not worth words
MIN_VALUES = {"median": 1, "p95": 20, "p99": 100}  # with fewer, a percentile is meaningless


def summary(log: EventLog | ClusterLog) -> str:
    """Return a line for what limited the run, and one each for requests, steps, tokens, TTFT and so on.

    The summary of a foreign log also names its engine and its gaps, and has "unknown" in a row whose
    facts the log lacks. That of a cluster has those of its replicas.
    """
    if isinstance(log, ClusterLog):
        parts = [f"replica {name}\n{summary(one)}" for name, one in log.replicas.items()]
        return "\n\n".join([read(log).regimes.sentence, *parts])
    knows = read(log).knowledge
    requests, steps, tokens = read(log).request_rows, read(log).step_rows, read(log).token_rows
    prompts = [row for row in requests if row.sample == 0 and row.cached_tokens is not None]
    found = _total(row.cached_tokens for row in prompts)
    asked = _total(row.prompt_tokens for row in prompts)
    ends = Counter[str](row.finish_reason for row in requests if row.finish_reason is not None)
    ended = dict(ends.most_common()) | {"unfinished": len(requests) - ends.total()}
    forced, accepted = _total(row.forced for row in tokens), _total(row.drafted for row in tokens)
    drafted = _total(row.drafted_tokens for row in steps)
    blocks = settings_of(log)["num_blocks"]
    used = max((row.used_blocks or 0 for row in steps), default=0)
    evicted = f"{_total(row.evicted_blocks for row in steps):,} evicted"
    rows = {
        "requests": f"{len(requests):,}{_in_brackets({k: n for k, n in ended.items() if n})}",
        "steps": f"{len(steps):,}{_run_time(log, steps)}",
        "tokens": f"{_total(row.tokens for row in steps):,} computed, {_output(steps, tokens)} output"
        + _in_brackets(
            {"forced": forced, "drafts accepted": accepted} if forced or accepted else {}
        ),
        "TTFT": percentiles_text([row.ttft_ms for row in requests if row.ttft_ms is not None]),
        "ITL": percentiles_text([row.gap_ms for row in tokens if row.gap_ms is not None]),
        "prefix cache": f"{found:,} of {asked:,} prompt tokens found{_percent(found, asked)}",
        "drafts": _drafts(log, accepted, drafted),
        "preemptions": f"{_total(row.preempted for row in steps):,}",
        "KV blocks": f"at most {used:,} of {blocks:,} held by requests, {evicted}",
    }
    if not drafted:
        del rows["drafts"]
    if not steps:
        del rows["KV blocks"]
    rows = {"limit": read(log).regimes.sentence} | rows
    rows |= {name: UNKNOWN for name, facts in _NEEDS.items() if knows.lacks(*facts)}
    if knows.lacks("block_tables") and not knows.lacks("evictions"):
        rows["KV blocks"] = evicted
    if knows.source:
        rows = {"source": knows.origin} | rows
        gaps = log.of(v.EventsMissing)
        if gaps:
            rows["gaps"] = f"{len(gaps):,}, first: {gap_words(gaps[0])}"
    if why := part_words(log):
        span = (
            {"first": steps[0].step, "last": steps[-1].step} if steps else {"first": 0, "last": 0}
        )
        words = WORDS["part"].format(
            **{k: f"{n:,}" for k, n in (span | {"of": span["last"]}).items()}
        )
        rows = {"part": f"{words}: {why}"} | rows
    return "\n".join(f"{name:13}{text}" for name, text in rows.items())


def _drafts(log: EventLog, accepted: int, drafted: int) -> str:
    """Say how many drafts were accepted; a row with drafts gains those and one more token."""
    if not drafted:
        return ""
    rows = sum(bool(row.drafts) for event in log.each(v.StepScheduled) for row in event.rows)
    mean = 1 + accepted / max(1, rows)
    share = f"{accepted:,} of {drafted:,} accepted{_percent(accepted, drafted)}"
    return f"{share}, {mean:.2f} tokens in each step of a request with drafts"


def three_digits(value: float) -> str:
    """Return a number with three significant digits and thousands separators."""
    return f"{float(f'{value:.3g}'):,.10g}"


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return {name: value} for the percentiles that this number of values supports."""
    return {
        name: quantile(values, share)
        for name, share in PERCENTILES.items()
        if len(values) >= MIN_VALUES[name]
    }


def percentiles_text(values: Sequence[float]) -> str:
    """Return the percentiles and the maximum of `values`, which are durations in ms."""
    shown = [f"{name} {duration(value)}" for name, value in percentiles(values).items()]
    return ", ".join([*shown, f"max {duration(max(values))}"]) if shown else "none"


def _total(counts: Iterable[int | None]) -> int:
    """Return the sum of the known counts."""
    return sum(filter(None, counts))


def _output(steps: list[StepRow], tokens: list[OutputTokenRow]) -> str:
    """Return the number of output tokens, or "unknown" for a foreign log without it."""
    return UNKNOWN if any(row.sampled_tokens is None for row in steps) else f"{len(tokens):,}"


def _run_time(log: EventLog, steps: list[StepRow]) -> str:
    """Return the time in which steps ran and the output tokens per second of it, and the other time."""
    busy, whole = busy_us(log)
    if not busy:
        return ""
    words = f" in {duration(busy / 1000)}"
    if whole - busy >= IDLE_SHARE * whole:
        words += f", {duration((whole - busy) / 1000)} paused or idle not counted"
    if any(row.sampled_tokens is None for row in steps):  # a foreign log may lack output tokens
        return words
    output = _total(row.sampled_tokens for row in steps) + sum(row.forced_tokens for row in steps)
    return f"{words}: {three_digits(1e6 * output / busy)} output tokens/s"


def _in_brackets(counts: dict[str, int]) -> str:
    return f" ({', '.join(f'{count:,} {name}' for name, count in counts.items())})" * bool(counts)


def _percent(part: int, whole: int) -> str:
    return f" ({100 * part / whole:.1f}%)" if whole else ""
