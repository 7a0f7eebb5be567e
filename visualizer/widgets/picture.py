"""A widget whose outputs also contain a PNG of it.

GitHub and other code hosts do not run widgets, but they do show the PNG in an output. The front end
draws it, so Python needs no renderer. The kernel asks for one picture per display and adds it to the
output when it arrives. Without a front end, the output has no picture.
"""

import base64
from typing import Any

import anywidget
import traitlets
from IPython.display import DisplayHandle

PNG = b"\x89PNG\r\n\x1a\n"


class PictureWidget(anywidget.AnyWidget):
    """An anywidget that adds `image/png` to its outputs.

    wants_picture   whether an output still needs a picture from the front end
    """

    wants_picture = traitlets.Bool(False).tag(sync=True)

    def __init__(self, **values: Any) -> None:
        self._without_picture: list[Any] = []  # display handles, which IPython does not type
        super().__init__(**values)
        self.on_msg(self._add_picture)

    def _ipython_display_(self) -> None:
        """Display the widget under an id, so that the output can be updated."""
        handle: Any = DisplayHandle()  # type: ignore[no-untyped-call]
        self._without_picture.append(handle)
        # Set before display, because the front end reads it when it draws the output.
        self.wants_picture = True
        data, metadata = self._bundle()
        handle.display(data, metadata=metadata, raw=True)

    def _add_picture(self, _: Any, message: Any, buffers: list[Any]) -> None:
        if not (isinstance(message, dict) and message.get("picture") and buffers):
            return
        picture = bytes(buffers[0])
        if not picture.startswith(PNG):
            return
        shown, self._without_picture = self._without_picture, []
        self.wants_picture = False
        data, metadata = self._bundle()
        data["image/png"] = base64.b64encode(picture).decode()
        for handle in shown:
            handle.update(data, metadata=metadata, raw=True)

    def _bundle(self) -> tuple[dict[str, Any], dict[str, Any]]:
        bundle = self._repr_mimebundle_()
        assert bundle is not None, "only a widget without a view has no bundle"
        return bundle
