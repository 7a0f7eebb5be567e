"""The engine's settings, each declared once: its type, its bounds, its meaning and its default.

Each switch turns off one idea of LLM serving, so a lesson can show what that idea is good for. The
options of `underglass serve`, the form that restarts an engine, the playground's controls, the error
messages and the table in `docs/glossary.md`, which maps each setting to the flags of vLLM and SGLang,
are all derived from the declarations: see `settings_of`.
"""

import sys
from collections.abc import Iterable, Iterator
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec
from msgspec import Meta


class ConfigError(ValueError):
    """A setting is invalid. The message names the field, the value and the valid values."""


def setting(help: str, *, ge: float | None = None, le: float | None = None, **extra: Any) -> Meta:
    """Return the declaration of a setting: its meaning, its bounds, and more by name."""
    return Meta(description=help, ge=ge, le=le, extra=extra)


_PRESETS: dict[str, dict[str, Any]] = {
    "vllm": {"admission": "whole", "prefix_cache": "hash"},
    "sglang": {"admission": "first_chunk", "prefix_cache": "radix"},
}


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a step, the size of the KV memory, and which ideas are on.

    vllm, sglang  the flags that do the same there, for the setting or for each of its values
    range         what the playground offers: minimum, maximum and step
    """

    token_budget: Annotated[
        int,
        setting(
            "Maximum number of tokens computed in one step, over all requests.",
            ge=1,
            range=(4, 256, 1),
            vllm="`--max-num-batched-tokens`",
            sglang="`--chunked-prefill-size`, `--max-prefill-tokens` (prefill only)",
        ),
    ] = 64
    max_batch_size: Annotated[
        int,
        setting(
            "Seats in the batch: the maximum number of running samples.",
            ge=1,
            range=(1, 32, 1),
            vllm="`--max-num-seqs`",
            sglang="`--max-running-requests`",
        ),
    ] = 8
    max_kv_tokens: Annotated[
        int,
        setting(
            "Size of the KV memory in token slots, rounded down to whole blocks.",
            ge=1,
            range=(64, 2048, 8),
            vllm="derived from `--gpu-memory-utilization`; `--num-gpu-blocks-override` sets it in "
            "blocks",
            sglang="`--max-total-tokens`; derived from `--mem-fraction-static` by default",
        ),
    ] = 2048
    block_size: Annotated[
        int,
        setting(
            "Token slots per KV block.",
            ge=1,
            range=(1, 32, 1),
            vllm="`--block-size`",
            sglang="`--page-size`",
        ),
    ] = 16
    policy: Annotated[
        Literal["fcfs", "priority", "sjf", "lpm", "fair"],
        setting(
            "Order of the queue: fcfs, first come first served; priority; sjf, shortest job first; "
            "lpm, longest prefix match; or fair, the label with the least service first.",
            vllm={
                "fcfs": "`--scheduling-policy fcfs`",
                "priority": "`--scheduling-policy priority` (lower is more urgent, as here)",
            },
            sglang={
                "fcfs": "`--schedule-policy fcfs`",
                "priority": "`--enable-priority-scheduling` (higher first by default)",
                "sjf": "– (`--schedule-policy lof` is the opposite: longest output first)",
                "lpm": "`--schedule-policy lpm`; for in-batch sharing, the environment variables "
                "`IN_BATCH_PREFIX_CACHING_CHECK_THRESHOLD` and `..._DEPRIORITIZE_THRESHOLD`, both 32 "
                "tokens",
                "fair": "–",
            },
        ),
    ] = "fcfs"
    batching: Annotated[
        Literal["continuous", "static"],
        setting(
            "continuous: a free seat is filled in the next step; static: a batch runs until its last "
            "request has finished.",
            vllm={"static": "– (always continuous)"},
            sglang={"static": "– (always continuous)"},
        ),
    ] = "continuous"
    chunked_prefill: Annotated[
        bool,
        setting(
            "Split a prompt that does not fit into the token budget of a step.",
            vllm="`--enable-chunked-prefill` (on by default)",
            sglang="`--chunked-prefill-size -1` switches it off",
        ),
    ] = True
    admission: Annotated[
        Literal["whole", "first_chunk"],
        setting(
            "whole: admit a request if all its tokens fit into memory beside the running requests; "
            "first_chunk: if its first chunk fits, at the risk that it is soon preempted.",
            vllm={
                "whole": "`--scheduler-reserve-full-isl` (on by default)",
                "first_chunk": "`--no-scheduler-reserve-full-isl`",
            },
        ),
    ] = "whole"
    prefix_cache: Annotated[
        Literal["radix", "hash", "off"] | bool,
        setting(
            "Keep KV blocks for later requests with the same prefix: radix, in a tree as SGLang does; "
            "hash, in a hash table as vLLM does; or off.",
            vllm={
                "radix": "–",
                "hash": "`--enable-prefix-caching` (on by default)",
                "off": "`--no-enable-prefix-caching`",
            },
            sglang={"radix": "the default", "off": "`--disable-radix-cache`"},
        ),
    ] = "radix"
    eviction: Annotated[
        Literal["lru", "lfu"],
        setting(
            "Which leaf of the tree is evicted first: lru, the least recently used one; or lfu, the "
            "least frequently used one.",
            vllm="– (always LRU, block by block)",
            sglang="`--radix-eviction-policy`: `lru`, `lfu`, `slru`, `priority`, `tlru`",
        ),
    ] = "lru"
    preemption: Annotated[
        bool,
        setting(
            "Admit optimistically, and preempt when KV memory runs out; if off, reserve each request's "
            "maximum at admission.",
            sglang={False: "the closest is a high `--schedule-conservativeness`"},
        ),
    ] = True
    async_scheduling: Annotated[
        bool,
        setting(
            "Schedule a step while the one before is computed, so that neither waits; a stop token is "
            "noticed one step late. Cannot be combined with a drafter.",
            vllm="`--async-scheduling` (on by default where supported)",
            sglang="`--disable-overlap-schedule` switches it off",
        ),
    ] = False
    jump_forward: Annotated[
        bool,
        setting(
            "Append the tokens that a grammar forces without sampling them; they are computed with the "
            "next row.",
            sglang="jump-forward decoding, in its early versions",
        ),
    ] = True

    def __post_init__(self) -> None:
        if isinstance(self.prefix_cache, bool):
            kind = "radix" if self.prefix_cache else "off"
            msgspec.structs.force_setattr(self, "prefix_cache", kind)
        if wrong := wrong_field(self):
            raise ConfigError(" ".join(wrong))
        if self.prefix_cache == "hash" and self.eviction != "lru":
            raise ConfigError(
                'eviction must be "lru" if prefix_cache is "hash", because its queue evicts in that '
                f"order; got {self.eviction!r}"
            )
        if self.max_kv_tokens < self.block_size:
            raise ConfigError(
                f"max_kv_tokens must be at least block_size ({self.block_size}), got "
                f"{self.max_kv_tokens}"
            )

    @classmethod
    def like(cls, engine: str, **settings: Any) -> "EngineConfig":
        """Return the settings that make the engine decide as vLLM ("vllm") or SGLang ("sglang") does.

        `settings` extend or override the preset. `docs/glossary.md` says what each preset covers.
        Raises ConfigError for an unknown engine or setting.
        """
        if not isinstance(engine, str) or engine not in _PRESETS:
            raise ConfigError(f"engine must be {_any_of(_PRESETS)}, got {engine!r}")
        return cls(**_PRESETS[engine]).changed(**settings)

    def changed(self, **settings: Any) -> "EngineConfig":
        """Return a copy with other settings. Raises ConfigError, also for an unknown setting."""
        for name in settings:
            if name not in self.__struct_fields__:
                raise ConfigError(
                    f"{name} is not a setting; the settings are {', '.join(self.__struct_fields__)}"
                )
        return msgspec.structs.replace(self, **settings)

    @property
    def num_blocks(self) -> int:
        """The number of KV blocks in memory."""
        return self.max_kv_tokens // self.block_size

    def blocks_for(self, tokens: int) -> int:
        """Return the number of KV blocks needed for `tokens` tokens."""
        return -(-tokens // self.block_size)


def checked(config: EngineConfig | None) -> EngineConfig:
    """Return `config`, or the defaults for None. Raises ConfigError for anything else."""
    config = EngineConfig() if config is None else config
    if not isinstance(config, EngineConfig):
        raise ConfigError(f"config must be an EngineConfig(...), got {config!r}")
    return config


class Setting(NamedTuple):
    """A setting, as its field is declared: `choices` are its values if it has a list of them."""

    name: str
    kind: Any
    default: Any
    choices: tuple[str, ...]
    help: str
    ge: float | None
    le: float | None
    extra: dict[str, Any]


def settings_of(struct: type[msgspec.Struct]) -> Iterator[Setting]:
    """Yield the fields that are declared with `setting`, in order."""
    for field in _fields(struct):
        if get_origin(field.type) is Annotated:
            kind, meta = get_args(field.type)
            literals = [one for one in (kind, *get_args(kind)) if get_origin(one) is Literal]
            yield Setting(
                name=field.name,
                kind=kind,
                default=field.default,
                choices=get_args(literals[0]) if literals else (),
                help=meta.description,
                ge=meta.ge,
                le=meta.le,
                extra=meta.extra,
            )


def wrong_field(struct: msgspec.Struct) -> tuple[str, str] | None:
    """Return the first field whose value its declared type excludes, and "must be ..., got ...".

    Lists become tuples where the type is one.
    """
    kind = type(struct)
    try:
        msgspec.convert(struct, _schema(kind), from_attributes=True)
    except _INVALID:
        for field in _fields(kind):
            if not _fits(value := getattr(struct, field.name), field.type):
                return field.name, _must_be(field.type, value)
    for name in _tuples(kind):
        if (value := getattr(struct, name)) is not None:
            msgspec.structs.force_setattr(struct, name, tuple(value))
    return None


_fields = cache(msgspec.structs.fields)
# msgspec asks even a sequence for `keys` where it needs a dict.
_INVALID = (msgspec.ValidationError, AttributeError)


@cache
def _schema(struct: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Return a struct with the same fields, whose constructor checks nothing."""
    return msgspec.defstruct(
        struct.__name__, [(field.name, field.type) for field in _fields(struct)]
    )


@cache
def _tuples(struct: type[msgspec.Struct]) -> list[str]:
    return [field.name for field in _fields(struct) if "tuple[" in str(field.type)]


def _fits(value: Any, kind: Any) -> bool:
    """Return whether a type allows a value. Unlike msgspec, accept subclasses of float, as NumPy's."""
    try:
        msgspec.convert(_plain(value), kind)
    except _INVALID:
        return False
    return True


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return float(value) if isinstance(value, float) else value


def _must_be(kind: Any, value: Any) -> str:
    """Return "must be ..., got ...". Of a list or a dict, show only the first invalid entry."""
    entries: list[Any] = []
    if isinstance(value, list | tuple):
        entries = [([one], repr(one)) for one in value]
    elif isinstance(value, dict):
        entries = [({key: one}, f"{key!r}: {one!r}") for key, one in value.items()]
    wrong = (f"{text} among them" for entry, text in entries if not _fits(entry, kind))
    return f"must be {_in_words(kind)}, got {next(wrong, repr(value))}"


def _in_words(kind: Any, *, many: bool = False) -> str:
    """Return a type in words: "a whole number of at least 1", or "whole numbers of at least 1"."""
    kind, meta = get_args(kind) if get_origin(kind) is Annotated else (kind, Meta())
    parts = get_args(kind)
    match get_origin(kind) or kind:
        case origin if origin in (Union, UnionType):
            return _or(word for one in parts for word in _alternatives(one, many))
        case origin if origin is Literal:
            return _any_of(parts)
        case origin if origin is dict:
            keys, values = (_in_words(one, many=True) for one in parts)
            return f"a dict from {keys} to {values}"
        case origin if origin is tuple:
            noun = "list of " + _in_words(parts[0], many=True)
        case other:
            noun = _NOUNS.get(other, other.__name__)
    if meta.min_length:
        noun = f"non-empty {noun}"
    if kind in (bool, NoneType):
        return noun
    return f"{noun}s{_bounds(meta)}" if many else f"a {noun}{_bounds(meta)}"


_NOUNS = {
    bool: "True or False",
    NoneType: "None",
    int: "whole number",
    float: "number",
    str: "string",
}


def _bounds(meta: Meta) -> str:
    """Return the bounds of a number in words. The largest float is a bound that excludes only inf."""
    most = None if meta.le in (None, sys.float_info.max) else f"{meta.le:g}"
    if meta.ge == sys.float_info.min:
        return " above 0" + (f" and at most {most}" if most else "")
    if most:
        return f" from {meta.ge:g} to {most}"
    return "" if meta.ge is None else f" of at least {meta.ge:g}"


def _alternatives(kind: Any, many: bool) -> Iterable[str]:
    """Return what a part of a union allows, so that all of it is one list of words."""
    if get_origin(kind) is Literal:
        return (f'"{name}"' for name in get_args(kind))
    return ("True", "False") if kind is bool else (_in_words(kind, many=many),)


def _any_of(names: Iterable[str]) -> str:
    """Return '"a", "b" or "c"'."""
    return _or(f'"{name}"' for name in names)


def _or(words: Iterable[str]) -> str:
    """Return "one, two or three"."""
    *others, last = words
    return f"{', '.join(others)} or {last}"
