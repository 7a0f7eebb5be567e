"""The learner's working copy of the lessons: `underglass lab` and `make lab` make it.

The stored lessons have outputs, for readers who run nothing. A learner should meet each question
before its answer, and should change neither files that git tracks nor an installed package. So the
working copy, `workbook/` in a clone, has each lesson without any output from its first prediction on.

A copy that the learner has not touched follows the lesson. One that was worked in is never overwritten:
when its lesson has changed, a new copy is put beside it as `NN_name.new.ipynb`.

Lessons link to files of the repository. A working copy elsewhere gets these files in `reading/`.
"""

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parent
_INSTALLED = _PACKAGE / "lessons"
LESSONS = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent / "notebooks"
MADE = ".made.json"  # file name -> digest of the text that was written there
READING = "reading"

_LINK = re.compile(r"(?<=\]\()\.\./([^)#\s]+)")
_QUESTION = re.compile(r"\bpredict\(")


def update(folder: Path, fresh: str = "") -> list[str]:
    """Copy what is new into `folder`; return what was done, one line for each file that changed.

    `fresh` is a lesson's number: its copy is renamed to `NN_name.old.ipynb` and made afresh. Raises
    ValueError if there is no such lesson.
    """
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / MADE
    made: dict[str, str] = json.loads(record.read_text("utf-8")) if record.exists() else {}
    said = _put_aside(folder, fresh) if fresh else []
    for lesson in _notebooks():
        said += _copy(lesson, folder, made)
    record.write_text(json.dumps(made, indent=1), "utf-8")
    return said


def trust(folder: Path) -> None:
    """Sign the unchanged copies, so that JupyterLab shows their pictures in its own theme."""
    from nbformat import read
    from nbformat.sign import NotebookNotary

    made = json.loads((folder / MADE).read_text("utf-8"))
    notary = NotebookNotary()
    for lesson in folder.glob("*.ipynb"):
        if _is_untouched(lesson, made):
            notary.sign(read(lesson, as_version=4))


def root_of(folder: Path) -> Path:
    """Return the folder that JupyterLab opens for a working copy: for a clone's own, the clone."""
    return folder.parent if _is_beside_the_lessons(folder) else folder


def without_answers(lesson: Path) -> str:
    """Return a lesson as a learner gets it: no outputs from its first question on."""
    return _text(_unanswered(lesson))


def _notebooks() -> list[Path]:
    return sorted(LESSONS.glob("*.ipynb"))


def _unanswered(lesson: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(lesson.read_text("utf-8"))
    asked = False
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            asked = asked or _QUESTION.search("".join(cell["source"])) is not None
            if asked:
                cell["outputs"], cell["execution_count"] = [], None
    return notebook


def _text(notebook: dict[str, Any]) -> str:
    """Return a notebook as Jupyter writes it."""
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _copy(lesson: Path, folder: Path, made: dict[str, str]) -> list[str]:
    text, target = _for_folder(lesson, folder), folder / lesson.name
    if not target.exists():
        _write(target, text, made)
        return []
    if made.get(target.name) == _digest(text):
        return []
    if _is_untouched(target, made):
        _write(target, text, made)
        return [f"{target.name}: brought up to date"]
    new = target.with_suffix(".new.ipynb")
    if made.get(new.name) == _digest(text):
        return []
    if new.exists() and not _is_untouched(new, made):
        return [f"{target.name} has changed again. You have worked in {new.name}, so it stays too"]
    _write(new, text, made)
    return [f"{target.name} has changed. Your file stays, the new version is {new.name}"]


def _for_folder(lesson: Path, folder: Path) -> str:
    """Return a lesson for a working copy, and copy the files that it links to where needed."""
    if _is_beside_the_lessons(folder):
        return without_answers(lesson)
    notebook = _unanswered(lesson)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            source = "".join(cell["source"])
            for name in set(_LINK.findall(source)):
                target = folder / READING / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(_linked_file(name), target)
            cell["source"] = _LINK.sub(rf"{READING}/\1", source).splitlines(keepends=True)
    return _text(notebook)


def _linked_file(name: str) -> Path:
    """Return a file of the repository. An installed package has its docs beside the lessons."""
    return next(path for path in (_PACKAGE / name, _PACKAGE.parent / name) if path.is_file())


def _is_beside_the_lessons(folder: Path) -> bool:
    return folder.resolve().parent == LESSONS.parent.resolve()


def _is_untouched(copy: Path, made: dict[str, str]) -> bool:
    return _digest(copy.read_text("utf-8")) == made.get(copy.name)


def _write(target: Path, text: str, made: dict[str, str]) -> None:
    target.write_text(text, "utf-8")
    made[target.name] = _digest(text)


def _put_aside(folder: Path, fresh: str) -> list[str]:
    lessons = [path for path in _notebooks() if path.name[:2].isdigit()]
    found = [lesson for lesson in lessons if lesson.name[:2] == fresh.zfill(2)]
    if not found:
        names = ", ".join(lesson.name[:2] for lesson in lessons)
        raise ValueError(f"fresh must be a lesson's number, one of {names}; got {fresh!r}")
    mine = folder / found[0].name
    if not mine.exists():
        return []
    old, number = mine.with_suffix(".old.ipynb"), 1
    while old.exists():
        number += 1
        old = mine.with_suffix(f".old{number}.ipynb")
    shutil.move(mine, old)
    return [f"{mine.name}: your file is now {old.name}"]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
