"""Options and fixtures of all tests.

--soak              the large counts of cases
--update-snapshots  write tests/snapshots
--write-seconds     write tests/seconds.txt: the files that workers start with, the longest first
"""

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

# Two workers share two cores: more torch threads would spin and wait for one another.
os.environ["OMP_NUM_THREADS"] = "1"

# Products are not measured, so that tests compute the same on every machine and leave no file behind.
os.environ["UNDERGLASS_KERNELS"] = "linear"

# jsonschema compiles this package's grammar for a check that we do not use, which takes two seconds.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

# Images of containers set this. Then each worker, server and kernel compiles what it imports anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# In a script's background job Ctrl-C is ignored, here and in every server that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="the large counts; seeds are printed")
    parser.addoption("--update-snapshots", action="store_true", help="rewrite tests/snapshots")
    parser.addoption("--write-seconds", action="store_true", help="rewrite tests/seconds.txt")
    parser.addoption("--seed", type=int, default=0, help="first seed of the random workloads")


def pytest_configure(config: pytest.Config) -> None:
    """Let hypothesis draw the same cases in each run, so that a change is what makes a test fail."""
    if not config.getoption("--soak"):
        hypothesis.settings.load_profile("ci")


SECONDS = Path(__file__).with_name("seconds.txt")
_measured: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up how long the tests of each file take."""
    _measured[report.nodeid.partition("::")[0]] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the files that take five seconds or more, longest first; keep those that did not run."""
    if session.config.getoption("--write-seconds") and not hasattr(session.config, "workerinput"):
        both = Counter(seconds_of_files() | _measured)
        long = [(file, time) for file, time in both.most_common() if time >= 5]
        root = session.config.rootpath
        lines = [f"{time:.0f} {file}\n" for file, time in long if (root / file).exists()]
        SECONDS.write_text("".join(lines), "utf-8")


def seconds_of_files() -> dict[str, float]:
    """Return the seconds of each long file of tests, as they were last measured."""
    lines = SECONDS.read_text("utf-8").splitlines()
    return {file: float(time) for time, file in (line.split(" ", 1) for line in lines)}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start with the longest files, and leave out tests marked `soak` without `--soak`.

    A worker that meets a long file last would leave the others without work.
    """
    seconds = seconds_of_files()
    items.sort(key=lambda item: -seconds.get(item.nodeid.partition("::")[0], 0))
    if not config.getoption("--soak"):
        long = [item for item in items if item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]


def pytest_collection_finish() -> None:
    """Collect garbage rarely, and never look again at the million objects of the imported modules."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)  # the default takes a quarter of tests with long logs


@pytest.fixture(scope="session")
def soak(request: pytest.FixtureRequest) -> bool:
    return request.config.getoption("--soak")


@pytest.fixture(scope="session")
def first_seed(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--seed")


@pytest.fixture
def snapshot(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with tests/snapshots/NAME.txt; with `--update-snapshots`, write the file."""

    def compare(name: str, text: str) -> None:
        file = Path(__file__).parent / "snapshots" / f"{name}.txt"
        if request.config.getoption("--update-snapshots"):
            file.write_text(text, "utf-8")
        assert text == file.read_text("utf-8"), (
            "if the change is intended: pytest --update-snapshots"
        )

    return compare
