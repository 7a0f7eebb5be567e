"""Options for all tests: `--soak` runs the same properties on many more cases."""

import os
import signal

import pytest

# Two workers share two cores: with more threads each, torch's spin and wait for one another.
os.environ["OMP_NUM_THREADS"] = "1"

# Started in a script's background, Ctrl-C would be ignored here and by every server that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="the large counts; seeds are printed")
    parser.addoption("--seed", type=int, default=0, help="first seed of the random workloads")


@pytest.fixture(scope="session")
def soak(request: pytest.FixtureRequest) -> bool:
    return request.config.getoption("--soak")


@pytest.fixture(scope="session")
def first_seed(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--seed")
