"""Write THIRD_PARTY.md: the software of others in the wheel and on the site, and its licenses.

    python site/site_third_party.py            write THIRD_PARTY.md and the texts in licenses/
    python site/site_third_party.py --check    exit with 1 if they are out of date

Only the contents of Pyodide are listed by hand. esbuild tells what the bundles contain, and the
versions and license texts come from the installed packages. A package without a text, or with a license
that is not in `ACCEPTED`, is an error.
"""

import argparse
import json
import re
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from site_assets import FRONTEND, PYODIDE, WHEELS, core_files, run_node
from site_pages import REPOSITORY

LIST = REPOSITORY / "THIRD_PARTY.md"
TEXTS = REPOSITORY / "licenses"
MODULES = REPOSITORY / "visualizer" / "static" / "modules"

# Licenses that only require their text and a copyright notice; MPL-2.0 also requires a link to the
# unchanged source.
ACCEPTED = ("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0")
_PACKAGE = re.compile(r"node_modules/((?:@[^/]+/)?[^/]+)/")
_COPYRIGHT = re.compile(r"^\W*copyright\s+(?:\(c\)\s*|©\s*)?(?=.*\w)(.+?)\W*$", re.I | re.M)
_CLASSIFIED = {"License :: OSI Approved :: BSD License": "BSD-3-Clause"}


class LicenseError(Exception):
    """A component's license or text is not known. The message names the component and the fix."""


@dataclass(frozen=True)
class Component:
    """A piece of software that is distributed with this one.

    where   the files that contain it
    source  the address of its source
    text    its license's file in `licenses/`, and what is in it; None for a file that is kept by hand
    """

    name: str
    version: str
    license: str
    copyright: str
    where: str
    source: str
    file: str
    text: str | None = None


def components() -> Iterator[Component]:
    """Yield what the wheel and the site contain, in the order of the list."""
    for package, files in sorted(bundled().items()):
        yield npm_package(package, ", ".join(sorted(files)))
    for name, version in page_distributions():
        yield distribution(name, version, "`python/`")
    yield from pyodide()


def bundled() -> Mapping[str, set[str]]:
    """Return the npm packages in our bundles, each with the bundles that contain it."""
    found = defaultdict(set)
    maps = sorted(MODULES.glob("*.js.map"))
    if not maps:
        raise LicenseError(f"{MODULES} has no bundles yet: run `make setup` first")
    for path in maps:
        for source in json.loads(path.read_text("utf-8"))["sources"]:
            if package := _PACKAGE.search(source):
                found[package[1]].add("`visualizer/static/`")
    for output, inputs in site_bundles().items():
        for source in inputs:
            if package := _PACKAGE.search(source):
                found[package[1]].add(f"`assets/{output}`")
    return found


def site_bundles() -> Mapping[str, list[str]]:
    """Return the source files in each of the site's bundles, from esbuild's metafile."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder, "metafile.json")
        run_node("site.mjs", folder, str(told))
        outputs = json.loads(told.read_text("utf-8"))["outputs"]
    return {
        # A shared chunk's name has a hash of its contents.
        re.sub(r"-[A-Z0-9]{8}(?=\.)", "", Path(name).name): [
            source for source, size in one["inputs"].items() if size["bytesInOutput"]
        ]
        for name, one in outputs.items()
    }


def npm_package(name: str, where: str) -> Component:
    """Return an installed npm package. Raises LicenseError if it has no license or no text."""
    folder = FRONTEND / "node_modules" / name
    told = json.loads((folder / "package.json").read_text("utf-8"))
    texts = sorted(path for path in folder.iterdir() if re.match("licen[sc]e", path.name, re.I))
    if not texts:
        raise LicenseError(f"{folder} has no LICENSE: add the package's text to licenses/ by hand")
    text = texts[0].read_text("utf-8")
    source = told.get("repository", {})
    address = source if isinstance(source, str) else source.get("url", "")
    return Component(
        name,
        told["version"],
        _accepted(name, told.get("license", "")),
        _copyrights(text),
        where,
        re.sub(r"^.*?(?:://|git@)(?:git@)?(.*?)(?:\.git)?$", r"https://\1", address),
        f"{name.removeprefix('@').replace('/', '-')}.txt",
        text,
    )


def page_distributions() -> Iterator[tuple[str, str]]:
    """Yield name and version of the Python distributions that the site has for its pages."""
    for line in WHEELS.read_text("utf-8").splitlines():
        if found := re.match(r"([\w.-]+)==([\w.]+)", line):
            yield found[1], found[2]
    owners = metadata.packages_distributions()
    names = {name.partition("/")[0] for name, _ in core_files()}
    unpacked = {owners.get(name, ["underglass"])[0] for name in names}
    for name in sorted(unpacked - {"underglass"}):
        yield name, metadata.version(name)


def distribution(name: str, version: str, where: str) -> Component:
    """Return a Python distribution that is installed here in this version."""
    told = metadata.distribution(name)
    if told.version != version:
        raise LicenseError(
            f"{WHEELS.name} pins {name} {version}, but {told.version} is installed: pin the version "
            "that constraints.txt has"
        )
    files = [path for path in told.files or [] if "/licenses/" in path.as_posix()]
    if not files:
        raise LicenseError(f"{name} {version} has no license text: add it to licenses/ by hand")
    classified = (_CLASSIFIED.get(one) for one in told.metadata.get_all("Classifier", []))
    spdx = told.metadata["License-Expression"] or next(filter(None, classified), "")
    text = files[0].read_text("utf-8")
    links = (one.partition(", ") for one in told.metadata.get_all("Project-URL", []))
    source = next(address for label, _, address in links if label in ("Source", "Repository"))
    return Component(
        name,
        version,
        _accepted(name, spdx),
        _copyrights(text),
        where,
        source,
        f"{name.lower()}.txt",
        text,
    )


def pyodide() -> Iterator[Component]:
    """Yield Pyodide and what is compiled into it, which `licenses/pyodide.toml` lists."""
    told = tomllib.loads((TEXTS / "pyodide.toml").read_text("utf-8"))
    installed = json.loads((PYODIDE / "package.json").read_text("utf-8"))
    if installed["version"] != told["version"]:
        raise LicenseError(
            f"licenses/pyodide.toml describes Pyodide {told['version']}, but {installed['version']} is "
            "installed: look up what this version links (Makefile.envs), then update the file"
        )
    lock = json.loads((PYODIDE / "pyodide-lock.json").read_text("utf-8"))
    version = installed["version"]
    yield Component(
        "Pyodide, with hiwire",
        version,
        _accepted("pyodide", installed["license"]),
        "2018 Mozilla, and the Pyodide contributors",
        "`python/`",
        f"https://github.com/pyodide/pyodide/tree/{version}",
        "MPL-2.0.txt",
    )
    for one in told["contains"]:
        yield Component(
            one["name"],
            lock["info"]["python"] if one["name"].startswith("CPython") else "",
            one["license"],
            one["copyright"],
            "inside of Pyodide",
            "",
            one.get("text", "inside-pyodide.txt"),
        )


def _accepted(name: str, license: str) -> str:
    if license not in ACCEPTED:
        raise LicenseError(
            f"{name} has the license {license!r}, which is not accepted yet "
            f"({', '.join(ACCEPTED)} are): read it, and add it to ACCEPTED if we can meet its terms"
        )
    return license


def _copyrights(text: str) -> str:
    """Return the copyright holders that a license's text names."""
    found = dict.fromkeys(one.strip() for one in _COPYRIGHT.findall(text[:2000]))
    return "; ".join(re.sub(r"\s*<[^>]*>?|,? and others$|\bby (?=[A-Z])", "", one) for one in found)


def written(found: list[Component]) -> str:
    """Return THIRD_PARTY.md."""
    rows = [
        f"| {f'[{one.name}]({one.source})' if one.source else one.name} | {one.version} "
        f"| [{one.license}](licenses/{one.file}) | {one.copyright} | {one.where} |"
        for one in found
    ]
    return _HEAD + "\n".join(rows) + "\n" + _TAIL


_HEAD = """\
# Third-party software

Underglass is under the [Apache License 2.0](LICENSE). Its wheel and its site also contain the software
below. Each license links to its text. `site/site_third_party.py` writes this page from what the bundles
really contain, and `make check` fails when it is not up to date.

The files in `visualizer/static/` are in the wheel and on the site, those in `assets/` and `python/` on
the site only.

| software | version | license | copyright | where |
|---|---|---|---|---|
"""
_TAIL = """
Pyodide is unchanged, but its WebAssembly file is stored compressed. Its source is at the address above.

## What is not in the list

- **Fonts**: none. All pages use the fonts of the reader's machine. The pictures that a shared
  link shows are drawn with Inter (SIL Open Font License 1.1), of which they contain no copy.
- **The bundled model and its tokenizer**: trained by `engine/training` on text that the same code
  generates. Nothing was downloaded; model and data are under the Apache License 2.0.
- **Recordings** of vLLM and SGLang (`visualizer/scenarios`, `tests/fixtures`): what these engines
  decided for our own workloads. They contain no code.
- **Algorithms**: the code follows published ones and names them. No source code of vLLM, SGLang or
  another engine was copied.
- **Python packages** that pip installs beside Underglass come from their own authors, with their own
  licenses. That includes Swagger UI (Apache-2.0), which `/docs` shows: it is in the package
  fastapi-swagger.
- **Container images** also hold Debian, Python and those packages. Their licenses are in the image, in
  `/usr/share/doc` and in each package's `dist-info`.
"""


def main() -> int:
    """Write the files or check them; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    try:
        found = list(components())
    except LicenseError as error:
        print(f"THIRD_PARTY.md: {error}", file=sys.stderr)
        return 1
    texts = {TEXTS / one.file: one.text for one in found if one.text is not None}
    wanted = {LIST: written(found)} | texts
    kept = {TEXTS / one.file for one in found} | {TEXTS / "pyodide.toml"}
    wrong = [path for path, text in wanted.items() if not _has(path, text)]
    wrong += [path for path in sorted(TEXTS.iterdir()) if path not in kept]
    if check:
        for path in wrong:
            print(
                f"{path.relative_to(REPOSITORY)} is not up to date: run "
                "`python site/site_third_party.py` and commit the changes",
                file=sys.stderr,
            )
        return 1 if wrong else 0
    for path in wrong:
        if path in wanted:
            path.write_text(wanted[path], "utf-8")
        else:
            path.unlink()
    return 0


def _has(path: Path, text: str) -> bool:
    return path.exists() and path.read_text("utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
