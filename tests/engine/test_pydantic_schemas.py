"""What pydantic emits: it accepts every output of its schema's mask."""

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import ipaddress
import json
import pathlib
import re
import uuid
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypeVar

import jsonschema
import pydantic
import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    TypeAdapter,
    networks,
    types,
)
from typing_extensions import TypedDict

from tests.engine.random_outputs import random_output

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


ROWS: list[Any] = [
    int, pydantic.StrictInt, pydantic.NegativeInt, float, pydantic.FiniteFloat, bool, None, str, bytes,
    pathlib.Path, pydantic.SecretStr, pydantic.SecretBytes, pydantic.Secret[int], pydantic.Base64Bytes,
    pydantic.Base64UrlBytes, datetime.date, datetime.datetime, pydantic.AwareDatetime, datetime.time,
    datetime.timedelta, uuid.UUID, pydantic.UUID1, pydantic.UUID4, types.UUID7,
    ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network,
    ipaddress.IPv4Interface, ipaddress.IPv6Interface, networks.IPvAnyAddress, networks.IPvAnyNetwork,
    pydantic.AnyUrl, pydantic.HttpUrl, re.Pattern, fractions.Fraction, Color, Level,
    Literal["a", 1, None, True], int | None, int | str | list[bool], Any, pydantic.JsonValue,
    list[int], tuple[int, str], tuple[int, ...], Point, collections.deque[int],
    set[int], set[str], set[float], set[bool], set[Color], set[datetime.date], set[int | str | None],
    dict[str, int], dict[Literal["a", "b"], int], dict[Color, int], dict[datetime.date, int],
    dict[uuid.UUID, list[int]], collections.Counter[str],
    dict[Color, dict[Literal["a", "b"], int]], Movie, Item, Dog, Node, Owner, Open, Aliased,
    Box[set[Color]], RootModel[list[Cat]],
    pydantic.conint(gt=0, lt=100, multiple_of=7),
    pydantic.confloat(ge=0, lt=1),
    pydantic.constr(min_length=1, max_length=5, pattern="^[a-z]+$"),
    pydantic.conbytes(min_length=2, max_length=3),
    Annotated[int, Field(ge=-(2**63), le=2**63 - 1)],
    Annotated[int, Field(ge=2**53 + 1, le=2**53 + 3)],
    Annotated[list[bool], Field(min_length=2, max_length=3)],
    Annotated[set[Level | Literal["x"]], Field(min_length=3, max_length=3)],
    dict[Annotated[str, Field(pattern="^a+$")], int],
    Annotated[dict[str, bool], Field(min_length=1, max_length=2)],
    Annotated[str, Field(json_schema_extra={"format": "color"})],
]  # fmt: skip
# pydantic checks more than these schemas say, so the schema is the judge.
SAYS_LESS: list[Any] = [
    decimal.Decimal, dict[int, int], complex, pydantic.ByteSize, pydantic.FtpUrl, pydantic.PastDate,
    pydantic.NaiveDatetime, Annotated[datetime.date, Field(gt=datetime.date(2020, 1, 1))],
]  # fmt: skip


def schema_of(kind: Any) -> dict[str, Any]:
    return TypeAdapter(kind).json_schema()


@pytest.mark.parametrize("kind", ROWS, ids=str)
def test_pydantic_accepts_every_output(kind: Any) -> None:
    outputs = [random_output(schema_of(kind), seed) for seed in range(6)]
    finished = [text for text in outputs if text is not None]
    assert len(finished) > 2
    for text in finished:
        TypeAdapter(kind).validate_json(text)


@pytest.mark.parametrize("kind", SAYS_LESS, ids=str)
def test_the_schema_is_kept_where_it_says_less_than_pydantic_checks(kind: Any) -> None:
    schema = schema_of(kind)
    for seed in range(5):
        jsonschema.validate(json.loads(random_output(schema, seed) or "null"), schema)
