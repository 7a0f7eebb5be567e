"""What `make` does, for machines without make: `python make.py TARGET... [NAME=value...]`.

The Makefile only calls this file, so `make lab FRESH=04` and `python make.py lab FRESH=04` are the
same. It needs no package. A Python that is too old can still parse it, and gets an error that says so.

A target is a function; `_` in its name is `-` on the command line. It first calls the targets that it
needs, and each runs once. A variable may also come from the environment.
"""

from __future__ import annotations

import functools
import inspect
import os
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Env = Mapping[str, str]

ROOT = Path(__file__).resolve().parent
VENV = Path(".venv")
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
INSTALLED = VENV / ".installed"
BENCH_INSTALLED = VENV / ".bench-installed"
FRONTEND = Path("visualizer", "frontend")
NODE_MODULES = FRONTEND / "node_modules" / ".installed"
BUNDLE = Path("visualizer", "static", "board.js")
NODE_CLIENTS = Path("build", "clients", "node", "requirements-node.txt")
WHEEL_TEST = Path("tests", "release", "installed.py")

NOTHING: Env = {}
TARGETS: dict[str, Callable[[], None]] = {}


def target(function: Callable[[], None]) -> Callable[[], None]:
    """Make a function a target. It runs once; the first line of its docstring is its help."""
    once = functools.cache(function)
    TARGETS[function.__name__.replace("_", "-")] = once
    return once


def option(name: str, default: str = "") -> str:
    """Return a variable of the command line or the environment."""
    return os.environ.get(name) or default


def words(name: str) -> list[str]:
    """Return a variable that holds several arguments, quoted as in a shell."""
    return shlex.split(option(name), posix=os.name != "nt")


def run(*command: object, quiet: bool = False, folder: Path = ROOT, env: Env = NOTHING) -> None:
    """Run a command with more environment variables, and exit if it fails."""
    parts = [str(one) for one in command]
    if not quiet:
        said = (f"{name}={value}" for name, value in env.items() if name != "PATH")
        print(" ".join([*said, *parts]))
        sys.stdout.flush()
    try:
        process = subprocess.Popen(parts, cwd=folder, env={**os.environ, **env})
    except OSError as error:
        raise SystemExit(f"cannot run {parts[0]}: {error.strerror}") from None
    while process.returncode is None:
        with suppress(KeyboardInterrupt):  # the command got the signal, too, and may ask a question
            process.wait()
    if code := process.returncode:
        raise SystemExit(code if code > 0 else 128 - code)  # a signal, as a shell says it


def python(*arguments: object, quiet: bool = False, env: Env = NOTHING) -> None:
    """Run the Python of .venv."""
    run(BIN / "python", *arguments, quiet=quiet, env=env)


def author(module: str, *arguments: object, env: Env = NOTHING) -> None:
    """Run a module that imports the checks and the solutions in notebooks/."""
    python("-m", module, *arguments, env={"PYTHONPATH": "notebooks", **env})


def pip(*arguments: str) -> None:
    """Install into .venv, at the versions of constraints.txt."""
    options = ("--disable-pip-version-check", "-c", "constraints.txt")
    python("-m", "pip", "install", *options, *arguments)


def path_with_node() -> str:
    """Return a PATH that has .venv's commands, node and npm among them."""
    return os.pathsep.join([str(ROOT / BIN), os.environ.get("PATH", "")])


def npm(*arguments: str) -> None:
    """Run .venv's npm in the front end's folder."""
    run(ROOT / BIN / "npm", *arguments, folder=ROOT / FRONTEND, env={"PATH": path_with_node()})


def is_newer(made: Path, sources: Iterable[Path]) -> bool:
    """Return whether a file exists and is not older than what it is made of."""
    return made.exists() and made.stat().st_mtime >= max(one.stat().st_mtime for one in sources)


@target
def help() -> None:
    """list the targets"""
    for name, function in TARGETS.items():
        print(f"{name:22}{inspect.getdoc(function)}")


@target
def setup() -> None:
    """make .venv, install everything into it, build the front end"""
    _install()
    _bundle()


@functools.cache
def _install() -> None:
    if is_newer(INSTALLED, [Path("pyproject.toml"), Path("constraints.txt")]):
        return
    print("Setting up: about 2.5 GB in .venv, most of it PyTorch; a few minutes, once.")
    run(sys.executable, "-m", "venv", VENV)
    pip("-e", ".[lab,dev]")
    INSTALLED.touch()


@functools.cache
def _bundle() -> None:
    _node_modules()
    folders = (FRONTEND / "src", Path("visualizer", "scenarios"))
    sources = [one for folder in folders for one in folder.rglob("*") if one.is_file()]
    sources += [Path("engine", "events", "messages.json"), NODE_MODULES]
    sources += [FRONTEND / "build.mjs", FRONTEND / "gallery.mjs"]
    if not is_newer(BUNDLE, sources):
        run(BIN / "node", FRONTEND / "build.mjs")


@functools.cache
def _node_modules() -> None:
    _install()
    if is_newer(NODE_MODULES, [FRONTEND / "package-lock.json"]):
        return
    print("Installing what builds the board (about 110 MB).")
    # Not `npm ci`: it fails if the lock file lacks a binary for another system (@napi-rs/canvas).
    npm("install", "--no-save", "--no-audit", "--no-fund", "--silent")
    NODE_MODULES.touch()


@target
def lab() -> None:
    """open your copy of the lessons in JupyterLab; FRESH=04 puts one aside and makes it anew"""
    setup()
    fresh = ["--fresh", option("FRESH")] if option("FRESH") else []
    run(BIN / "underglass", "lab", *fresh, "workbook", "--", *words("LAB_ARGS"))


@target
def notebooks() -> None:
    """run the lessons in Chromium and store their outputs and pictures; LESSONS="04 05" for some"""
    setup()
    author("authoring", *words("LESSONS"))


@target
def pictures() -> None:
    """take the README's pictures of the board in Chromium, the moving one too"""
    setup()
    author("authoring.pictures")


@target
def slides() -> None:
    """write the slides of each session into build/slides, for Marp"""
    setup()
    author("authoring.slides")


@target
def solutions() -> None:
    """write docs/solutions.md from the solutions, the checks and the recorded wrong answers"""
    setup()
    author("authoring.solutions")


@target
def contents() -> None:
    """write the contents notebook from the lessons"""
    setup()
    author("authoring.contents")


@target
def test() -> None:
    """run all tests"""
    test_fast()
    test_frontend()
    test_notebooks()
    test_browser()


# The plugin imports nbformat, and with it a grammar that takes seconds, in each of pytest's processes.
WITHOUT_NBVAL = ("-p", "no:nbval")


def pytest(*arguments: str, env: Env = NOTHING) -> None:
    """Run pytest."""
    run(BIN / "pytest", *arguments, env=env)


@target
def test_fast() -> None:
    """engine, server and visualizer; PYTEST_ARGS=tests/engine/test_log.py for some"""
    setup()
    if not is_newer(NODE_CLIENTS, [Path("tests", "clients", "requirements-node.txt"), INSTALLED]):
        python("-m", "tests.clients.environments", "node", quiet=True)
        NODE_CLIENTS.touch()
    python("-m", "tests.core_314.pyodide", quiet=True, env={"PYTHONPATH": "site"})
    parallel = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", *WITHOUT_NBVAL)
    pytest("--ignore=tests/browser", *parallel, "-q", *words("PYTEST_ARGS"))


@target
def test_core_314() -> None:
    """the core's tests on Python 3.14, in Pyodide; PYTEST_ARGS=tests/engine/test_log.py for some"""
    setup()
    python("-m", "tests.core_314", *words("PYTEST_ARGS"), env={"PYTHONPATH": "site"})


@target
def test_frontend() -> None:
    """the ES module's own tests"""
    setup()
    tests = f"{FRONTEND.as_posix()}/test/**/*.test.js"
    run(BIN / "node", "--test", "--test-reporter=dot", tests)


@target
def test_notebooks() -> None:
    """run every lesson from top to bottom"""
    setup()
    checked = ("--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=60")
    parallel = ("-n", "2", "--dist", "loadscope")
    pytest(*checked, *parallel, "-q", "notebooks", env={"UNDERGLASS_REVEAL": "1"})


@target
def test_browser() -> None:
    """pages, widgets and lessons in Chromium; PYTEST_ARGS=tests/browser/test_open.py for some"""
    setup()
    parallel = ("-n", "2", "--dist", "loadfile", *WITHOUT_NBVAL)
    folder = (
        "-o",
        "testpaths=tests/browser",
    )  # unlike an argument, a path in PYTEST_ARGS replaces it
    pytest(*folder, *parallel, "-q", "-rs", *words("PYTEST_ARGS"))


@target
def clients() -> None:
    """run other projects' clients against a server; CLIENTS="aiperf --gateway" for some"""
    setup()
    python("-m", "tests.clients", *words("CLIENTS"))


@target
def soak() -> None:
    """the same properties on many more cases"""
    setup()
    many = ("--soak", "-q", "-s", "--timeout=3600", *words("PYTEST_ARGS"))
    pytest("tests/engine", "-m", "not browser", "-k", "random_workloads", *many)
    pytest("tests/engine/compute", "-m", "soak", *many)
    pytest("tests/project", "tests/server/test_fuzz.py", *many)


def vllm(*arguments: str) -> None:
    """Run a Python that has vllm; it is too large for .venv."""
    path = (str(Path("recorders", "vllm")), "notebooks")
    run(
        option("VLLM_PYTHON", sys.executable), *arguments, env={"PYTHONPATH": os.pathsep.join(path)}
    )


@target
def record_vllm() -> None:
    """record vLLM's decisions for tests/parity; VLLM_PYTHON=a Python that has vllm"""
    vllm("-m", "tests.parity.record_vllm", *words("RECORD_ARGS"))


@target
def record_vllm_run() -> None:
    """record a whole vLLM with the bundled model; VLLM_PYTHON as above"""
    vllm("-m", "tests.parity.record_vllm_run", *words("RECORD_ARGS"))


@target
def record_vllm_examples() -> None:
    """record the runs of vLLM in the gallery; VLLM_PYTHON as above"""
    setup()
    vllm("recorders/vllm/examples.py", "tests/fixtures/vllm")
    vllm("-m", "tests.recorders.record_fixtures")
    python("-m", "tests.recorders.scenarios")


def sglang(module: str, *arguments: str) -> None:
    """Run a module that reads SGLang's code in a folder; it is too large for .venv."""
    setup()
    python("-m", module, "--sglang", option("SGLANG", "/tmp/sglang"), *arguments)


@target
def record_sglang() -> None:
    """record SGLang's cache for tests/parity; SGLANG=a folder that has sglang"""
    sglang("tests.parity.record_sglang", *words("RECORD_ARGS"))


@target
def record_sglang_events() -> None:
    """record SGLang's KV events and metrics for tests/sources; SGLANG as above"""
    sglang("tests.parity.record_sglang_events")


def project(*arguments: str) -> None:
    """Run a command of the final project. Its hashes must not depend on the process."""
    _install()
    author("project", *arguments, env={"PYTHONHASHSEED": "0"})


def board() -> str:
    """Return the leaderboard's file."""
    return option("BOARD", "project/leaderboard.jsonl")


@target
def score() -> None:
    """score project/mine.py against our solution; see project/README.md"""
    project("score")


@target
def submit() -> None:
    """score project/mine.py and append a line to the leaderboard: submit NAME=Ada"""
    project("score", "--submit", option("NAME"), "--board", board())


@target
def verify() -> None:
    """run the leaderboard's lines again and compare"""
    project("verify", "--board", board())


@target
def rescore() -> None:
    """score each name's best file anew: UNDERGLASS_SEED=secret make rescore"""
    project("rescore", "--board", board())


@target
def leaderboard() -> None:
    """print the leaderboard, and write it as a page"""
    project("leaderboard", "--board", board())


@target
def check() -> None:
    """format, lint, types, imports, licenses"""
    check_frontend()
    run(BIN / "ruff", "format", "--check", ".")
    run(BIN / "ruff", "check", ".")
    run(BIN / "mypy")
    run(BIN / "lint-imports")
    python("site/site_third_party.py", "--check", env={"PYTHONPATH": str(ROOT)})


@target
def check_frontend() -> None:
    """format, lint and types of the JavaScript"""
    setup()
    npm("run", "--silent", "check")


@target
def bundle() -> None:
    """build visualizer/static from visualizer/frontend"""
    _bundle()


@target
def site() -> None:
    """build the static site into build/site: the course in a browser, nothing to install"""
    setup()
    paths = os.pathsep.join(str(ROOT / one) for one in ("notebooks", "site/runtime"))
    python("site/build.py", "build/site", env={"PYTHONPATH": paths})


@target
def dist() -> None:
    """build the sdist, and the wheel from it, in dist/"""
    _node_modules()
    shutil.rmtree("dist", ignore_errors=True)
    python("-m", "build", "--outdir", "dist", env={"PATH": path_with_node()})


@target
def test_wheel() -> None:
    """install the wheel into an empty environment outside the repository, and use it there"""
    if not list(Path("dist").glob("*.whl")):
        dist()
    run(sys.executable, WHEEL_TEST, *words("WHEEL_ARGS"))


@target
def serve() -> None:
    """serve the bundled model on port 8000"""
    setup()
    run(BIN / "underglass", "serve", *words("SERVE_ARGS"))


@target
def fields() -> None:
    """write the table of request fields into docs/clients.md"""
    setup()
    python("-m", "tests.clients.fields")


@target
def bench() -> None:
    """measure the figures that the README states"""
    _install()
    if not is_newer(BENCH_INSTALLED, [INSTALLED]):
        print("Adding matplotlib and llama.cpp to .venv: llama.cpp compiles for minutes, once.")
        try:
            pip("--quiet", "-e", ".[bench]")
        except SystemExit:
            print("llama.cpp could not be built (it needs a C++ compiler); the figures go without.")
            pip("--quiet", "matplotlib")
        BENCH_INSTALLED.touch()
    python("-m", "benchmarks", *words("BENCH_ARGS"))


@target
def clean() -> None:
    """remove what setup made"""
    for folder in (VENV, FRONTEND / "node_modules", Path("visualizer", "static")):
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: list[str]) -> None:
    """Run the targets of a command line in order."""
    names = [one for one in arguments if "=" not in one] or ["help"]
    if sys.version_info < (3, 11):  # noqa: UP036 (any Python may run this file)
        raise SystemExit(
            "Underglass needs Python 3.11 or newer; name one with: "
            f"make PYTHON=python3.12 {' '.join(names)}, or: python3.12 make.py {' '.join(names)}"
        )
    for name, _, value in (one.partition("=") for one in arguments if "=" in one):
        os.environ[name] = value
    if unknown := [name for name in names if name not in TARGETS]:
        raise SystemExit(f"there is no target {unknown[0]}; choose from {', '.join(TARGETS)}")
    os.chdir(ROOT)
    for name in names:
        TARGETS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
