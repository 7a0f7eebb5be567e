"""`underglass lab`: the learner's copy of the lessons, in JupyterLab."""

import os
from pathlib import Path
from typing import Annotated

import typer

from underglass.commands.environment import option
from underglass.commands.options import fail


def lab(
    folder: Annotated[
        Path,
        typer.Argument(help="The folder for your copy of the lessons.", metavar="DIR"),
    ] = Path("underglass-lessons"),
    jupyter: Annotated[
        list[str],
        typer.Argument(
            help="Options of JupyterLab, after DIR.", metavar="-- OPTION...", show_default=False
        ),
    ] = [],  # noqa: B006 (Typer copies it)
    fresh: Annotated[
        str, option("Options", "Put your copy of this lesson (04) aside and make a new one.")
    ] = "",
    port: Annotated[
        int | None,
        option(
            "Options",
            "JupyterLab's port.",
            min=1,
            max=65535,
            show_default="the first free one from 8888",
        ),
    ] = None,
    browser: Annotated[bool, option("Options", "Open the browser.")] = True,
) -> None:
    """Copy the lessons to a folder and open them in JupyterLab.

    Your work in the folder stays: a later call adds what is new and overwrites no lesson that you have
    changed.
    """
    if folder.exists() and not folder.is_dir():
        fail(f"DIR must be a folder, got {folder}, which is a file")
    from jupyterlab.labapp import main

    from underglass.workbook import LESSONS, root_of, trust, update

    try:
        said = update(folder, fresh)
        trust(folder)
    except ValueError as error:
        fail(f"--{error}")
    except OSError as error:
        fail(f"cannot write {error.filename}: {error.strerror}")
    typer.echo("\n".join([*said, f"The lessons are in {folder}. Your work there stays."]))

    root = root_of(folder.resolve())
    first = (folder.resolve() / "00_first_look.ipynb").relative_to(root).as_posix()
    # Kernels inherit the path, so that a lesson can import its checks.
    paths = [str(LESSONS), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    options = [
        f"--ServerApp.root_dir={root}",
        # One document and closed side bars, so that a lesson's question and picture share a screen.
        f"--LabApp.default_url=/doc/tree/{first}",
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.extension_manager=readonly",
        f"--LabApp.app_settings_dir={LESSONS / 'lab-settings'}",
    ]
    if port is not None:
        options.append(f"--ServerApp.port={port}")
    if not browser:
        options.append("--no-browser")
    # Jupyter will not run as root unless told to; a container or a fresh machine often is root.
    if hasattr(os, "getuid") and os.getuid() == 0:
        options.append("--allow-root")
    main([*options, *jupyter])
