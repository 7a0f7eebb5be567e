"""A summary of a run in a few lines of text, for the shell."""

import pandas as pd

from engine.events import EventLog
from engine.events import vocabulary as v
from engine.events.durations import duration
from engine.events.facts import Fact
from engine.events.knowledge import UNKNOWN, gap_words
from visualizer.logs import settings_of

PERCENTILES = {"median": 0.5, "p95": 0.95, "p99": 0.99}
# What a foreign log has to know for a row.
_NEEDS: dict[str, tuple[Fact, ...]] = {
    "requests": ("arrivals",),
    "tokens": ("scheduled_tokens",),
    "TTFT": ("arrivals", "step_times"),
    "ITL": ("scheduled_tokens", "admissions", "step_times"),
    "prefix cache": ("cached_tokens",),
    "preemptions": ("preemptions",),
    "KV blocks": ("block_tables", "evictions"),
}
MIN_VALUES = {"median": 1, "p95": 20, "p99": 100}  # with fewer, a percentile is meaningless


def summary(log: EventLog) -> str:
    """Return one line each for requests, steps, tokens, TTFT, ITL, prefix cache and memory.

    For a foreign log: also its engine and its gaps, and "unknown" where it lacks the facts.
    """
    knows = log.knowledge
    requests, steps, tokens = log.requests, log.steps, log.tokens
    prompts = requests[(requests["sample"] == 0) & requests.cached_tokens.notna()]
    found, asked = int(prompts.cached_tokens.sum()), int(prompts.prompt_tokens.sum())
    ends = requests.finish_reason.value_counts().to_dict()
    ends["unfinished"] = int(requests.finish_reason.isna().sum())
    forced, accepted = int(tokens.forced.sum()), int(tokens.drafted.sum())
    drafted = int(steps.drafted_tokens.sum())
    blocks = settings_of(log)["num_blocks"]
    evicted = f"{steps.evicted_blocks.sum():,} evicted"
    rows = {
        "requests": f"{len(requests):,}{_in_brackets({k: n for k, n in ends.items() if n})}",
        "steps": f"{len(steps):,}{_run_time(steps)}",
        "tokens": f"{steps.tokens.sum():,} computed, {_output(steps, tokens)} output"
        + _in_brackets(
            {"forced": forced, "drafts accepted": accepted} if forced or accepted else {}
        ),
        "TTFT": percentiles_text(requests.ttft_ms.dropna()),
        "ITL": percentiles_text(tokens.gap_ms.dropna()),
        "prefix cache": f"{found:,} of {asked:,} prompt tokens found{_percent(found, asked)}",
        "drafts": f"{accepted:,} of {drafted:,} accepted{_percent(accepted, drafted)}, "
        f"{_tokens_per_draft(log, accepted):.2f} tokens in each step of a request with drafts",
        "preemptions": f"{steps.preempted.sum():,}",
        "KV blocks": f"at most {steps.used_blocks.max():,} of {blocks:,} held by requests, {evicted}",
    }
    if not drafted:
        del rows["drafts"]
    if steps.empty:
        del rows["KV blocks"]
    rows |= {name: UNKNOWN for name, facts in _NEEDS.items() if knows.lacks(*facts)}
    if knows.lacks("block_tables") and not knows.lacks("evictions"):
        rows["KV blocks"] = evicted
    if knows.source:
        rows = {"source": knows.origin} | rows
        gaps = log.of(v.EventsMissing)
        if gaps:
            rows["gaps"] = f"{len(gaps):,}, first: {gap_words(gaps[0])}"
    if isinstance(log[0], v.Keyframe):
        rows["window"] = f"begins after step {log[0].state['step']}; earlier events are missing"
    return "\n".join(f"{name:13}{text}" for name, text in rows.items())


def _tokens_per_draft(log: EventLog, accepted: int) -> float:
    """Return the tokens of a row with drafts: those that are accepted, and one more."""
    rows = sum(bool(row.drafts) for event in log.of(v.StepScheduled) for row in event.rows)
    return 1 + accepted / max(1, rows)


def three_digits(value: float) -> str:
    """Return a number with three significant digits and thousands separators."""
    return f"{float(f'{value:.3g}'):,.10g}"


def percentiles(values: pd.Series) -> dict[str, float]:
    """Return {name: share} for the percentiles that this number of values supports."""
    return {name: p for name, p in PERCENTILES.items() if len(values) >= MIN_VALUES[name]}


def percentiles_text(values: pd.Series) -> str:
    """Return the percentiles and the maximum of `values`, which are durations in ms."""
    shown = [
        f"{name} {duration(values.quantile(share))}" for name, share in percentiles(values).items()
    ]
    return ", ".join([*shown, f"max {duration(values.max())}"]) if shown else "none"


def _output(steps: pd.DataFrame, tokens: pd.DataFrame) -> str:
    """Return the number of output tokens; a foreign log may have only counts of computed ones."""
    return UNKNOWN if steps.sampled_tokens.isna().any() else f"{len(tokens):,}"


def _run_time(steps: pd.DataFrame) -> str:
    """Return the time from the first step to the last and the output tokens per second."""
    ms = (steps.start_ms + steps.duration_ms).max() - steps.start_ms.min()
    if not ms > 0:
        return ""
    if steps.sampled_tokens.isna().any():  # a foreign log may not have them
        return f" in {duration(ms)}"
    output = steps.sampled_tokens.sum() + steps.forced_tokens.sum()
    return f" in {duration(ms)}: {three_digits(1000 * output / ms)} output tokens/s"


def _in_brackets(counts: dict[str, int]) -> str:
    return f" ({', '.join(f'{count:,} {name}' for name, count in counts.items())})" * bool(counts)


def _percent(part: int, whole: int) -> str:
    return f" ({100 * part / whole:.1f}%)" if whole else ""
