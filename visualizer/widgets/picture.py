"""Widgets that a notebook shows without a kernel or a network: on a code host, by nbconvert, reopened.

A display has three outputs: the widget; what is saved of it, which is a picture or a page; and a style
sheet. It shows the saved output only where the widget is not drawn, and replaces a light picture by a
dark one in a dark JupyterLab and in nbconvert's dark pages. Readers that drop style sheets, as code
hosts do, show the light picture. The front end draws pictures, so Python needs no renderer.
"""

import base64
import hashlib
from typing import Any

import anywidget
import traitlets
from IPython.display import DisplayHandle

PNG = b"\x89PNG\r\n\x1a\n"
Output = dict[str, str]  # by MIME type

# nbconvert's pages have the same classes as JupyterLab.
_CHILD = ".jp-OutputArea-child"
_BEFORE = f"{_CHILD}:has(+ {_CHILD} .%s)"
_ONE_OF_THREE = (
    f"{_CHILD}:has(.ug-play, .underglass[data-ready=true]) + {_BEFORE % 'ug-themes'}, "
    f"{_CHILD}:has(.ug-themes) {{ display: none; }}"
)


def picture_outputs(light: bytes, dark: bytes, words: str = "") -> list[Output]:
    """Return a picture, and the style sheet that replaces it in dark pages. `dark` may be WebP."""
    kind = "png" if dark.startswith(PNG) else "webp"
    name = f"ug-{hashlib.sha256(dark).hexdigest()[:8]}"
    rule = f"{_BEFORE % name} img {{ content: url(data:image/{kind};base64,{_text(dark)}); }}"
    shown = {"image/png": _text(light), "text/plain": words}
    return [shown, _style(f'[data-jp-theme-light="false"] {rule}', name)]


def page_outputs(page: str) -> list[Output]:
    """Return a page that has both themes, and the style sheet after it."""
    return [{"text/html": page, "text/plain": ""}, _style()]


def _style(rules: str = "", name: str = "") -> Output:
    style = f'<div class="ug-themes {name}"><style>{_ONE_OF_THREE} {rules}</style></div>'
    return {"text/html": style, "text/plain": ""}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


class SavedWidget(anywidget.AnyWidget):
    """An anywidget whose displays have outputs for readers without a kernel."""

    def __init__(self, **values: Any) -> None:
        self._displays: list[list[Any]] = []  # display handles, which IPython does not type
        super().__init__(**values)

    def _saved(self) -> list[Output]:
        """Return the outputs after the widget: `picture_outputs` or `page_outputs`."""
        raise NotImplementedError

    def _save(self) -> None:
        for _, *saved in self._displays:
            for handle, output in zip(saved, self._saved(), strict=True):
                handle.update(output, raw=True)

    def _ipython_display_(self) -> None:
        """Display the widget and what is saved, under ids, so that they can be updated."""
        widget, *saved = handles = [DisplayHandle() for _ in range(3)]  # type: ignore[no-untyped-call]
        self._displays.append(handles)
        data, metadata = self._bundle()
        widget.display(data, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]
        for handle, output in zip(saved, self._saved(), strict=True):
            handle.display(output, raw=True)  # type: ignore[no-untyped-call]

    def _bundle(self) -> tuple[dict[str, Any], dict[str, Any]]:
        bundle = self._repr_mimebundle_()
        assert bundle is not None, "only a widget without a view has no bundle"
        data, metadata = bundle
        return data | {"text/plain": repr(self)}, metadata


class PictureWidget(SavedWidget):
    """A widget that is saved as its picture, which the front end draws.

    wants_picture   whether a display still needs a picture from the front end
    """

    wants_picture = traitlets.Bool(False).tag(sync=True)

    def __init__(self, **values: Any) -> None:
        self._pictures: list[bytes] = []  # in both themes, once they are drawn
        super().__init__(**values)
        self.on_msg(self._add_picture)

    def _ipython_display_(self) -> None:
        # Set before display, because the front end reads it when it draws the output.
        self.wants_picture = not self._pictures
        super()._ipython_display_()

    def _saved(self) -> list[Output]:
        if not self._pictures:
            return page_outputs("")
        light, dark = self._pictures
        return picture_outputs(light, dark)

    def _add_picture(self, _: Any, message: Any, buffers: list[Any]) -> None:
        """Save a picture: a light and a dark PNG, or only a light one outside of JupyterLab."""
        pictures = [bytes(one) for one in buffers]
        if not (isinstance(message, dict) and message.get("picture") and pictures):
            return
        if not all(one.startswith(PNG) for one in pictures):
            return
        self.wants_picture = False
        if len(pictures) == 2:
            self._pictures = pictures
            self._save()
            return
        data, metadata = self._bundle()
        for widget, *_ in self._displays:
            widget.update(data | {"image/png": _text(pictures[0])}, metadata=metadata, raw=True)
