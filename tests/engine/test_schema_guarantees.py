"""Every text that a schema's mask allows is valid; what cannot be guaranteed is rejected by name."""

import json
import math
from decimal import Decimal
from random import Random

import jsonschema
import pytest

from engine.extensions.grammars.grammar_error import GrammarError
from engine.extensions.grammars.string_formats import EXPRESSIONS
from tests.engine.random_outputs import TOKENIZER, allows, compiled, random_output
from tests.facts import raises_naming

INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
LARGEST = 2**63 - 1024


TYPED = {"type": "object", "properties": {"a": {"type": "null"}}}
OTHER = '{"b": 1}'
CAT = {"type": "object", "properties": {"kind": {"const": "cat", "default": "cat"}, "a": INTEGER}}
DOG = {
    "type": "object",
    "properties": {"kind": {"const": "dog"}, "b": INTEGER},
    "required": ["kind"],
}
PETS = {
    "$defs": {"Cat": CAT, "Dog": DOG},
    "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
}


FORMATS = [
    (
        "date",
        ["0001-01-01", "2000-02-29", "2024-02-29"],
        ["0000-01-01", "1900-02-29", "2023-02-29"],
    ),
    ("time", ["23:59:59Z", "00:00:00.5-05:30"], ["23:59:60Z", "24:00:00Z", "12:00:00+24:00"]),
    ("date-time", ["2024-02-29T23:59:59+01:00"], ["0000-01-01T00:00:00Z", "2024-01-01T00:00:60Z"]),
    ("duration", ["P1Y2M3DT4H", "P3W"], ["P", "P99999999999Y", "PT"]),
    (
        "uri",
        ["https://example.com/a?b=c#d", "http://127.0.0.1:80"],
        ["a:", "http://", "http://a b"],
    ),
    ("email", ["ada.l@example.co"], ["ada@localhost", "a@b.test", "@a.de"]),
    ("ipv6", ["::", "::1", "fe80::1:2"], ["1", ":::", "1:2:3:4:5:6:7:8:9"]),
    ("uuid4", ["7c9e6679-7425-40de-944b-e07fc1f90ae7"], ["7c9e6679-7425-10de-944b-e07fc1f90ae7"]),
    ("regex", ["^[a-z]+(b|c)*$", r"\d+"], ["(", "a**", "["]),
]
GUARANTEED = [
    (INTEGER | {"minimum": 2**53 + 1, "maximum": 2**53 + 3}, [2**53 + 2], [2**53, 2**53 + 4]),
    (
        INTEGER | {"minimum": -(2**63), "maximum": 2**63 - 1},
        [0, LARGEST, -LARGEST],
        [2**63, -(2**63) - 1],
    ),
    (INTEGER | {"minimum": 0, "maximum": 2**64 - 1}, [0, LARGEST], [-1, 2**64]),
    (INTEGER | {"minimum": 10**18}, [10**18, LARGEST], [10**18 - 1]),
    (INTEGER | {"maximum": -(10**18)}, [-(10**18)], [1 - 10**18]),
    (INTEGER | {"exclusiveMinimum": 2**60, "maximum": 10**30}, [2**60 + 256], [2**60]),
    (INTEGER | {"exclusiveMinimum": 0.5, "exclusiveMaximum": 3}, [1, 2], [0, 3]),
    (INTEGER | {"minimum": 0, "exclusiveMinimum": True}, [1], [0]),
    (INTEGER | {"minimum": -5, "exclusiveMaximum": 0, "multipleOf": 2}, [-4, -2], [-6, -5, 0]),
    (INTEGER | {"const": 2**60}, [2**60], [2**60 + 1]),
    (
        NUMBER | {"exclusiveMaximum": 1},
        ["0.9", "0.999", "-7.25"],
        ["1", "1.0", "0.99999999999999999999"],
    ),
    (NUMBER | {"maximum": 0.9999999999999999}, ["0.5"], ["1", "1.000", "0.99999999999999999"]),
    (NUMBER | {"exclusiveMinimum": 0}, ["0.001", "3"], ["0", "-1", "0." + "0" * 400 + "1"]),
    (NUMBER | {"minimum": 1e-100, "maximum": 1e20}, ["0.1", "1"], ["0", "1" + "0" * 20 + ".5"]),
    (
        NUMBER | {"minimum": -99999999.99999999},
        ["-99999999.5"],
        ["-100000000", "-99999999.999999999"],
    ),
    (NUMBER | {"minimum": 2**53 + 1}, [str(2**54)], [str(2**53)]),
    (NUMBER | {"default": math.inf}, ["1"], []),  # an annotation
    ({"type": "string", "format": "password"}, ['"x"'], []),  # an unknown format says nothing
    (INTEGER | {"format": "date"}, ["1"], []),
    # An object with properties is closed unless the schema says otherwise.
    (TYPED, [], [OTHER]),
    (TYPED | {"additionalProperties": True}, [OTHER], []),
    ({"allOf": [TYPED, {"properties": {"b": INTEGER}}]}, ['{"a": null, "b": 1}'], []),
    (
        {"$defs": {"Base": TYPED}, "$ref": "#/$defs/Base", "properties": {"b": {}}},
        ['{"a": null, "b": 1}'],
        [],
    ),
    ({"anyOf": [TYPED, {"properties": {"c": {}}, "type": "object"}]}, [], [OTHER]),
    (PETS, ['{"kind": "cat", "a": 1}', '{"kind": "dog"}'], ['{"a": 1}', "{}"]),
    (
        {"propertyNames": {"enum": ["a", "b"]}, "additionalProperties": INTEGER, "type": "object"},
        ['{"a": 1}', '{"a": 1, "b": 2}', "{}"],
        ['{"c": 1}', '{"a": "x"}'],
    ),
    (
        {"propertyNames": {"pattern": "^a+$"}, "additionalProperties": INTEGER, "type": "object"},
        ['{"aa": 1}'],
        ['{"b": 1}', '{"aa": "x"}'],
    ),
    ({"propertyNames": {"maxLength": 2}, "type": "object"}, ['{"aa": 1}'], ['{"aaa": 1}']),
    ({"patternProperties": {"^a$": INTEGER}, "type": "object"}, ['{"a": 1}'], ['{"b": 1}']),
    ({"x-guidance": {"lenient": True}, "type": "array", "maxItems": 1.0}, ["[1]"], ["[1, 1]"]),
    (
        {"$ref": "#/components/a%20b", "components": {"a b": {"format": "date", "type": "string"}}},
        ['"2024-02-29"'],
        ['"0000-01-01"'],
    ),
]
GUARANTEED += [
    ({"type": "string", "format": name}, list(map(json.dumps, good)), list(map(json.dumps, bad)))
    for name, good, bad in FORMATS
]


@pytest.mark.parametrize(("schema", "allowed", "forbidden"), GUARANTEED)
def test_what_a_schema_allows_and_forbids(schema, allowed, forbidden):
    assert [one for one in allowed if not allows(schema, str(one))] == []
    assert [one for one in forbidden if allows(schema, str(one))] == []


def near(rng):
    """Return a number with few or many digits, near a power of ten or far from any."""
    digits = rng.randint(0, 19)
    number = Decimal(rng.choice([rng.randrange(10**digits), 10**digits, 10**digits - 1]))
    return rng.choice([1, -1]) * number.scaleb(-rng.choice([0, 0, rng.randint(0, digits)]))


@pytest.mark.parametrize("seed", range(40))
def test_no_number_near_a_random_bound_is_outside_it(seed):
    rng = Random(seed)
    kind = rng.choice([INTEGER, NUMBER])
    low, high = sorted((near(rng), near(rng)))
    low, high = (int(one) if one == int(one) else float(one) for one in (low, high))
    names = [
        rng.choice([name, f"exclusive{name[0].upper()}{name[1:]}"])
        for name in ("minimum", "maximum")
    ]
    schema = kind | {names[0]: low, names[1]: high}
    try:
        compiled(schema)
    except GrammarError as error:
        assert "minimum" in str(error).lower() or "maximum" in str(error).lower()
        return
    for bound in (low, high):
        for step in (*(Decimal(10) ** power for power in range(-20, 3)), 0):
            for near_by in (Decimal(str(bound)) + step, Decimal(str(bound)) - step):
                text = format(near_by, "f")
                if allows(schema, text):
                    jsonschema.validate(json.loads(text), schema)


@pytest.mark.parametrize(
    ("schema", "facts"),
    [
        (INTEGER | {"minimum": 2**53 + 1, "maximum": 2**53 + 1}, ("minimum", 2**53 + 1)),
        (INTEGER | {"minimum": 10**30}, ("minimum", 10**29 * 10)),
        (NUMBER | {"minimum": 1e300}, ("minimum", "1e+300")),
        ({"const": 2**53 + 1}, ("const", 2**53 + 1)),
        ({"const": -(2**63)}, ("const", -(2**63))),
        ({"enum": [1, {"a": [2**63]}]}, ("enum", 2**63)),
        (NUMBER | {"maximum": math.inf}, ("maximum",)),
        (NUMBER | {"maximum": "5"}, ("maximum", "5")),
        ({"minItems": math.inf}, ("float",)),
        ({"const": "\ud800"}, ("surrogate",)),
        ({"minProperties": 2, "type": "object"}, ("minProperties", 2)),
        ({"type": "string", "contentMediaType": "application/json"}, ("contentMediaType",)),
        ({"type": "string", "format": "multi-host-uri"}, ("multi-host-uri",)),
        ({"type": "string", "format": "file-path"}, ("file-path",)),
        ({"$ref": "#anchor"}, ("$ref", "#anchor")),
        ({"$ref": "https://example.com"}, ("$ref", "https://example.com")),
        ({"$id": "a", "type": "null"}, ("$id",)),
        ({"propertyNames": {"not": {}}, "type": "object"}, ("propertyNames", "not")),
        ({"type": "array", "uniqueItems": True, "items": {"type": "object"}}, ("uniqueItems",)),
        ({"type": "array", "uniqueItems": True, "items": {}}, ("uniqueItems",)),
        (
            {"type": "array", "uniqueItems": True, "items": NUMBER | {"maximum": 1}},
            ("uniqueItems",),
        ),
        ({"not": {}}, ("not",)),
        ({"contains": {}}, ("contains",)),
    ],
)
def test_what_cannot_be_guaranteed_is_named_with_its_path(schema, facts):
    path = () if "surrogate" in facts or "float" in facts else ("$.properties.a",)
    with raises_naming(GrammarError, *path, *facts):
        compiled({"properties": {"a": schema}})


@pytest.mark.parametrize("name", sorted(EXPRESSIONS))
def test_a_format_can_be_written_and_beside_a_pattern_both_hold(name):
    assert random_output({"type": "string", "format": name}, 1, limit=4000)
    both = {"type": "string", "format": name, "pattern": "^[^q]*$"}
    for seed in range(3):
        assert "q" not in (random_output(both, seed) or "")


# Unique items

UNIQUE = {"type": "array", "uniqueItems": True}
NESTED = {
    "type": "object",
    "properties": {
        "sets": {"type": "array", "items": {"$ref": "#/$defs/set"}, "minItems": 2, "maxItems": 3},
        "list": {"type": "array", "items": {"type": "boolean"}, "minItems": 3, "maxItems": 3},
    },
    "required": ["sets", "list"],
    "$defs": {"set": UNIQUE | {"items": {"enum": ["p", "q"]}, "minItems": 2}},
}


@pytest.mark.parametrize(
    "schema",
    [
        UNIQUE | {"items": {"enum": ["a", "ab", "abc", 1, None]}, "minItems": 5},
        UNIQUE | {"items": INTEGER | {"minimum": 0, "maximum": 11}, "minItems": 12},
        UNIQUE | {"items": INTEGER, "minItems": 3, "maxItems": 5},
        UNIQUE | {"items": NUMBER, "minItems": 3, "maxItems": 5},
        UNIQUE | {"items": {"type": "boolean"}},
        UNIQUE | {"items": {"type": "string", "pattern": "^[ab]?$"}, "minItems": 3},
        UNIQUE | {"items": {"type": "string", "format": "date"}, "minItems": 2, "maxItems": 3},
        UNIQUE | {"prefixItems": [{"type": "null"}], "items": {"type": "string"}, "maxItems": 4},
        NESTED,
    ],
    ids=lambda schema: str(schema)[30:70],
)
def test_items_are_unique_and_the_output_never_gets_stuck(schema):
    outputs = [random_output(schema, seed) for seed in range(12)]
    for text in outputs:
        assert text is not None
        jsonschema.validate(json.loads(text), schema)


def test_a_second_item_is_forbidden_only_where_it_would_be_the_same():
    schema = UNIQUE | {"items": {"type": "string"}}
    assert allows(schema, '["red", "redwood"]') and allows(schema, '["red", "re"]')
    assert not allows(schema, '["red", "red"]')
    assert not allows(UNIQUE | {"items": NUMBER}, "[1, 2, 1.0]")
    assert not allows(UNIQUE | {"items": INTEGER}, "[0, -0]")


def test_unique_items_hold_after_a_rollback_in_a_fork_and_for_drafts():
    encode = TOKENIZER.encode_ordinary
    constraint = compiled(UNIQUE | {"items": {"enum": ["a", "b"]}})
    [b, quote] = encode('b"')
    constraint.mask(encode('["a", "b"'))
    assert constraint.mask(encode('["a", "')) >> b & 1
    other = constraint.fork()
    constraint.mask(encode('["b", "a"]'))
    assert not other.mask(encode('["b", "')) >> b & 1
    assert other.count_allowed(encode('["b", "'), [b, quote]) == 0
    assert other.count_allowed(encode('["a", "'), [b, quote]) == 2
