"""The answer of `checks.ANIMAL` as a pydantic model. `checks.py` itself imports no library."""

from typing import Literal

from pydantic import BaseModel, Field


class Animal(BaseModel):
    """An animal and its legs."""

    animal: Literal["owl", "cat", "ant"]
    legs: int = Field(ge=0, le=9)
