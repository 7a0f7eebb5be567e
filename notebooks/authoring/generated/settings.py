"""The tables of settings in docs/glossary.md and of metrics in docs/metrics.md."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily

from engine.core.config import EngineConfig
from engine.core.declared import Setting, settings_of
from server.api.metrics import METRICS
from server.core.settings import ServerSettings, Start

_NONE = "–"  # the other engine has no such flag


def _rows_of(setting: Setting, name: str) -> Iterator[tuple[str, str, str]]:
    """A row, or one for each value that has flags of its own."""
    flags = [setting.extra.get(engine, _NONE) for engine in ("vllm", "sglang")]
    by_value = [one for one in flags if isinstance(one, dict)]
    if not by_value:
        state = {True: " (on by default)", False: " (off by default)"}.get(setting.default, "")
        yield f"`{name}`{state if setting.kind is bool else ''}", *flags
    for value in dict.fromkeys(value for one in by_value for value in one):
        shown = f'"{value}"' if isinstance(value, str) else value
        of_value = [one.get(value, _NONE) if isinstance(one, dict) else one for one in flags]
        yield f"`{name}={shown}`", *of_value


def table_of_flags() -> str:
    """Return the flags of vLLM and SGLang for each setting."""
    rows: list[tuple[str, ...]] = [
        row for one in settings_of(EngineConfig) for row in _rows_of(one, one.name)
    ]
    for struct in (ServerSettings, Start):
        for one in settings_of(struct):
            if "vllm" in one.extra:
                rows += _rows_of(one, "--" + one.name.replace("_", "-"))
    return _table("| here | vLLM | SGLang |", rows)


def _table(head: str, rows: list[tuple[str, ...]]) -> str:
    lines = [head, "|---" * len(rows[0]) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "".join(f"{line}\n" for line in lines)


def table_of_metrics() -> str:
    """Return what each metric measures."""
    rows = list[tuple[str, ...]]()
    for one in METRICS:
        total = "_total" if one.kind is CounterMetricFamily else ""
        by = f" By {', '.join(f'`{label}`' for label in one.labels)}." if one.labels else ""
        rows.append((f"`{one.name}{total}`", one.help + by))
    return _table("| metric | what it is here |", rows)
