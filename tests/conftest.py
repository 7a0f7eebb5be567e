"""Options for all tests: `--soak` runs the same properties on many more cases."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="the large counts; seeds are printed")
    parser.addoption("--seed", type=int, default=0, help="first seed of the random workloads")


@pytest.fixture(scope="session")
def soak(request: pytest.FixtureRequest) -> bool:
    return request.config.getoption("--soak")


@pytest.fixture(scope="session")
def first_seed(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--seed")
