"""What pydantic emits: it accepts every output of its schema's mask, or the schema is rejected."""

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import ipaddress
import pathlib
import re
import uuid
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NotRequired,
    TypeVar,
)

import jsonschema
import pydantic
import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    RootModel,
    Tag,
    TypeAdapter,
    networks,
    types,
)
from typing_extensions import TypedDict

from engine.output.grammar_error import GrammarError
from tests.engine.random_outputs import compiled, random_output
from tests.facts import raises_naming

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Point(NamedTuple):
    x: int
    label: str = "p"


class Movie(TypedDict):
    name: str
    year: NotRequired[int]


@dataclasses.dataclass
class Item:
    price: float
    tags: list[str] = dataclasses.field(default_factory=list)


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = Field(9, ge=1, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    color: Color | None = None


class Owner(BaseModel):
    model_config = ConfigDict(title="An owner", extra="forbid")

    pet: Cat | Dog = Field(discriminator="kind")
    since: datetime.date = datetime.date(2020, 1, 1)


class Tagged(BaseModel):
    pet: Annotated[
        Annotated[Cat, Tag("cat")] | Annotated[Dog, Tag("dog")],
        Discriminator(lambda value: value["kind"]),
    ]


class Node(BaseModel):
    value: bool
    children: list["Node"] = []


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    a: int


class Aliased(BaseModel):
    a: int = Field(alias="alpha-beta", gt=0, lt=10, description="d", examples=[3])
    b: float = Field(float("inf"), deprecated=True)


class Box(BaseModel, Generic[T]):
    content: T


class Counts(BaseModel):
    by_color: dict[Color, dict[Literal["a", "b"], int]]


ROWS: dict[str, Any] = {
    "int": int,
    "int64": Annotated[int, Field(ge=-(2**63), le=2**63 - 1)],
    "uint64": Annotated[int, Field(ge=0, lt=2**64)],
    "above 2**53": Annotated[int, Field(ge=2**53 + 1, le=2**53 + 3)],
    "multiple": pydantic.conint(gt=0, lt=100, multiple_of=7),
    "negative": pydantic.NegativeInt,
    "strict": pydantic.StrictInt,
    "float": float,
    "finite": pydantic.FiniteFloat,
    "below 1": pydantic.confloat(ge=0, lt=1),
    "above 0": pydantic.PositiveFloat,
    "bool": bool,
    "none": None,
    "str": str,
    "constr": pydantic.constr(min_length=1, max_length=5, pattern="^[a-z]+$"),
    "bytes": bytes,
    "conbytes": pydantic.conbytes(min_length=2, max_length=3),
    "path": pathlib.Path,
    "secret": pydantic.SecretStr,
    "secret bytes": pydantic.SecretBytes,
    "secret int": pydantic.Secret[int],
    "base64": pydantic.Base64Bytes,
    "base64 text": pydantic.Base64Str,
    "base64url": pydantic.Base64UrlBytes,
    "date": datetime.date,
    "datetime": datetime.datetime,
    "aware": pydantic.AwareDatetime,
    "time": datetime.time,
    "timedelta": datetime.timedelta,
    "uuid": uuid.UUID,
    "uuid1": pydantic.UUID1,
    "uuid4": pydantic.UUID4,
    "uuid7": types.UUID7,
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
    "ipv4 network": ipaddress.IPv4Network,
    "ipv6 network": ipaddress.IPv6Network,
    "ipv4 interface": ipaddress.IPv4Interface,
    "ipv6 interface": ipaddress.IPv6Interface,
    "ip": networks.IPvAnyAddress,
    "ip network": networks.IPvAnyNetwork,
    "ip interface": networks.IPvAnyInterface,
    "url": pydantic.AnyUrl,
    "http url": pydantic.HttpUrl,
    "pattern": re.Pattern,
    "fraction": fractions.Fraction,
    "enum": Color,
    "int enum": Level,
    "literal": Literal["a", 1, None, True],
    "optional": int | None,
    "union": int | str | list[bool],
    "any": Any,
    "json value": pydantic.JsonValue,
    "list": list[int],
    "bounded list": Annotated[list[bool], Field(min_length=2, max_length=3)],
    "tuple": tuple[int, str],
    "open tuple": tuple[int, ...],
    "named tuple": Point,
    "deque": collections.deque[int],
    "set of int": set[int],
    "set of str": set[str],
    "set of float": set[float],
    "set of bool": set[bool],
    "set of enum": set[Color],
    "set of date": set[datetime.date],
    "frozenset": frozenset[str],
    "bounded set": Annotated[set[Level | Literal["x"]], Field(min_length=3, max_length=3)],
    "set of unions": set[int | str | None],
    "dict": dict[str, int],
    "dict of literals": dict[Literal["a", "b"], int],
    "dict of enums": dict[Color, int],
    "dict of dates": dict[datetime.date, int],
    "dict of uuids": dict[uuid.UUID, list[int]],
    "dict of patterns": dict[Annotated[str, Field(pattern="^a+$")], int],
    "dict of short names": dict[Annotated[str, Field(max_length=3)], int],
    "bounded dict": Annotated[dict[str, bool], Field(min_length=1, max_length=2)],
    "nested dicts": Counts,
    "counter": collections.Counter[str],
    "typed dict": Movie,
    "dataclass": Item,
    "model": Dog,
    "recursive": Node,
    "discriminated": Owner,
    "callable discriminator": Tagged,
    "extra": Open,
    "aliases": Aliased,
    "generic": Box[datetime.date],
    "generic set": Box[set[Color]],
    "root": RootModel[list[Cat]],
    "unknown format": Annotated[str, Field(json_schema_extra={"format": "color"})],
}

REJECTED: dict[str, tuple[Any, str]] = {
    "json": (pydantic.Json, "contentMediaType"),
    "json of a type": (pydantic.Json[int], "contentMediaType"),
    "postgres": (pydantic.PostgresDsn, "multi-host-uri"),
    "file": (pydantic.FilePath, "file-path"),
    "directory": (pydantic.DirectoryPath, "directory-path"),
    "dict of two": (Annotated[dict[str, int], Field(min_length=2)], "minProperties"),
    "set of tuples": (set[tuple[int, int]], "uniqueItems"),
    "set of bounded floats": (set[Annotated[float, Field(le=1)]], "uniqueItems"),
    "set of anything": (set[Any], "uniqueItems"),
    "big literal": (Literal[2**53 + 1], "const"),
}

# pydantic checks more than its schema says, so its schema is the judge.
SAYS_LESS: dict[str, Any] = {
    "decimal as any string": decimal.Decimal,
    "keys of a dict are any strings": dict[int, int],
    "complex as any string": complex,
    "the unit of a size is any word": pydantic.ByteSize,
    "a scheme is not named": pydantic.FtpUrl,
    "the past": pydantic.PastDate,
    "no time zone": pydantic.NaiveDatetime,
    "an earliest date": Annotated[datetime.date, Field(gt=datetime.date(2020, 1, 1))],
}


def schema_of(kind: Any) -> dict[str, Any]:
    return TypeAdapter(kind).json_schema()


@pytest.mark.parametrize("name", ROWS)
def test_pydantic_accepts_every_output(name: str) -> None:
    adapter = TypeAdapter(ROWS[name])
    outputs = [random_output(schema_of(ROWS[name]), seed) for seed in range(10)]
    finished = [text for text in outputs if text is not None]
    assert len(finished) > 4
    for text in finished:
        adapter.validate_json(text)


@pytest.mark.parametrize("name", REJECTED)
def test_what_no_mask_can_guarantee_is_rejected_by_name(name: str) -> None:
    kind, keyword = REJECTED[name]
    with raises_naming(GrammarError, "$", keyword):
        compiled(schema_of(kind))


@pytest.mark.parametrize("name", SAYS_LESS)
def test_the_schema_is_kept_where_it_says_less_than_pydantic_checks(name: str) -> None:
    schema = schema_of(SAYS_LESS[name])
    for seed in range(5):
        jsonschema.validate(
            TypeAdapter(Any).validate_json(random_output(schema, seed) or "null"), schema
        )
