"""Start pytest in Pyodide under Node, with this repository in its file system."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
RUNNER = REPOSITORY / "visualizer" / "frontend" / "test" / "run_pytest.mjs"
REQUIREMENTS = [REPOSITORY / "site" / "page-wheels.txt", Path(__file__).with_name("wheels.txt")]
WHEELS = REPOSITORY / "build" / "core-314"
# Plain Python, with the same files for each version of it.
PACKAGES = ("pytest", "pluggy", "iniconfig", "packaging", "pygments", "sortedcontainers")


def download_wheels() -> None:
    """Download what is compiled for Pyodide, once."""
    if wheels():
        return
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--require-hashes", "--dest", str(WHEELS)]
    command += ["--platform", "pyemscripten_2026_0_wasm32", "--platform", "any"]
    command += ["--python-version", "3.14", "--abi", "cp314", "--abi", "none"]
    for file in REQUIREMENTS:
        command += ["--requirement", str(file)]
    subprocess.run(command, check=True)


def wheels() -> list[Path]:
    """Return the wheels that have been downloaded."""
    return sorted(WHEELS.glob("*.whl"))


def run(arguments: Sequence[str]) -> int:
    """Run pytest in Pyodide and return its exit code."""
    files = [file for package in PACKAGES for file in distribution(package).files or ()]
    given = {
        "repository": str(REPOSITORY),
        "library": str(distribution("pytest").locate_file("")),
        "plain": sorted({file.parts[0] for file in files} - {"..", "__pycache__"}),
        "wheels": list(map(str, wheels())),
        "arguments": [
            *("-p", "tests.core_314.plugin", "-p", "no:cacheprovider"),
            *("-o", "addopts=--import-mode=importlib --strict-markers"),
            *arguments,
        ],
    }
    node = shutil.which("node", path=str(Path(sys.executable).parent)) or "node"
    return subprocess.run([node, str(RUNNER), json.dumps(given)], check=False).returncode
