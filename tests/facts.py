"""Check which facts a message names: fields, values and numbers, not its wording."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


def assert_names(message: object, *facts: object) -> None:
    """Assert that `message`, an error or a text, names every fact as a word of its own.

    A 5 is not found in 15 or 1.5, and `stop` is not found in `stop_token_ids`.
    """
    text = str(message)
    missing = [fact for fact in facts if not _named(str(fact), text)]
    assert not missing, f"{missing} not named in: {text}"


def _named(fact: str, text: str) -> bool:
    before = r"(?<![\w.-])" if fact[:1].isdigit() else r"(?<!\w)"
    after = r"(?!\w|\.\d)" if fact[-1:].isdigit() else r"(?!\w)"
    return re.search(before + re.escape(fact) + after, text) is not None


@contextmanager
def raises_naming(
    error: type[BaseException], *facts: object
) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """Expect an error whose message names every fact."""
    with pytest.raises(error) as caught:
        yield caught
    assert_names(caught.value, *facts)
