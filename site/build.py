"""Build the static site: `python site/build.py build/site`. `make site` calls it.

The site consists of files and works in any folder of any static host. Its pages load nothing from other
hosts. `SITE_URL` is the address that the site will have; link previews need it.
`SITE_LESSONS="04 18:2"` runs the cells of lesson 04, and those of lesson 18 up to the notebook's cell
2. The other cells show what their notebooks store.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path

# jsonschema compiles this package's grammar for a check that we do not use, which takes two seconds.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

import site_assets
import site_cells
import site_docs
import site_gallery
import site_lessons
import site_views
from site_check import problems
from site_pages import Site


def main(folder: str) -> None:
    """Write the site into `folder`, which is replaced."""
    began = time.monotonic()
    out = Path(folder).resolve()
    if out.exists() and any(out.iterdir()) and not (out / "cells.json").exists():
        raise SystemExit(f"{folder} is neither empty nor a built site: name an empty folder")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    site = Site(out, url=os.environ.get("SITE_URL", ""))
    site_assets.build(site)
    lessons = site_lessons.build(site)
    rows = site_cells.table((one.path.stem, one.title, one.verdicts) for one in lessons)
    site.write(
        "lessons/cells.html", "cells.html", page="lessons", rows=rows, **site_cells.totals(rows)
    )
    site.write_text("cells.json", json.dumps(rows, indent=1))
    total = site_cells.totals(rows)
    print(
        f"{total['run']} of {total['cells']} cells run in a page; cells.json says what others need"
    )
    site_views.build_front(site, site_gallery.build(site))
    site_views.build_play(site)
    site_views.build_open(site)
    site_docs.build(site)  # last, because it also writes the files that other pages link to
    site_assets.build_sitemap(site)
    if broken := list(problems(out, site.url)):
        raise SystemExit("\n".join([f"the site has {len(broken)} broken links:", *broken[:20]]))
    files = [path for path in out.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 1e6
    took = time.monotonic() - began
    print(f"{folder}: {len(files)} files, {size:.1f} MB, built in {took:.0f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
