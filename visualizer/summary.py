"""A run in a few lines of text, for the shell."""

import pandas as pd

from engine.events import EventLog
from engine.events import vocabulary as v
from visualizer.durations import duration
from visualizer.settings import settings_of

PERCENTILES = {"median": 0.5, "p95": 0.95, "p99": 0.99}
ENOUGH = {"median": 1, "p95": 20, "p99": 100}  # values, before a percentile says anything


def summary(log: EventLog) -> str:
    """Requests and their ends, steps, tokens, TTFT and ITL, memory, the prefix cache."""
    requests, steps, tokens = log.requests, log.steps, log.tokens
    prompts = requests[(requests["sample"] == 0) & requests.cached_tokens.notna()]
    found, asked = int(prompts.cached_tokens.sum()), int(prompts.prompt_tokens.sum())
    ends = requests.finish_reason.value_counts().to_dict()
    ends["unfinished"] = int(requests.finish_reason.isna().sum())
    forced, accepted = int(tokens.forced.sum()), int(tokens.drafted.sum())
    drafted = int(steps.drafted_tokens.sum())
    blocks = settings_of(log)["num_blocks"]
    rows = {
        "requests": f"{len(requests):,}{_listed({k: n for k, n in ends.items() if n})}",
        "steps": f"{len(steps):,}{_lasted(steps)}",
        "tokens": f"{steps.tokens.sum():,} computed, {len(tokens):,} output"
        + _listed({"forced": forced, "drafts accepted": accepted} if forced or accepted else {}),
        "TTFT": _percentiles(requests.ttft_ms),
        "ITL": _percentiles(tokens.gap_ms),
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
        rows["window"] = f"begins after step {log[0].state['step']}; what came before is missing"
    return "\n".join(f"{name:13}{said}" for name, said in rows.items())


def number(value: float) -> str:
    """Three significant digits, thousands set apart."""
    return f"{float(f'{value:.3g}'):,.10g}"


def _percentiles(values: pd.Series) -> str:
    values = values.dropna()
    told = [
        f"{name} {duration(values.quantile(share))}"
        for name, share in PERCENTILES.items()
        if len(values) >= ENOUGH[name]
    ]
    return ", ".join([*told, f"max {duration(values.max())}"] if told else ["none"])


def _lasted(steps: pd.DataFrame) -> str:
    """Seconds from the first to the last, and the tokens of that time."""
    ms = (steps.start_ms + steps.duration_ms).max() - steps.start_ms.min()
    if not ms > 0:
        return ""
    output = steps.sampled_tokens.sum() + steps.forced_tokens.sum()
    return f" in {duration(ms)}: {number(1000 * output / ms)} output tokens/s"


def _listed(counts: dict[str, int]) -> str:
    return f" ({', '.join(f'{count:,} {name}' for name, count in counts.items())})" * bool(counts)


def _percent(part: int, whole: int) -> str:
    return f" ({100 * part / whole:.1f}%)" if whole else ""
