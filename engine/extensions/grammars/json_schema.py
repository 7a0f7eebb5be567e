"""Walk through a JSON schema, and close its objects."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

Schema = dict[str, Any]

_BY_NAME = ("$defs", "definitions", "properties", "patternProperties", "dependentSchemas")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SINGLE = ("items", "additionalProperties", "additionalItems", "unevaluatedProperties", "contains",
           "propertyNames", "not", "if", "then", "else")  # fmt: skip
_SAME_VALUE = ("allOf", "anyOf", "oneOf")  # their members describe the value that the schema does
_KEYS = ("properties", "patternProperties")  # they say which keys an object has


def children(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the schemas directly inside a schema, each with its path from there."""
    for key in _BY_NAME:
        if isinstance(named := schema.get(key), dict):
            yield from ((f".{key}.{name}", one) for name, one in named.items())
    for key in _LISTS:
        if isinstance(listed := schema.get(key), list):
            yield from ((f".{key}[{i}]", one) for i, one in enumerate(listed))
    yield from ((f".{key}", schema[key]) for key in _SINGLE if key in schema)


def close_objects(root: Schema) -> None:
    """Set a missing `additionalProperties` to false in each schema that lists properties or patterns.

    An object that several schemas describe together (members of an `allOf`, or `properties` beside a
    `$ref`) stays open: each of them would forbid what the others ask for.
    """
    every = [schema for _, schema in walk(root)]
    shared: set[int] = set()  # ids of schemas that describe an object together with others
    for schema in every:
        if _is_joint(schema, root):
            _share(schema, root, shared)
    for schema in every:
        says = {"additionalProperties", "unevaluatedProperties"} & schema.keys()
        if schema.keys() & {*_KEYS} and not says and id(schema) not in shared:
            schema["additionalProperties"] = False


def resolve(pointer: str, root: Schema) -> Any:
    """Return what a pointer such as "#/$defs/Animal" points at; None if it points at nothing."""
    target: Any = root
    for step in unquote(pointer).removeprefix("#").split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        match target:
            case dict():
                target = target.get(key)
            case list() if key.isdecimal() and len(key) < 7 and int(key) < len(target):
                target = target[int(key)]
            case _:
                return None
    return target


def walk(root: Any) -> Iterator[tuple[str, Schema]]:
    """Yield a schema and every schema inside it, each with its path; follow no references."""
    pending = [("$", root)]
    while pending:
        path, schema = pending.pop()
        if isinstance(schema, dict):
            yield path, schema
            pending += ((path + name, child) for name, child in children(schema))


def _parts(schema: Schema, root: Schema) -> list[Schema]:
    """Return the other schemas that describe the keys of the same object."""
    parts = [part for key in _SAME_VALUE for part in as_list(schema.get(key))]
    if isinstance(pointer := schema.get("$ref"), str):
        parts.append(resolve(pointer, root))
    keys = {*_KEYS, "$ref", *_SAME_VALUE}
    return [part for part in parts if isinstance(part, dict) and keys & part.keys()]


def _is_joint(schema: Schema, root: Schema) -> bool:
    """Return whether a schema joins several descriptions of an object's keys."""
    keys = ("$ref", "anyOf", "oneOf")
    alone: list[Schema] = [{key: schema[key]} for key in keys if key in schema]
    alone += ({"allOf": [one]} for one in as_list(schema.get("allOf")))
    described = sum(bool(_parts(one, root)) for one in alone)
    return any(key in schema for key in _KEYS) + described > 1


def _share(schema: Schema, root: Schema, shared: set[int]) -> None:
    pending = [schema]
    while pending:
        one = pending.pop()
        if id(one) not in shared:
            shared.add(id(one))
            pending += _parts(one, root)


def as_list(value: Any) -> list[Any]:
    """Return a list; [] for anything else."""
    return value if isinstance(value, list) else []
