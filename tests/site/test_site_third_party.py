"""THIRD_PARTY.md: nothing that is distributed is missing, and no license is unread."""

import json
import re

import pytest

import site_third_party
from site_third_party import LicenseError

TEXT = "MIT License\n\nCopyright (c) 2026 by Ada <ada@example.org>\n\nPermission is ...\n"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed npm package named `glass`."""
    folder = tmp_path / "node_modules" / "glass"
    folder.mkdir(parents=True)
    told = {
        "version": "1.2.0",
        "license": "MIT",
        "repository": "git+ssh://git@host.example/a/b.git",
    }
    (folder / "package.json").write_text(json.dumps(told))
    (folder / "LICENSE.md").write_text(TEXT)
    monkeypatch.setattr(site_third_party, "FRONTEND", tmp_path)
    return folder


def test_a_package_is_listed_with_its_version_holder_and_source(package):
    found = site_third_party.npm_package("glass", "`assets/editor.js`")
    row = site_third_party.written([found]).split("|---|\n")[1].splitlines()[0]
    facts = ("[glass](https://host.example/a/b)", "1.2.0", "[MIT](licenses/glass.txt)", "2026 Ada")
    assert all(f"| {fact} |" in row for fact in (*facts, "`assets/editor.js`"))
    assert found.text == TEXT


def test_an_unread_license_is_an_error(package):
    told = json.loads((package / "package.json").read_text()) | {"license": "GPL-3.0-only"}
    (package / "package.json").write_text(json.dumps(told))
    with pytest.raises(LicenseError, match=r"glass.*GPL-3\.0-only"):
        site_third_party.npm_package("glass", "")


def test_what_a_bundle_contains_is_found(tmp_path, monkeypatch):
    sources = ["../frontend/src/entry.ts", "../frontend/node_modules/glass/src/index.ts"]
    (tmp_path / "board.js.map").write_text(json.dumps({"sources": sources}))
    monkeypatch.setattr(site_third_party, "MODULES", tmp_path)
    bundles = {"editor.js": ["node_modules/@scope/part/index.js", "src/site/editor.ts"]}
    monkeypatch.setattr(site_third_party, "site_bundles", lambda: bundles)
    assert site_third_party.bundled() == {
        "glass": {"`visualizer/static/`"},
        "@scope/part": {"`assets/editor.js`"},
    }


@pytest.mark.parametrize("change", ["a version", "a text", "a text of nothing"])
def test_the_check_fails_for_a_list_that_is_not_up_to_date(tmp_path, monkeypatch, change):
    component = site_third_party.Component(
        "glass", "1.2.0", "MIT", "2026 Ada", "`assets/editor.js`", "", "glass.txt", TEXT
    )
    monkeypatch.setattr(site_third_party, "components", lambda: [component])
    monkeypatch.setattr(site_third_party, "REPOSITORY", tmp_path)
    monkeypatch.setattr(site_third_party, "LIST", tmp_path / "THIRD_PARTY.md")
    monkeypatch.setattr(site_third_party, "TEXTS", tmp_path / "licenses")
    (tmp_path / "licenses").mkdir()
    (tmp_path / "licenses" / "pyodide.toml").touch()

    def status(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["site_third_party.py", *arguments])
        return site_third_party.main()

    assert status("--check") == 1
    assert status() == 0
    assert status("--check") == 0
    text = (tmp_path / "THIRD_PARTY.md").read_text()
    if change == "a version":
        (tmp_path / "THIRD_PARTY.md").write_text(text.replace("1.2.0", "1.1.0"))
    elif change == "a text":
        (tmp_path / "licenses" / "glass.txt").write_text("")
    else:
        (tmp_path / "licenses" / "left.txt").write_text(TEXT)
    assert status("--check") == 1


def test_each_row_has_a_text_and_a_holder():
    text = site_third_party.LIST.read_text("utf-8")
    rows = re.findall(r"^\| .*\]\(licenses/(.*?)\) \| (.*?) \| .* \|$", text, re.M)
    assert len(rows) > 10
    for file, holder in rows:
        assert (site_third_party.TEXTS / file).stat().st_size > 500
        assert holder
