"""Rewrite a JSON schema so that every text which its mask allows is valid.

The grammar library (llguidance) implements most of JSON Schema. What it lacks, and what it gets wrong,
is expressed by other keywords here, if possible:

    format                            pattern (`string_formats`)
    minimum, maximum, exclusive...    bounds that survive a 64-bit float (`number_bounds`)
    propertyNames                     properties, or patternProperties
    oneOf of disjoint schemas         anyOf
    uniqueItems                       a matcher of its own (`unique_items`)
    discriminator                     required: a model must write its tag, even if it has a default

The new schema may forbid some valid values, but it allows no invalid one. What no mask can guarantee
is rejected with the keyword's name. Only annotations are left out: the ones below, formats that say
nothing about the text, and keywords that JSON Schema does not know, which it calls annotations, too.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from engine.extensions.grammars.grammar_error import GrammarError
from engine.extensions.grammars.json_schema import Schema, as_list, children, resolve
from engine.extensions.grammars.number_bounds import check_constants, make_bounds_exact
from engine.extensions.grammars.string_formats import EXPRESSIONS, NOT_GUARANTEED, whole
from engine.extensions.grammars.unique_items import MARK, check_alternatives, mark_unique_items

ANNOTATIONS = (
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment",
)  # fmt: skip
_MAX_NAMES = 500  # that `propertyNames` may list: each becomes a property
_COUNTS = (
    "minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties",
)  # fmt: skip


def make_exact(root: Schema) -> None:
    """Rewrite a schema in place. Raises GrammarError with the path of a part that has no guarantee."""
    for key in ("$id", "id", "x-guidance"):  # the last one would override this server's options
        root.pop(key, None)
    numbers = itertools.count(1)
    reachable = [schema for _, schema in _reachable(root)]
    may_round = not any("multipleOf" in schema for schema in reachable)
    every = list(_each(root, lambda schema: _rewrite(schema, root, numbers, may_round)))
    if any(MARK in schema for schema in every):
        list(_each(root, lambda schema: check_alternatives(schema, root)))


def _each(root: Schema, change: Callable[[Schema], None]) -> Iterator[Schema]:
    """Yield every schema after a change. Raises GrammarError with the schema's path."""
    for path, schema in _reachable(root):
        try:
            change(schema)
        except GrammarError as error:
            raise GrammarError(f"{path}: {error}") from None
        yield schema


def _reachable(root: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield every schema with its path, before its children; references may lead anywhere in the root.

    Raises GrammarError for a reference that leads nowhere.
    """
    pending: list[tuple[str, Any]] = [("$", root)]
    seen: set[int] = set()
    while pending:
        path, schema = pending.pop()
        if not isinstance(schema, dict) or id(schema) in seen:
            continue
        seen.add(id(schema))
        yield path, schema
        pending += ((path + name, child) for name, child in children(schema))
        pointer = schema.get("$ref")
        if isinstance(pointer, str):
            is_inside = pointer == "#" or pointer.startswith("#/")
            target = resolve(pointer, root) if is_inside else None
            if not isinstance(target, dict | bool):
                raise GrammarError(
                    f"{path}: $ref {pointer[:80]} must point at a schema inside this one, "
                    "such as #/$defs/Name"
                )
            pending.append(("$" + pointer[1:].replace("/", "."), target))


def _rewrite(schema: Schema, root: Schema, numbers: Iterator[int], may_round: bool) -> None:
    for key in ANNOTATIONS:
        schema.pop(key, None)
    if "$id" in schema:
        raise GrammarError("$id must be left out: it changes what references mean")
    for key in _COUNTS:
        if isinstance(count := schema.get(key), float) and count.is_integer():
            schema[key] = int(count)
    check_constants(schema)
    make_bounds_exact(schema, may_round=may_round)
    _rewrite_format(schema)
    _rewrite_one_of(schema, root)
    _rewrite_property_names(schema, root, numbers)
    _check_min_properties(schema)
    mark_unique_items(schema, root)


def _rewrite_format(schema: Schema) -> None:
    media = schema.pop("contentMediaType", None)
    schema.pop("contentSchema", None)
    if isinstance(media, str) and media.partition(";")[0].strip().endswith("json"):
        raise GrammarError(f"contentMediaType {media[:40]} cannot be guaranteed inside a string")
    encoding = schema.pop("contentEncoding", None)
    for name in (schema.pop("format", None), encoding):
        if isinstance(name, str) and name in NOT_GUARANTEED:
            raise GrammarError(f"format {name} cannot be guaranteed: leave it out or add a pattern")
        if isinstance(name, str) and name in EXPRESSIONS:
            pattern = whole(EXPRESSIONS[name])
            if "pattern" in schema:
                schema["allOf"] = [*_list(schema, "allOf"), {"pattern": pattern}]
            else:
                schema["pattern"] = pattern


def _rewrite_one_of(schema: Schema, root: Schema) -> None:
    """Turn `oneOf` into `anyOf` if no value fits two options, and require the discriminator."""
    discriminator = schema.pop("discriminator", None)
    name = discriminator.get("propertyName") if isinstance(discriminator, dict) else None
    for key in ("oneOf", "anyOf"):
        options = [_target(option, root) for option in _list(schema, key)]
        tag = name if isinstance(name, str) else None
        if key == "oneOf" and options and "anyOf" not in schema:
            found = _tag(options)
            if found is not None or _have_distinct_types(options):
                schema["anyOf"] = schema.pop("oneOf")
                tag = tag or found
        for option in options:
            if tag in _dict(option, "properties") and tag not in _list(option, "required"):
                option["required"] = [*_list(option, "required"), tag]


def _have_distinct_types(options: list[Schema]) -> bool:
    types = [option.get("type") for option in options]
    names = ["number" if one == "integer" else one for one in types if isinstance(one, str)]
    return len({*names}) == len(options)


def _tag(options: list[Schema]) -> str | None:
    """Return a property whose value tells objects apart; None if there is none.

    One option may leave it out: an object without it fits only that one.
    """
    if len({id(option) for option in options}) < len(options):
        return None
    counts = Counter(name for option in options for name in _dict(option, "properties"))
    for name, count in counts.items():
        if count == len(options) and _tells_apart(name, options):
            return str(name)
    return None


def _tells_apart(name: str, options: list[Schema]) -> bool:
    values: list[str] = []
    without = 0
    for option in options:
        described = option["properties"][name]
        if option.get("type") != "object" or not isinstance(described, dict):
            return False
        allowed = [described["const"]] if "const" in described else _list(described, "enum")
        if not allowed or not all(isinstance(one, str) for one in allowed):
            return False
        values += {*allowed}
        without += name not in _list(option, "required")
    return without < 2 and len(values) == len({*values})


def _rewrite_property_names(schema: Schema, root: Schema, numbers: Iterator[int]) -> None:
    """Turn `propertyNames` into properties (if it lists names) or patternProperties (a pattern)."""
    if "propertyNames" not in schema:
        return
    names = _target(schema.pop("propertyNames"), root)
    keys = names.keys() - {*ANNOTATIONS, "$defs"}
    if not keys or (keys == {"type"} and names["type"] == "string"):
        return
    if "patternProperties" in schema:
        raise GrammarError("propertyNames beside patternProperties cannot be guaranteed")
    values = schema.pop("additionalProperties", True)
    if "enum" in keys or "const" in keys:
        allowed = names["enum"] if "enum" in keys else [names["const"]]
        if keys - {"enum", "const", "type"} or not isinstance(allowed, list):
            raise GrammarError(
                f"propertyNames: only enum can be guaranteed, without {_named(keys)}"
            )
        if len(allowed) > _MAX_NAMES:
            raise GrammarError(
                f"propertyNames may list {_MAX_NAMES} names, got {len(allowed):,}: leave it out"
            )
        described = _dict(schema, "properties")
        values = _shared(values, root, numbers)
        schema["properties"] = {
            name: described.get(name, values) for name in allowed if isinstance(name, str)
        }
        schema["additionalProperties"] = False
        return
    if "properties" in schema:
        raise GrammarError(
            "propertyNames beside properties cannot be guaranteed: use an enum of names"
        )
    schema["patternProperties"] = {_pattern_of(names, keys): values}
    schema["additionalProperties"] = False


def _pattern_of(names: Schema, keys: set[str]) -> str:
    """Return the one expression that the names of properties must match."""
    rest = keys - {"type"}
    if rest == {"pattern"} and isinstance(names["pattern"], str):
        return names["pattern"]
    if rest == {"format"}:
        name = names["format"]
        if isinstance(name, str) and name in EXPRESSIONS:
            return whole(EXPRESSIONS[name])
        if name not in NOT_GUARANTEED:
            return ""
    if rest and rest <= {"minLength", "maxLength"}:
        return whole(rf"[\s\S]{{{names.get('minLength', 0)},{names.get('maxLength', '')}}}")
    raise GrammarError(f"propertyNames: {_named(keys)} cannot be guaranteed together")


def _shared(values: Any, root: Schema, numbers: Iterator[int]) -> Any:
    """Return a reference to a schema that describes several properties: copies would grow in nests."""
    if not isinstance(values, dict):
        return values
    name = f"values-{next(numbers)}"
    root["$defs"] = _dict(root, "$defs") | {name: values}
    return {"$ref": f"#/$defs/{name}"}


def _check_min_properties(schema: Schema) -> None:
    count = schema.get("minProperties")
    required = len({*map(str, _list(schema, "required"))})
    if isinstance(count, int) and count - required > 1:
        raise GrammarError(
            f"minProperties {count} cannot be guaranteed, because keys may repeat: "
            "name the keys in required"
        )


def _target(schema: Any, root: Schema) -> Schema:
    """Return the schema that a reference without other keywords stands for."""
    for _ in range(10):
        if not isinstance(schema, dict):
            return {} if schema is True else {"not": {}}
        if not isinstance(pointer := schema.get("$ref"), str):
            return schema
        schema = resolve(pointer, root)
    return {"not": {}}


def _list(schema: Schema, key: str) -> list[Any]:
    return as_list(schema.get(key))


def _dict(schema: Schema, key: str) -> Schema:
    return value if isinstance(value := schema.get(key), dict) else {}


def _named(keys: set[str]) -> str:
    return ", ".join(sorted(keys))
