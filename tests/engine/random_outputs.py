"""Outputs that a shape allows, drawn at random; an output that it allows or forbids."""

import json
from functools import cache
from random import Random

from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.sampling_params import StructuredOutput
from engine.extensions.grammars.constraint import GrammarConstraint
from engine.extensions.grammars.grammar import GrammarCompiler

TOKENIZER = ByteTokenizer()


@cache
def _compiler() -> GrammarCompiler:
    return GrammarCompiler(TOKENIZER)


def compiled(shape: object, kind: str = "json_schema") -> GrammarConstraint:
    """Compile a schema, or the text of another kind of shape. Raises GrammarError."""
    text = shape if isinstance(shape, str) else json.dumps(shape)
    return _compiler().constraint(StructuredOutput(kind, text))


def allows(shape: object, output: str, kind: str = "json_schema") -> bool:
    """Return whether a shape allows this whole output."""
    constraint = compiled(shape, kind)
    mask = constraint.mask(TOKENIZER.encode_ordinary(output))
    return not constraint.error and any(mask >> end & 1 for end in TOKENIZER.eos_ids)


def random_output(shape: object, seed: int, limit: int = 2000) -> str | None:
    """Draw allowed bytes until the output may end; None if it did not within the limit.

    What closes a string, an array or an object is likelier than the rest.
    """
    constraint, rng, output = compiled(shape), Random(seed), list[int]()
    for _ in range(limit):
        mask = constraint.mask(output)
        assert not constraint.error, constraint.error
        allowed = [i for i in range(mask.bit_length()) if mask >> i & 1]
        ends = TOKENIZER.eos_ids.intersection(allowed)
        if ends and (len(ends) == len(allowed) or rng.random() < 0.3):
            return TOKENIZER.decode(output)
        others = [token for token in allowed if token not in ends]
        closing = [token for token in others if TOKENIZER.token_bytes(token) in b'"]},']
        output.append(rng.choice(closing if closing and rng.random() < 0.3 else others))
    return None
