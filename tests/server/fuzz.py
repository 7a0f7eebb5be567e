"""Bodies and frames that no client should send: valid ones, and damaged ones."""

import json
import random
from typing import Any

from tests.server.test_openai_fields import SAME

COMPLETION: dict[str, Any] = SAME | {
    "model": "alphabet",
    "prompt": "Once upon a time",
    "n": 2,
    "best_of": 2,
    "logprobs": 2,
    "echo": True,
    "stream": True,
    "stream_options": {"include_usage": True},
    "user": "Ada",
    "priority": 1,
}
CHAT: dict[str, Any] = COMPLETION | {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is 17 + 25?"}]},
    ],
    "logprobs": True,
    "top_logprobs": 2,
    "max_completion_tokens": 8,
}
CHAT = {name: value for name, value in CHAT.items() if name not in {"prompt", "best_of", "echo"}}
TOKENIZE = {"prompt": "Once", "tokens": [97, 98], "add_special_tokens": False}
STEPS = {"steps": 2}
BODIES = {
    "/v1/completions": COMPLETION,
    "/v1/chat/completions": CHAT,
    "/tokenize": TOKENIZE,
    "/detokenize": TOKENIZE,
    "/engine/step": STEPS,
}
CALL: dict[str, Any] = {
    "stream_id": 1,
    "prompt": [97, 98, 99],
    "scored": [100],
    "model": "alphabet",
    "from": "b",
    "keep": "b",
    "buffer": "b",
    "user": "Ada",
    "data": None,
    "max_tokens": 8,
    "temperature": 0.5,
    "top_logprobs": 2,
    "logit_bias": {"97": 3},
    "stop": ["z"],
    "seed": 1,
}
WORDS = {
    "GENERATE": (
        "prompt",
        "from",
        "keep",
        "max_tokens",
        "temperature",
        "top_logprobs",
        "logit_bias",
        "stop",
    ),
    "SCORE": ("prompt", "scored", "from"),
    "MODEL_INFO": ("model", "data"),
    "CANCEL": (),
    "RELEASE": ("buffer",),
}
JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**80), 10**400, 0.5, -0.0, 1e308,
    float("nan"), float("inf"), "", "x", "\0", "\ud800", "\U0001f98a", "<|assistant_end|>", "x" * 3000,
    "null", [], {},
    [[]], [None], [0], [-1], [2**70], [97] * 600, [["a"]], [{}], {"": 0}, {"a": {"b": {"c": []}}},
    {"97": "x"}, {"-5": 1e99}, {"type": "text"}, {"role": "user"}, [1, "a"], "data: x\n\n",
)  # fmt: skip


def body(dice: random.Random) -> tuple[str, bytes]:
    path = dice.choice(list(BODIES))
    required = {"prompt", "messages", "tokens"}
    return path, _damaged(_some_of(BODIES[path], required, dice), dice)


def frame(dice: random.Random) -> str:
    """A frame of an LMTP client: as a rule, a word and JSON."""
    word = dice.choice(list(WORDS))
    call = {name: CALL[name] for name in ("stream_id", *WORDS[word])}
    call["stream_id"] = dice.randrange(2000)
    required = {"stream_id", "scored", "buffer", "prompt"}
    content = _damaged(_some_of(call, required, dice), dice).decode(errors="replace")
    return dice.choice((f"{word} ",) * 12 + ("", word, f"{word}\n", "TOKEN ", "x ")) + content


def _some_of(whole: dict[str, Any], required: set[str], dice: random.Random) -> dict[str, Any]:
    kept = dice.random() ** 2
    return {k: v for k, v in whole.items() if k in required or dice.random() < kept}


def _damaged(valid: dict[str, Any], dice: random.Random) -> bytes:
    """A third is left whole."""
    damage = dice.randrange(6)
    if damage in {0, 1, 2}:
        for _ in range(damage):
            valid = _replaced(valid, dice)
        return json.dumps(valid).encode()
    content = bytearray(json.dumps(valid).encode())
    if damage == 3:
        return bytes(content)
    if damage == 4:
        return bytes(content[: dice.randrange(len(content) + 1)])
    for _ in range(dice.randrange(1, 9)):
        content[dice.randrange(len(content))] = dice.randrange(256)
    return bytes(content)


def _replaced(value: Any, dice: random.Random) -> Any:
    """Somewhere inside there is junk now."""
    if isinstance(value, dict) and value and dice.random() < 0.9:
        name = dice.choice(list(value))
        new = dice.choice(("x", "", name.upper(), name)) if dice.random() < 0.1 else name
        return value | {new: _replaced(value[name], dice)}
    if isinstance(value, list) and value and dice.random() < 0.7:
        at = dice.randrange(len(value))
        return [*value[:at], _replaced(value[at], dice), *value[at + 1 :]]
    return dice.choice(JUNK)
