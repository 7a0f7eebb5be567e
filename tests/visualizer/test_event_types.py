"""The browser refuses the wrong events that Python refuses, by the table of `make tables`."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import msgspec.inspect as inspect
import pytest

from authoring.generated.event_types import LETTERS
from engine.cluster import events as cluster
from engine.core.log import vocabulary
from tests.visualizer.test_golden_fold import node

EVENTS = vocabulary.AnyEvent.__args__


def sample(kind: inspect.Type) -> Any:
    """A JSON value of a type, with an item in each list, and all fields."""
    match kind:
        case inspect.StructType():
            values = {one.encode_name: sample(one.type) for one in kind.fields}
            if kind.array_like:
                return list(values.values())
            return {kind.tag_field: kind.tag, **values} if kind.tag_field else values
        case inspect.ListType():
            return [sample(kind.item_type)]
        case inspect.TupleType():
            return [sample(one) for one in kind.item_types]
        case inspect.DictType():
            return {"key": sample(kind.value_type)}
        case inspect.UnionType(types=types) if len(types) == len(EVENTS):
            return sample(inspect.type_info(vocabulary.Admitted))
        case inspect.UnionType():
            return sample(next(one for one in kind.types if not isinstance(one, inspect.NoneType)))
        case inspect.LiteralType():
            return kind.values[0]
        case _:
            return {"i": 1, "n": 1.5, "s": "x", "b": True, "a": None}[LETTERS[type(kind)]]


def variants(value: Any) -> Iterator[Any]:
    """The value with each part replaced by something else, removed, or with one more beside it."""
    yield from (None, 7, 1.5, "x", True, [], {}, ["x"], [7], [1.5], [[7]], [None], {"key": 7})
    if isinstance(value, dict):
        for key, part in value.items():
            yield {name: one for name, one in value.items() if name != key}
            yield from (value | {key: other} for other in variants(part))
    if isinstance(value, list):
        yield [*value, None]
        for at, part in enumerate(value):
            yield value[:at]
            yield from ([*value[:at], other, *value[at + 1 :]] for other in variants(part))


@pytest.mark.parametrize("kind", ["log", "cluster"])
def test_both_languages_refuse_the_same_wrong_events(kind, tmp_path):
    union = vocabulary.AnyEvent if kind == "log" else cluster.AnyClusterEvent
    decoder = msgspec.json.Decoder(union)
    whole = [sample(inspect.type_info(event)) for event in union.__args__]
    lines = [json.dumps(event) for event in whole]
    lines += dict.fromkeys(json.dumps(other) for event in whole for other in variants(event))
    (tmp_path / "lines.jsonl").write_text("\n".join(lines))
    theirs = json.loads(node("verdicts.js", kind, tmp_path / "lines.jsonl"))
    assert len(theirs) == len(lines) > 600
    assert theirs[: len(whole)] == [None] * len(whole)
    for line, problem in zip(lines, theirs, strict=True):
        try:
            decoder.decode(line)
        except msgspec.ValidationError as error:
            assert problem, (line, str(error))
        else:
            assert problem is None, line
