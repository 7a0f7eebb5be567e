"""Install the wheel into empty environments outside the repository, and use it there.

    python make.py test-wheel                                # the core, then with all that it can do
    python make.py test-wheel WHEEL_ARGS=--core              # the core only
    python make.py test-wheel WHEEL_ARGS="--reuse .venv"     # takes torch and the like from .venv

It runs with any Python from 3.11 on, and prints sizes and times. `dist/` has the wheel.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "tests" / "fixtures" / "vllm" / "vllm_tight.jsonl.gz"
SECONDS = 300
MEGABYTE = 1_000_000
BARE = """
from importlib.util import find_spec
from engine.core.extras import EXTRA_OF
installed = sorted(name for name in EXTRA_OF if find_spec(name))
assert not installed, f"the core brings what belongs to an extra: {installed}"
"""
SIMULATION = """
from engine import Cost, simulate
from engine.simulation.speakers import Speaker, workload_of
from visualizer import read, to_html
log = simulate(workload_of([Speaker("Ada", own=8, output=4)]), cost=Cost(20, 0.5))
assert read(log).request("Ada").first_token_step is not None
to_html(log, "simulated.html")
"""
COPY = """
from pathlib import Path
from underglass.workbook import update
update(Path("mine"))
"""
LESSONS = ("04_continuous_batching", "11_a_real_vllm_under_the_same_glass")


class Installed:
    """A virtual environment in `home`, which is also the working directory of its commands."""

    def __init__(self, home: Path) -> None:
        self.home = home
        subprocess.run([sys.executable, "-m", "venv", home / "venv"], check=True)
        self.scripts = home / "venv" / ("Scripts" if os.name == "nt" else "bin")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        self.environment |= {"PYTHONUTF8": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def command(self, *arguments: object) -> list[str]:
        name, *rest = map(str, arguments)
        return [str(self.scripts / name), *rest]

    def run(self, *arguments: object, code: int = 0, **environment: str) -> str:
        """Run a command; return what it prints. Fails unless it ends with `code`."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.home,
            env=self.environment | environment,
            capture_output=True,
            encoding="utf-8",
            timeout=SECONDS,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == code, f"{arguments} ended with {done.returncode}:\n{said}"
        return said

    def python(self, code: str) -> str:
        return self.run("python", "-c", code).strip()

    @contextlib.contextmanager
    def running(self, pattern: str, *arguments: object) -> Iterator[str]:
        """Run a command until the end of the block; yield the address in its first match."""
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                self.command(*arguments),
                cwd=self.home,
                env=self.environment | {"PYTHONUNBUFFERED": "1"},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                yield _wait_for(pattern, output, process)
            finally:
                process.terminate()
                process.wait(60)

    def megabytes(self) -> float:
        files = (one for one in (self.home / "venv").rglob("*") if not one.is_symlink())
        return sum(one.stat().st_size for one in files if one.is_file()) / MEGABYTE


def _wait_for(pattern: str, output, process: "subprocess.Popen[bytes]") -> str:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        running = process.poll() is None
        output.seek(0)
        said = output.read().decode(errors="replace")
        if found := re.search(pattern, said):
            return found[1]
        assert running, f"the command ended with {process.returncode}:\n{said}"
        time.sleep(0.1)  # its output is a file, and nothing tells when a file grows
    raise AssertionError(f"no {pattern!r} in:\n{said}")


def get(url: str, data: dict[str, object] | None = None) -> str:
    body = None if data is None else json.dumps(data).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    print(f"  {what:48}{time.perf_counter() - started:8.1f} s", flush=True)


def check_core(wheel: Path, home: Path) -> None:
    """Install the wheel alone. It opens recordings, explains them, and has the lessons."""
    print("core: pip install underglass")
    there = Installed(home)
    empty = there.megabytes()
    with timed("pip install"):
        there.run("python", "-m", "pip", "install", "--quiet", wheel)
    there.python(BARE)
    with timed("import engine.core.log, engine, visualizer"):
        there.python("import engine.core.log, engine, visualizer")
    version = there.python("import underglass; print(underglass.__version__)")
    assert there.run("underglass", "--version").strip() == f"underglass {version}"
    assert wheel.name.split("-")[1] == version
    assert "--perfetto" in there.run("python", "-m", "visualizer", "--help")
    recording = shutil.copy(RECORDING, home)
    with timed("underglass open: page written to a file"):
        there.run("underglass", "open", recording, "--html", "board.html")
    assert "<script" in (home / "board.html").read_text("utf-8")
    with (
        timed("underglass open: page served"),
        there.running(r"(http://\S+)", "underglass", "open", recording, "--no-browser") as page,
    ):
        assert "<script" in get(page)
    with timed("underglass why"):
        assert "ms" in there.run("underglass", "why", recording, "Dev")
    there.python(SIMULATION)
    refused = there.run("underglass", "lab", code=2)
    assert f"pip install '{wheel}[lab]'" in refused and len(refused.splitlines()) == 1, refused
    refused = there.run("underglass", "serve", code=2)
    assert f"pip install '{wheel}[" in refused and len(refused.splitlines()) == 1, refused
    there.python(COPY)
    for name in LESSONS:
        cells = json.loads((home / "mine" / f"{name}.ipynb").read_text("utf-8"))["cells"]
        prose = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        links = [link for text in prose for link in re.findall(r"\]\((reading/[^)#]+)", text)]
        assert links and all((home / "mine" / link).is_file() for link in links), links
    print(f"  {'environment, without the empty one':48}{there.megabytes() - empty:8.1f} MB")


def check_all(wheel: Path, home: Path, reuse: Path | None) -> None:
    """Install the wheel with its extras. It serves the bundled model, and the lessons run."""
    print("everything: pip install 'underglass[model,server,lab]'")
    there = Installed(home)
    empty = there.megabytes()
    if reuse:
        [site] = there.home.glob("venv/lib/python*/site-packages")
        [other] = reuse.resolve().glob("lib/python*/site-packages")
        (site / "reused.pth").write_text(f"{other}\n", "utf-8")
        there.run("python", "-m", "pip", "install", "--quiet", "--no-deps", wheel)
    else:
        with timed("pip install"):
            there.run("python", "-m", "pip", "install", "--quiet", f"{wheel}[model,server,lab]")
    where = there.python("import engine; print(engine.__file__)")
    assert Path(where).is_relative_to(home.resolve()), f"not the installed engine: {where}"
    with (
        timed("underglass serve: ready, asked and stopped"),
        there.running(r"at (http://\S+)", "underglass", "serve", "--port", "0") as url,
    ):
        with timed("the README's curl"):
            asked = {"prompt": "Once upon a time", "max_tokens": 50}
            answer = get(f"{url}/v1/completions", asked)
        assert len(answer) > 100, answer
        assert "<title>" in get(url)
    options = ("--no-browser", "lessons", "--", "--IdentityProvider.token=")
    with (
        timed("underglass lab: answers and stopped"),
        there.running(r"(http://[\w.]+:\d+)/lab", "underglass", "lab", *options) as url,
    ):
        listed = json.loads(get(f"{url}/api/contents?content=1"))["content"]
        assert {f"{name}.ipynb" for name in LESSONS} <= {one["name"] for one in listed}
    path = there.python("from underglass.workbook import LESSONS; print(LESSONS)")
    for name in LESSONS:
        with timed(f"lesson {name[:2]}"):
            variables = {"PYTHONPATH": path, "UNDERGLASS_REVEAL": "1"}
            execute = ("-m", "nbconvert", "--to", "notebook", "--inplace", "--execute")
            there.run("python", *execute, f"lessons/{name}.ipynb", **variables)
    if not reuse:
        print(f"  {'environment, without the empty one':48}{there.megabytes() - empty:8.1f} MB")


def _folder() -> "tempfile.TemporaryDirectory[str]":
    # Windows keeps a program's files for a moment after it has ended.
    return tempfile.TemporaryDirectory(prefix="underglass-", ignore_cleanup_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="the wheel's folder")
    parser.add_argument("--core", action="store_true", help="check the core only")
    parser.add_argument("--all", action="store_true", help="check what the extras add only")
    parser.add_argument("--reuse", type=Path, help="take other packages from this environment")
    options = parser.parse_args()
    wheel = max(options.dist.resolve().glob("*.whl"), key=lambda path: path.stat().st_mtime)
    for file in sorted(options.dist.iterdir()):
        print(f"{file.name:50}{file.stat().st_size / MEGABYTE:8.2f} MB")
    if not options.all:
        with _folder() as folder:
            check_core(wheel, Path(folder, "core"))
    if not options.core:
        with _folder() as folder:
            check_all(wheel, Path(folder, "all"), options.reuse)


if __name__ == "__main__":
    main()
