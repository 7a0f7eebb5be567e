"""The addresses of lessons in Colab, which runs them without an installation.

    python site/site_hosts.py build/colab dist/underglass-0.2.0-py3-none-any.whl

Colab opens a public GitHub repository, so the addresses need the repository's name. If neither
`[project.urls]` in pyproject.toml nor GitHub Actions gives a name, the addresses are "".

Colab opens a notebook without the files beside it and without Underglass. So we give it copies whose
first cell installs the wheel. The command above writes the copies and the wheel into a folder, which
the workflow pushes as the branch `colab`.
"""

import argparse
import json
import os
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import quote

from underglass.workbook import LESSONS, without_answers

REPOSITORY = Path(__file__).parents[1]
BRANCH = "colab"
_GITHUB = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?")
_LINK = re.compile(r"(?<=\]\()\.\./(?=[^)\s])")

# Colab has torch, numpy, pandas, ipywidgets and plotly. JupyterLab, in the extra `lab`, would replace
# parts of the kernel that runs this cell.
SET_UP = """\
# Run this cell first: it installs Underglass in this Colab machine, in about a minute.
%pip install --quiet "underglass[server] @ {wheel}" anywidget httpx httpx-sse
import sys
from underglass.workbook import LESSONS

sys.path.insert(0, str(LESSONS))  # a lesson imports its checks"""


def repository(project: Path = REPOSITORY / "pyproject.toml") -> str:
    """Return the public repository as "owner/name", or "".

    A fork's workflow links to the fork: GitHub Actions sets GITHUB_REPOSITORY.
    """
    if name := os.environ.get("GITHUB_REPOSITORY"):
        return name
    urls = tomllib.loads(project.read_text("utf-8"))["project"].get("urls", {})
    address = urls.get("Repository", "")
    if not address:
        return ""
    found = _GITHUB.fullmatch(address)
    if found is None:
        raise ValueError(
            "Repository in [project.urls] must look like https://github.com/owner/name, got "
            f"{address!r}"
        )
    return found[1]


def colab_url(lesson: str) -> str:
    """Return the address that opens a lesson ("04_continuous_batching") in Colab, or ""."""
    name = repository()
    path = f"{name}/blob/{BRANCH}/notebooks/{quote(lesson)}.ipynb"
    return f"https://colab.research.google.com/github/{path}" if name else ""


def write_colab(folder: Path, wheel: Path, name: str) -> None:
    """Write the copies of all lessons for Colab, and the wheel, into a folder.

    name  the repository that the folder will be a branch of
    """
    notebooks = folder / "notebooks"
    notebooks.mkdir(parents=True, exist_ok=True)
    shutil.copy(wheel, folder)
    address = f"https://github.com/{name}/raw/{BRANCH}/{quote(wheel.name)}"
    for lesson in sorted(LESSONS.glob("[0-9]*.ipynb")):
        (notebooks / lesson.name).write_text(colab_notebook(lesson, address, name), "utf-8")


def colab_notebook(lesson: Path, wheel: str, name: str) -> str:
    """Return a lesson with the cell that installs Underglass from the address `wheel`."""
    notebook = json.loads(without_answers(lesson))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            text = _LINK.sub(f"https://github.com/{name}/blob/HEAD/", "".join(cell["source"]))
            cell["source"] = text.splitlines(keepends=True)
    set_up: dict[str, Any] = {
        "cell_type": "code",
        "execution_count": None,
        "id": "set-up",
        "metadata": {},
        "outputs": [],
        "source": SET_UP.format(wheel=wheel).splitlines(keepends=True),
    }
    notebook["cells"].insert(0, set_up)
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the folder for Colab."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("wheel", type=Path)
    arguments = parser.parse_args()
    name = repository()
    if not name:
        parser.error(
            "[project.urls] in pyproject.toml must have a Repository: Colab loads the notebooks from it"
        )
    write_colab(arguments.folder, arguments.wheel, name)


if __name__ == "__main__":
    main()
