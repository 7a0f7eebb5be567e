"""The log that most tests of this folder read. Read it only: all of them share it."""

import pytest

from tests.visualizer.storytellers import storytellers


@pytest.fixture(scope="session")
def log():
    return storytellers()
