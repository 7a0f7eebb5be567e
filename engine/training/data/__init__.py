"""The sentences and words of the corpus, one TOML file for each subject."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


def load(subject: str) -> dict[str, Any]:
    """Read ``<subject>.toml``."""
    return tomllib.loads((Path(__file__).parent / f"{subject}.toml").read_text(encoding="utf-8"))
