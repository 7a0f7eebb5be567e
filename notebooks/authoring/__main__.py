"""Run lessons in Chromium and store their outputs, with pictures: `make notebooks ARGS="04 05"`.

The committed outputs are for readers who run nothing, on a code host or in a fresh JupyterLab. A
widget's reference would be dead there, and its state large. So each widget is stored as its picture
in both themes (`visualizer/widgets/picture.py`) and its `repr`. When the cell runs, it shows the widget
again. A board is a card with round corners, and a figure has no background, so it suits every page.
They have a palette, and one that shows the same as the stored one leaves the file as it is.
Between a question and its answer nothing is stored.
"""

import base64
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from PIL import Image
from playwright.sync_api import Locator, Page, ViewportSize, expect, sync_playwright

from authoring.contents import settled, write_contents
from authoring.lab import (
    CHROMIUM_FLAGS,
    WIDGET,
    cell,
    cells,
    close_notebook,
    copy_of_lessons,
    jupyterlab,
    open_notebook,
    run_all,
    set_theme,
)
from authoring.numbers import untraced
from authoring.palette import png
from authoring.parts import METADATA, WORKBENCHES, hidden, lessons
from authoring.rules import problems
from visualizer.pictures import chromium_path
from visualizer.widgets.picture import picture_outputs

PNG = "image/png"
PLOTLY = "application/vnd.plotly.v1+json"
DRAWN = ".underglass, .js-plotly-plot"  # elements that pictures are taken of
# What is drawn around a picture is left out of it, so that it looks right on light and dark pages.
FIGURE = "* { background: transparent !important; }"
CARD = """:has([data-card]) { background: transparent !important; }
[data-card] { border-radius: 12px; box-shadow: inset 0 0 0 1px #c9cdd5; }
[data-card][data-theme="dark"] { box-shadow: inset 0 0 0 1px #454b55; }"""
_DARK = re.compile(r"url\(data:image/\w+;base64,([^)]+)\)")
Places = dict[tuple[int, int], bytes]  # pictures by cell and output
SIZE: ViewportSize = {
    "width": 1390,
    "height": 2400,
}  # a whole board is in sight


class LessonError(RuntimeError):
    """A cell failed. The message is that of the kernel."""


def main(names: list[str]) -> None:
    """Store the lessons whose names start with one of `names`, by default all."""
    os.environ["UNDERGLASS_REVEAL"] = "1"  # no one is there to choose
    stored = [*lessons(), *WORKBENCHES]
    chosen = [path for path in stored if not names or path.name.startswith(tuple(names))]
    path = chromium_path()
    if path is None:
        raise SystemExit("no Chromium on this machine: install the package `chromium`")
    with (
        tempfile.TemporaryDirectory() as home,
        sync_playwright() as playwright,
        jupyterlab(Path(home), _empty(Path(home) / "work")) as address,
    ):
        copy_of_lessons(Path(home) / "work")
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        for lesson in chosen:
            context = browser.new_context(viewport=SIZE, color_scheme="light")
            store(context.new_page(), address, lesson)
            context.close()
        browser.close()
    write_contents()


def store(page: Page, address: str, lesson: Path) -> None:
    """Run one lesson and write its outputs into the committed file."""
    open_notebook(page, address, f"notebooks/{lesson.name}")
    page.evaluate("() => window.jupyterapp.commands.execute('application:toggle-left-area')")
    run_all(page)
    notebook = nbformat.read(lesson, as_version=4)
    ran = cells(page)
    light, dark = (_pictures(page, ran, theme) for theme in ("light", "dark"))
    count = 0
    for index, (stored, run) in enumerate(zip(notebook.cells, ran, strict=True)):
        stored.metadata = nbformat.from_dict({"tags": list(stored.metadata.get("tags", []))})
        if stored.cell_type != "code":
            continue
        count += 1
        stored.execution_count = count
        outputs = _outputs(index, run["outputs"], count, light, dark)
        _keep_pictures(stored.outputs, outputs)
        stored.outputs = [nbformat.from_dict(one) for one in outputs]
    notebook.metadata = nbformat.from_dict(METADATA)
    close_notebook(page, address)
    if lesson in WORKBENCHES:
        nbformat.write(notebook, lesson)
        return
    for index, number in untraced(notebook.cells, ran=True):
        raise LessonError(f"cell {index}: the answer's {number} is in no output or code above it")
    for index in hidden(notebook.cells):
        if notebook.cells[index].cell_type == "code":
            notebook.cells[index].outputs = []
    nbformat.write(settled(notebook, lesson.name[:2]), lesson)
    print(f"{lesson.name}: {lesson.stat().st_size / 1000:.0f} KB")
    for problem in problems(lesson):
        print(f"  {problem}")


def _empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _outputs(
    index: int, outputs: list[dict[str, Any]], count: int, light: Places, dark: Places
) -> list[dict[str, Any]]:
    """Return a cell's outputs for readers who run nothing."""
    stored: list[dict[str, Any]] = []
    left = 0  # outputs that a widget stored after itself
    for place, output in enumerate(outputs):
        if output["output_type"] == "error":
            raise LessonError(f"cell {index}: {output['ename']}: {output['evalue']}")
        if left:
            left -= 1
            continue
        one = {key: value for key, value in output.items() if key != "transient"}
        if one["output_type"] == "stream":
            one["text"] = "".join(one["text"])
            if stored and stored[-1].get("name") == one["name"]:
                stored[-1]["text"] += one["text"]
                continue
            stored.append(one)
            continue
        one["metadata"] = {}
        if one["output_type"] == "execute_result":
            one["execution_count"] = count
        words = "".join(one["data"].get("text/plain", ""))
        shown, at = [dict(one["data"])], (index, place)
        if at in dark:
            left, shown = 2, picture_outputs(light[at], _webp(dark[at]), words)
        elif at in light:
            shown = [{PNG: base64.b64encode(light[at]).decode(), "text/plain": words}]
        elif WIDGET in one["data"]:
            shown = [{"text/plain": words}]  # radio buttons; not stored in the end
        stored += [one | {"data": data} for data in shown]
    return stored


def _pictures(page: Page, ran: list[dict[str, Any]], theme: str) -> Places:
    """Return the pictures of all widgets, and in the light theme those of all figures."""
    set_theme(page, f"JupyterLab {theme.capitalize()}")
    pictures = {}
    for index, run in enumerate(ran):
        for place, output in enumerate(run.get("outputs", [])):
            data = output.get("data", {})
            asks = "".join(data.get("text/plain", "")).startswith(("Predict.", "Decide."))
            if (WIDGET not in data or asks) and (PLOTLY not in data or theme == "dark"):
                continue
            child = cell(page, index).locator(".jp-OutputArea-child").nth(place)
            drawn = child.locator(DRAWN).first
            if WIDGET in data:
                expect(drawn).to_have_attribute("data-ready", "true", timeout=60_000)
                expect(drawn).to_have_attribute("data-theme", theme)
            page.mouse.move(0, 0)  # nothing hovered
            css = FIGURE if PLOTLY in data else CARD
            pictures[index, place] = _picture(page, drawn, css)
    return pictures


def _picture(page: Page, drawn: Locator, css: str) -> bytes:
    """Return the picture of an element without JupyterLab's background."""
    drawn.evaluate("element => { element.dataset.card = ''; }")
    style = page.add_style_tag(content=css)
    screenshot = drawn.screenshot(animations="disabled", omit_background=True)
    style.evaluate("element => element.remove()")
    drawn.evaluate("element => { delete element.dataset.card; }")
    return png(screenshot)


def _webp(picture: bytes) -> bytes:
    """Return the same pixels in fewer bytes, for a style sheet: all browsers know WebP."""
    content = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGBA").save(content, "WEBP", lossless=True, method=6)
    return content.getvalue()


def _keep_pictures(before: list[dict[str, Any]], outputs: list[dict[str, Any]]) -> None:
    """Keep the stored bytes of a picture that shows the same: another zlib packs it differently."""
    stored = {_pixels(picture): one["data"] for one in before if (picture := _stored_in(one))}
    for one in outputs:
        if picture := _stored_in(one):
            kept = stored.get(_pixels(picture), {})
            one["data"] |= {kind: kept[kind] for kind in (PNG, "text/html") if kind in kept}


def _stored_in(output: dict[str, Any]) -> str | None:
    """Return the picture in an output, or in a style sheet."""
    data = output.get("data", {})
    dark = _DARK.search("".join(data.get("text/html", "")))
    return dark[1] if dark else data.get(PNG)


def _pixels(picture: str) -> tuple[tuple[int, int], bytes]:
    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGBA")
    return image.size, image.tobytes()


if __name__ == "__main__":
    main(sys.argv[1:])
