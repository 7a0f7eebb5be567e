"""Lesson 22: the bytes of KV that a sequence takes, from a model's configuration."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from checks.answer import Answer
from checks.broken import Promises
from checks.guard import call
from engine.models.configurations import CONFIGURATIONS
from engine.models.kv_sizes import kv_sizes

ANSWERS = {
    "heads": Answer(
        12,
        {
            26: "Twice as many keys and values would halve the number. How many heads share a pair?",
            52: "The parameters stay about the same. But the picture has no room for more KV.",
            48: "Some weights are larger, which costs a few users, but the KV costs far more.",
        },
        source="The configuration",
    ),
    "latent": Answer(
        "a fifth",
        {
            "ten times as much": "It has ten times the parameters. Which of them does a token keep?",
            "twice as much": "It has twice as many heads, but it keeps nothing for a head.",
            "as much": "Both have many layers. But what does a layer keep?",
        },
        source="The configuration",
        fits=lambda share: 0.15 < share < 0.25,
    ),
}
HINTS = (
    "First count the values that one token leaves in one layer. Then count, layer by layer, the tokens "
    "that it keeps.",
    "`config.get(name)` is None for a missing entry and for a null one. A latent vector takes the "
    "place of all heads. A sliding layer keeps at most the window.",
)
Config = Mapping[str, Any]
KVBytes = Callable[[Config, int, int], int]


class Promise(Promises):
    """The promises that the check tests."""

    NUMBER = "the answer is a number of bytes"
    TWICE = "a head keeps a key and a value of each token"
    TOKENS = "every token of a sequence is kept"
    BYTES = "a value takes bytes_per_value bytes"
    LAYERS = "every layer keeps its own"
    HEADS = "without num_key_value_heads, every head has its own keys and values"
    KV_HEADS = "num_key_value_heads says how many heads have keys and values"
    HEAD_DIM = "head_dim is a head's size; without it, the heads share hidden_size"
    FULL = "a layer that does not slide keeps every token, whatever sliding_window says"
    SHORT = "a window that is not full holds the tokens that there are"
    WINDOW = "a sliding layer keeps at most sliding_window tokens"
    LATENT = "with kv_lora_rank, a layer keeps one vector of each token, and nothing for a head"
    REAL = "a published model has the size that its configuration says"


@dataclass(frozen=True)
class Case:
    """A configuration, a sequence, and the promise that an answer breaks if it is wrong."""

    promise: Promise
    look: str
    config: Config
    tokens: int
    bytes_per_value: int
    right: int

    def __str__(self) -> str:
        entries = ", ".join(f"{name}: {_short(value)}" for name, value in self.config.items())
        return (
            f"{self.tokens:,} tokens, {self.bytes_per_value} bytes a value. The model: {entries}."
        )


def _short(value: Any) -> str:
    if not isinstance(value, list):
        return "null" if value is None else f"{value}"
    names = [str(one).removesuffix("_attention") for one in value]
    return f"[{', '.join(names[:8])}{', ...' if len(names) > 8 else ''}]"


def adapt(part: KVBytes | None) -> KVBytes:
    """Return the learner's function if it passed, otherwise ours."""
    return part or truth


def truth(config: Config, tokens: int, bytes_per_value: int) -> int:
    """Return the bytes of a sequence."""
    entries = {name: value for name, value in config.items() if value is not None}
    heads = entries["num_attention_heads"]
    values = 2 * entries.get("num_key_value_heads", heads)
    values *= entries.get("head_dim", entries["hidden_size"] // heads)
    if latent := entries.get("kv_lora_rank"):
        values = latent + entries["qk_rope_head_dim"]
    layers = entries["num_hidden_layers"]
    sliding = entries.get("layer_types", []).count("sliding_attention")
    kept = (layers - sliding) * tokens + sliding * min(
        tokens, entries.get("sliding_window", tokens)
    )
    return int(kept * values * bytes_per_value)


def layer_types(name: str) -> list[str]:
    """Return the kind of each layer of a known model, which some files give by a rule."""
    return [
        "full_attention" if one.window is None else "sliding_attention"
        for one in kv_sizes(CONFIGURATIONS[name].entries).layers
        for _ in range(one.layers)
    ]


def written_out(name: str) -> dict[str, Any]:
    """Return a known model's configuration, flat and with the entries that its family implies."""
    entries = CONFIGURATIONS[name].entries
    flat = {**entries, **entries.get("text_config", {})}
    flat["layer_types"] = layer_types(name)
    if flat.get("multi_query"):
        flat["num_key_value_heads"] = 1
    for old, new in (
        ("n_layer", "num_hidden_layers"), ("n_head", "num_attention_heads"), ("n_embd", "hidden_size"),
    ):  # fmt: skip
        if old in flat:
            flat[new] = flat[old]
    return {one: flat[one] for one in _READ if one in flat}


_READ = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "layer_types", "sliding_window", "kv_lora_rank", "qk_rope_head_dim",
)  # fmt: skip


def cases() -> list[Case]:
    """Return small models with one new entry each, then published ones; by bytes."""
    one = {"num_hidden_layers": 1, "hidden_size": 2, "num_attention_heads": 1}
    three = one | {"num_hidden_layers": 3}
    four = three | {"hidden_size": 16, "num_attention_heads": 4}
    grouped = three | {"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2}
    single = grouped | {"hidden_size": 128, "num_key_value_heads": 1}
    wide = grouped | {"head_dim": 32}
    null = grouped | {"hidden_size": 256, "head_dim": None}
    full, slides = "full_attention", "sliding_attention"
    mixed = {"layer_types": [slides, full, slides], "sliding_window": 16}
    latent = {"kv_lora_rank": 64, "qk_rope_head_dim": 16, "num_key_value_heads": 8}
    heads = "How many heads does the model have, and how many of them have keys and values?"
    size = "How many values does a head have? Read head_dim, then hidden_size."
    window = "Go through layer_types. What does each kind keep of a sequence of this length?"
    made: list[tuple[Promise, str, Config, int, int]] = [
        (Promise.TWICE, "What does attention read of an earlier token?", one, 1, 1),
        (Promise.TOKENS, "The sequence has more than one token.", one, 3, 1),
        (Promise.BYTES, "A value takes two bytes here.", one, 3, 2),
        (Promise.LAYERS, "The model has more than one layer.", three, 3, 2),
        (Promise.HEADS, heads, four, 3, 2),
        (Promise.HEADS, heads, four | {"num_key_value_heads": None}, 4, 2),
        (Promise.KV_HEADS, heads, grouped, 5, 2),
        (Promise.KV_HEADS, heads, single, 6, 2),
        (Promise.HEAD_DIM, size, wide, 5, 2),
        (Promise.HEAD_DIM, size, null, 6, 2),
        (Promise.FULL, window, null | {"layer_types": [full] * 3, "sliding_window": 4}, 8, 2),
        (Promise.SHORT, window, null | mixed, 10, 2),
        (
            Promise.WINDOW,
            window,
            null
            | {"num_hidden_layers": 6, "layer_types": [slides] * 5 + [full], "sliding_window": 4},
            40,
            2,
        ),
        (Promise.WINDOW, window, null | mixed, 64, 2),
        (
            Promise.LATENT,
            "Which vectors does a layer with kv_lora_rank keep?",
            null | latent,
            100,
            2,
        ),
        (Promise.HEAD_DIM, size, null | {"kv_lora_rank": None, "sliding_window": None}, 100, 2),
    ]
    real = "Compute one token of one layer by hand, and compare."
    made += [(Promise.REAL, real, written_out(name), 8192, 2) for name in CONFIGURATIONS]
    made += [(Promise.REAL, real, written_out(name), 100_000, 1) for name in CONFIGURATIONS]
    built = [Case(*parts, truth(*parts[2:])) for parts in made]
    return sorted(built, key=lambda case: case.right)


def attempt(kv_bytes: KVBytes, case: Case) -> None:
    """Compare an answer with the bytes of the sequence."""
    answer = call(kv_bytes, dict(case.config), case.tokens, case.bytes_per_value)
    if isinstance(answer, bool | str) or not hasattr(answer, "__float__"):
        raise Promise.NUMBER.broken(f"You returned {answer!r}.", "What does kv_bytes() return?")
    if float(answer) != case.right:
        share = float(answer) / case.right
        raise case.promise.broken(
            f"You returned {float(answer):,.0f}, which is {share:.3g} times what it takes.",
            case.look,
        )
