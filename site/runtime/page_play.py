"""The site's playground, in Pyodide: run a workload with new settings, and keep the previous run."""

import json

from engine.core.log import EventLog
from page_cells import send
from visualizer.packed import pack
from visualizer.playing.numbers import changes, description, numbers, table
from visualizer.playing.rerun import Setup


class Playground:
    """The settings and the log of the last run."""

    def __init__(self) -> None:
        self.setup = Setup()
        self.log: EventLog | None = None

    def change(self, settings: str) -> None:
        """Run with new settings, given as JSON, and send the run to the page. Raises SetupError."""
        setup = self.setup.changed(**json.loads(settings))
        run = setup.run()
        before = self.log or self.setup.run().log
        now = numbers(run.log)
        words = f"{changes(self.setup.settings, setup.settings)} {description(run, now)}"
        self.setup, self.log = setup, run.log
        send(
            {
                "kind": "played",
                "text": words.strip(),
                "html": table(now, numbers(before)),
                "log": pack(run.log),
                "before": pack(before),
            }
        )


playground = Playground()
