"""The page's model for tests in Python: JavaScript in Node, without a browser and without Pyodide."""

import base64
import json
import shutil
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

from page_model import BUNDLED, Logits

NODE = shutil.which("node", path=Path(sys.executable).parent) or shutil.which("node")
SERVER = Path(__file__).with_name("model_server.mjs")


class NodeModel:
    """See `page_model.PageModel`. Close it when it is no longer needed."""

    def __init__(self) -> None:
        assert NODE is not None
        command = [NODE, str(SERVER), str(BUNDLED)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.parameters: int = self.call("describe")

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()

    def call(self, command: str, *args: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([command, *args]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise MemoryError(answer["error"])
        return answer["value"]

    def new_cache(self, num_blocks: int, block_size: int) -> "NodeCache":
        return NodeCache(self, self.call("newCache", num_blocks, block_size))

    def forward(self, cache: "NodeCache", *arrays: "array[int]") -> Logits:
        answer = map(base64.b64decode, self.call("forward", cache.number, *map(list, arrays)))
        values, likeliest, log_sums = map(array, "fid", answer)
        return Logits(values, likeliest.tolist(), log_sums.tolist())


class NodeCache:
    """See `page_model.PageCache`."""

    def __init__(self, model: NodeModel, number: int) -> None:
        self._model, self.number = model, number

    def copy(self, source: int, destination: int) -> None:
        self._model.call("copy", self.number, source, destination)

    def read(self, block: int) -> bytes:
        return base64.b64decode(self._model.call("read", self.number, block))

    def write(self, block: int, page: bytes) -> None:
        self._model.call("write", self.number, block, base64.b64encode(page).decode())
