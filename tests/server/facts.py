"""What a message must carry, whatever its wording: field names, flags, values and numbers."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from server.errors import ApiError


def assert_names(message: str, *facts: object) -> None:
    """Check that a message has each fact in it as a whole word: 8 is neither in 18 nor in 8.5."""
    missing = [
        fact
        for fact in map(str, facts)
        if not re.search(rf"(?<![\w.-]){re.escape(fact)}(?![\w-]|\.\d)", message)
    ]
    assert not missing, f"{missing} not named in: {message}"


@contextmanager
def raises_api_error(
    status: int, code: str | None, *facts: object, param: str | None = None
) -> Iterator[Any]:
    """Expect an ApiError with this status, code and param whose message names the facts."""
    with pytest.raises(ApiError) as caught:
        yield caught
    error = caught.value.error
    assert (caught.value.status, error["code"], error["param"]) == (status, code, param)
    assert_names(str(error["message"]), *facts)
