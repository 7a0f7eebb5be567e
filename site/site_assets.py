"""Build what a site has besides HTML: scripts, style sheets, Pyodide, the core as a zip, a sitemap."""

import hashlib
import io
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from site_pages import REPOSITORY, Site

FRONTEND = REPOSITORY / "visualizer" / "frontend"
WHEELS = Path(__file__).with_name("page-wheels.txt")
KEPT_WHEELS = REPOSITORY / "build" / "page-wheels"
PYODIDE = FRONTEND / "node_modules" / "pyodide"
RUNTIME = Path(__file__).with_name("runtime")

# The version of Python in a page. Pyodide names its wheels' platform after the year of its ABI.
PYTHON, PLATFORM = "3.14", "pyemscripten_2026_0_wasm32"

# The parts that a page cannot use, because they need compiled or notebook packages, a server, or files
# of the front end.
_LEFT_OUT = (
    "engine/training/",
    "underglass/commands/",
    "visualizer/figures/",
    "visualizer/frontend/",
    "visualizer/live/",
    "visualizer/static/",
    "visualizer/widgets/",
)
_SUFFIXES = (".py", ".json", ".jinja", ".gz", ".css")
LONGEST_S = 1800  # timeout of a script; running the lessons takes long on a busy machine
_A_DATE = (2026, 1, 1, 0, 0, 0)  # so that equal contents give equal files


def build(site: Site) -> None:
    """Write assets/, python/ and model/."""
    run_node("site.mjs", str(site.out / "assets"))
    for path in sorted(Path(__file__).with_name("assets").iterdir()):
        site.copy(path, f"assets/{path.name}")
    _write_python(site.out / "python")
    _write_model(site.out / "model")


def run_node(script: str, *arguments: str, given: str = "") -> str:
    """Run a script of the front end's folder, and return what it prints. Exit if it fails."""
    node = shutil.which("node", path=str(Path(sys.executable).parent)) or shutil.which("node")
    if node is None:
        raise SystemExit("node is missing: `make dev` installs it into .venv")
    command = [node, "--no-warnings", str(FRONTEND / script), *arguments]
    done = subprocess.run(
        command, input=given, stdout=subprocess.PIPE, text=True, check=False, timeout=LONGEST_S
    )
    if done.returncode:
        raise SystemExit(f"node {script} failed with exit code {done.returncode}")
    return done.stdout


def _write_python(folder: Path) -> None:
    folder.mkdir(parents=True)
    if not PYODIDE.is_dir():
        raise SystemExit(f"{PYODIDE} is missing: `make dev` installs it")
    # A browser keeps the machine code of a .wasm file that a host sends as it is.
    for name in ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip"):
        shutil.copyfile(PYODIDE / name, folder / name)
    # The lock file lists packages that this site does not have and that its pages do not need.
    lock = json.loads((PYODIDE / "pyodide-lock.json").read_text("utf-8"))
    (folder / "pyodide-lock.json").write_text(json.dumps(lock | {"packages": {}}), "utf-8")
    with tempfile.TemporaryDirectory() as temporary:
        core = Path(temporary) / "core.zip"
        core.write_bytes(core_zip())
        run_node("snapshot.mjs", *map(str, (folder, core, *page_wheels())))
    size = sum(path.stat().st_size for path in folder.iterdir())
    digests = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in sorted(folder.glob("*.gz"))
    }
    (folder / "contents.json").write_text(json.dumps({"bytes": size, "digests": digests}), "utf-8")


def page_wheels(requirements: Path = WHEELS) -> list[Path]:
    """Return the wheels for a page's Python. They are downloaded once and checked by their hashes."""
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    folder = KEPT_WHEELS / digest
    if not folder.is_dir():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        abi = f"cp{PYTHON.replace('.', '')}"
        options = (
            "--quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes "
            f"--python-version {PYTHON} --abi {abi} --abi none --platform {PLATFORM} --platform any"
        )
        command = [sys.executable, "-m", "pip", "download", *options.split()]
        command += ["--dest", str(part), "--requirement", str(requirements)]
        if subprocess.run(command, check=False).returncode:
            raise SystemExit(f"pip could not download the wheels that {requirements} lists")
        part.rename(folder)
    return sorted(folder.glob("*.whl"))


def core_zip() -> bytes:
    """Return a zip of what a page imports: the engine, the visualizer, the checks, and the runtime."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, path in sorted(core_files()):
            about = zipfile.ZipInfo(name, _A_DATE)
            about.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(about, path.read_bytes(), compresslevel=9)
    return buffer.getvalue()


def core_files() -> Iterator[tuple[str, Path]]:
    """Yield each file of the core as (name in the zip, path)."""
    for folder in ("engine", "visualizer", "underglass"):
        for path in (REPOSITORY / folder).rglob("*"):
            name = path.relative_to(REPOSITORY).as_posix()
            if path.suffix in _SUFFIXES and not name.startswith(_LEFT_OUT):
                yield name, path
    for folder in ("checks", "solutions"):
        for path in sorted((REPOSITORY / "notebooks" / folder).iterdir()):
            if path.suffix not in (".py", ".gz"):
                continue
            yield f"{folder}/{path.name}", path
    for path in RUNTIME.glob("*.py"):
        yield path.name, path
    for file in metadata.files("markupsafe") or ():
        if file.suffix == ".py" or "LICENSE" in file.name:
            yield file.as_posix(), Path(str(file.locate()))


def _write_model(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in ("model.safetensors", "config.json"):
        shutil.copyfile(REPOSITORY / "engine" / "bundled" / name, folder / name)


def build_sitemap(site: Site) -> None:
    """Write robots.txt and, if the site's address is known, a sitemap of the finished site."""
    lines = ["User-agent: *", "Allow: /"]
    if site.url:
        pages = sorted(path.relative_to(site.out).as_posix() for path in site.out.rglob("*.html"))
        site.write_text(
            "sitemap.txt", "".join(f"{site.url}{page}\n" for page in pages if page != "404.html")
        )
        lines.append(f"Sitemap: {site.url}sitemap.txt")
    site.write_text("robots.txt", "\n".join(lines) + "\n")
