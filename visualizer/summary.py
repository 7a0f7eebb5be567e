"""A summary of a run in a few lines of text, for the shell."""

import pandas as pd

from engine.events import EventLog
from engine.events import vocabulary as v
from engine.events.durations import duration
from visualizer.logs import settings_of

PERCENTILES = {"median": 0.5, "p95": 0.95, "p99": 0.99}
MIN_VALUES = {"median": 1, "p95": 20, "p99": 100}  # with fewer, a percentile is meaningless


def summary(log: EventLog) -> str:
    """Return one line each for requests, steps, tokens, TTFT, ITL, prefix cache and memory."""
    requests, steps, tokens = log.requests, log.steps, log.tokens
    prompts = requests[(requests["sample"] == 0) & requests.cached_tokens.notna()]
    found, asked = int(prompts.cached_tokens.sum()), int(prompts.prompt_tokens.sum())
    ends = requests.finish_reason.value_counts().to_dict()
    ends["unfinished"] = int(requests.finish_reason.isna().sum())
    forced, accepted = int(tokens.forced.sum()), int(tokens.drafted.sum())
    drafted = int(steps.drafted_tokens.sum())
    blocks = settings_of(log)["num_blocks"]
    rows = {
        "requests": f"{len(requests):,}{_in_brackets({k: n for k, n in ends.items() if n})}",
        "steps": f"{len(steps):,}{_run_time(steps)}",
        "tokens": f"{steps.tokens.sum():,} computed, {len(tokens):,} output"
        + _in_brackets(
            {"forced": forced, "drafts accepted": accepted} if forced or accepted else {}
        ),
        "TTFT": percentiles_text(requests.ttft_ms.dropna()),
        "ITL": percentiles_text(tokens.gap_ms.dropna()),
        "prefix cache": f"{found:,} of {asked:,} prompt tokens found{_percent(found, asked)}",
        "drafts": f"{accepted:,} of {drafted:,} accepted{_percent(accepted, drafted)}",
        "preemptions": f"{steps.preempted.sum():,}",
        "KV blocks": f"at most {steps.used_blocks.max():,} of {blocks:,} held by requests, "
        f"{steps.evicted_blocks.sum():,} evicted",
    }
    if not drafted:
        del rows["drafts"]
    if steps.empty:
        del rows["KV blocks"]
    if isinstance(log[0], v.Keyframe):
        rows["window"] = f"begins after step {log[0].state['step']}; earlier events are missing"
    return "\n".join(f"{name:13}{text}" for name, text in rows.items())


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


def _run_time(steps: pd.DataFrame) -> str:
    """Return the time from the first step to the last and the output tokens per second."""
    ms = (steps.start_ms + steps.duration_ms).max() - steps.start_ms.min()
    if not ms > 0:
        return ""
    output = steps.sampled_tokens.sum() + steps.forced_tokens.sum()
    return f" in {duration(ms)}: {three_digits(1000 * output / ms)} output tokens/s"


def _in_brackets(counts: dict[str, int]) -> str:
    return f" ({', '.join(f'{count:,} {name}' for name, count in counts.items())})" * bool(counts)


def _percent(part: int, whole: int) -> str:
    return f" ({100 * part / whole:.1f}%)" if whole else ""
