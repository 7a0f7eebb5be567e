"""Resolve every pin for each Python and each system that the README names, without installing anything.

    python make.py pins

It asks the package index, so it is part of a release and not of `make test`.
"""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11.0", "3.12", "3.13", "3.14")
# llguidance's wheels need glibc 2.31, and torch's need macOS 14.
SYSTEMS = ("x86_64-manylinux_2_31", "aarch64-manylinux_2_31", "aarch64-apple-darwin", "windows")


def resolve(python: str, system: str) -> str:
    """Return why the pins cannot be installed from wheels; "" if they can."""
    command = ["uv", "pip", "compile", "--quiet", "--only-binary", ":all:", "-c", "constraints.txt"]
    target = ["--python-version", python, "--python-platform", system, "--output-file", os.devnull]
    extras = ["--extra", "dev", "pyproject.toml"]
    environment = os.environ | {"MACOSX_DEPLOYMENT_TARGET": "14.0"}
    done = subprocess.run(
        [*command, *target, *extras],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr if done.returncode else ""


def main() -> int:
    """Print a line for each Python and system; return 1 if one of them cannot install the pins."""
    failed = 0
    for python, system in product(PYTHONS, SYSTEMS):
        reason = resolve(python, system)
        print(f"Python {python} on {system}: {reason or 'every pin has a wheel'}", flush=True)
        failed += bool(reason)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
