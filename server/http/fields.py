"""The two kinds of objects in a client's JSON. Neither converts a value to another type."""

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """An object whose fields are all known."""

    model_config = ConfigDict(strict=True, extra="forbid")


class Open(BaseModel):
    """An object that may have further fields: they are passed on, or checked by name."""

    model_config = ConfigDict(strict=True, extra="allow")
