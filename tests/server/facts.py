"""Check what an API error carries: status, code, param, and the facts its message names."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from server.http.errors import ApiError
from tests.facts import assert_names


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
