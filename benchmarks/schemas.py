"""Random JSON schemas, and requests for them among plain ones: for a benchmark and a property test."""

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

import jsonschema

from engine import EngineConfig, SamplingParams
from engine.core.sampling_params import StructuredOutput
from engine.extensions.prompt_lookup import PromptLookup

_WORDS = "name age city owner tags notes price day kind size legs color".split()
_PROMPTS = [
    "Describe an animal as JSON",
    "Once upon a time",
    "List three things",
    "What is 17 + 25?",
]
# Everything is bounded: a small model repeats itself until max_tokens where it may.
_SIMPLE: list[dict[str, Any]] = [
    {"type": "boolean"},
    {"type": "null"},
    {"type": "integer", "minimum": -20, "maximum": 120},
    {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 95},
    {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 1},
    {"type": "string", "maxLength": 10},
    {"type": "string", "pattern": "^[A-Z][a-z]{1,7}$"},
    {"type": "string", "pattern": "^\\d{3}-[xyz]+\\d$", "maxLength": 12},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "uuid"},
    {"const": '\u00fcber "quoted" \U0001f989'},
]


def random_schema(rng: Random, depth: int = 3) -> dict[str, Any]:
    """Return a schema that llguidance can compile; every answer to it is short."""
    kind = rng.choice(
        ["simple", "enum", "array", "object", "object", "any"] if depth else ["simple"]
    )
    if kind == "simple":
        return dict(rng.choice(_SIMPLE))
    if kind == "enum":
        return {"enum": rng.sample([*_WORDS, 1, 2.5, None, True, ["a", 1]], rng.randint(1, 6))}
    if kind == "array":
        least = rng.randint(0, 2)
        items = random_schema(rng, depth - 1)
        return {"type": "array", "items": items, "minItems": least, "maxItems": least + 1}
    if kind == "any":
        return {"anyOf": [random_schema(rng, depth - 1) for _ in range(2)]}
    names = rng.sample(_WORDS, rng.randint(1, 4))
    return {
        "type": "object",
        "properties": {name: random_schema(rng, depth - 1) for name in names},
        "required": rng.sample(names, rng.randint(0, len(names))),
    }


@dataclass(slots=True)
class Mixed:
    """Requests for shapes among plain ones; a plain one has the schema None."""

    schemas: list[dict[str, Any] | None] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    params: list[SamplingParams] = field(default_factory=list)

    @classmethod
    def draw(cls, rng: Random, shapes: int, plain: int) -> "Mixed":
        """Draw `shapes` requests with a schema and `plain` others, shuffled."""
        mixed = cls()
        for shape in rng.sample([True] * shapes + [False] * plain, shapes + plain):
            schema = random_schema(rng) if shape else None
            mixed.schemas.append(schema)
            mixed.prompts.append(rng.choice(_PROMPTS))
            mixed.params.append(
                SamplingParams(
                    max_tokens=240 if shape else rng.randint(1, 40),
                    temperature=rng.choice([0.0, 0.7, 1.3]),
                    n=rng.choice([1, 1, 1, 2]),
                    seed=rng.randrange(1000),
                    structured=schema and StructuredOutput("json_schema", json.dumps(schema)),
                )
            )
        return mixed

    def only_plain(self) -> "Mixed":
        """Return the plain requests."""
        plain = [i for i, schema in enumerate(self.schemas) if schema is None]
        return Mixed(
            [None] * len(plain), [self.prompts[i] for i in plain], [self.params[i] for i in plain]
        )

    def samples(self) -> list[dict[str, Any] | None]:
        """Return the schema of each sample, in the order of `Engine.complete`."""
        pairs = zip(self.schemas, self.params, strict=True)
        return [schema for schema, params in pairs for _ in range(params.n)]


def random_settings(rng: Random) -> tuple[EngineConfig, dict[str, Any]]:
    """Return settings under which every token must be the same, for example with little memory."""
    asynchronous = rng.random() < 0.5
    config = EngineConfig(
        token_budget=rng.choice([16, 48]),
        max_batch_size=rng.choice([3, 8]),
        max_kv_tokens=320,
        block_size=rng.choice([4, 16]),
        admission=rng.choice(["whole", "first_chunk"]),
        prefix_cache=rng.choice(["radix", "hash", "off"]),
        async_scheduling=asynchronous,
        jump_forward=rng.random() < 0.7,
    )
    return config, {} if asynchronous else {"drafter": PromptLookup(shortest=1)}


def fits(text: str, schema: dict[str, Any]) -> bool:
    """Return whether a text is JSON of this schema."""
    try:
        jsonschema.validate(json.loads(text), schema)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True
