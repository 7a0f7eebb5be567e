"""Run `underglass open` as `python -m visualizer`."""

import typer

from visualizer.cli.command import SectionedCommand
from visualizer.cli.open import open_logs

app = typer.Typer(
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=SectionedCommand)(open_logs)

if __name__ == "__main__":
    app(prog_name="python -m visualizer")
