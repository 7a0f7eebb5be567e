"""Start pytest in Pyodide under Node, with this repository in its file system.

`python -m tests.core_314.pyodide` only downloads what that needs.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path

from site_assets import FRONTEND, REPOSITORY, WHEELS, page_wheels

RUNNER = FRONTEND / "test" / "run_pytest.mjs"
REQUIREMENTS = (WHEELS, Path(__file__).with_name("wheels.txt"))
# Plain Python, so their files are the same for each version of it.
PACKAGES = ("pytest", "pluggy", "iniconfig", "packaging", "pygments", "sortedcontainers")


def wheels() -> list[Path]:
    """Return what is compiled for Pyodide; download it the first time."""
    return [wheel for file in REQUIREMENTS for wheel in page_wheels(file)]


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


if __name__ == "__main__":
    wheels()
