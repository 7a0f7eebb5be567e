"""The site's playground, in Pyodide: run what the page asks for."""

import json

from page_cells import send
from visualizer.playing.game import Game
from visualizer.playing.rerun import SetupError

_game = Game()


def play(wish: str) -> None:
    """Send the page after a run with new settings, or of another question; `wish` is JSON."""
    asked, error = json.loads(wish), ""
    try:
        if "question" in asked:
            _game.ask(asked["question"])
        else:
            _game.change(asked["settings"])
    except SetupError as refused:
        error = str(refused)
    send({"kind": "played", "html": _game.html(error)})
