"""`from tests.lazy import transformers`: a library that is loaded when a test first uses it.

Fourteen modules judge with transformers, and it takes ten seconds to load. Each worker imports every
module to collect the tests, so an ordinary import would be paid by each of them.
"""

import importlib
from typing import Any


class _Library:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


peft = _Library("peft")
transformers = _Library("transformers")
