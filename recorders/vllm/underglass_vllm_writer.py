"""Write what the recorder records, without holding up vLLM's scheduler.

A writer is a thread, which encodes, compresses and writes twice a second, behind a bounded queue.
What does not fit into the queue is lost and counted, and another file begins with the state after it.
"""

import atexit
import hashlib
import logging
import os
import queue
import threading
import zlib
from pathlib import Path
from typing import IO, Any

import msgspec

LOG = logging.getLogger("vllm.underglass")  # below "vllm", whose handlers print it
Line = dict[str, Any]


class RecordingError(RuntimeError):
    """The recording cannot start or go on. The message says why, for vLLM's log."""


class Hashes:
    """Block hashes of vLLM, which the writer replaces by salted ones."""

    def __init__(self, values: list[bytes]) -> None:
        self.values = values


class Writer(threading.Thread):
    """Writes lines to a file, in a thread of its own.

    A path that ends in ".gz" is compressed, and flushed so that a torn file can be read to its last
    flush. `full_part` is the last part with `limit` bytes of lines; the next header begins another.
    A line that finds QUEUE lines waiting is lost, and so are those that follow, until the disk has
    caught up and `goes_on` is true: the next header then begins another part, and the last line of the
    part before says how many lines are lost.
    With a tokenizer's name, each token's text is written once per file, before a line that needs it.
    A live page gets the same lines through a pipe; without a file, only the page does.

    QUEUE          lines that may wait to be written; a line of a full step has about 2 KB
    FLUSH_SECONDS  what a crash may lose
    """

    QUEUE = 10_000
    FLUSH_SECONDS = 0.5

    def __init__(
        self, path: Path | None, limit: float, tokenizer: str | None, shown: IO[bytes] | None = None
    ) -> None:
        super().__init__(name="underglass", daemon=True)
        self._path, self._limit, self._tokenizer = path, limit, tokenizer
        self._shown = shown
        self._pieces: Pieces | None = None
        self._lines: queue.SimpleQueue[Line | bytes] = queue.SimpleQueue()
        self._ends = threading.Event()
        self._error: Exception | None = None
        self._salt = os.urandom(16)
        self._encoder = msgspec.json.Encoder(enc_hook=self._salted)
        self._own_encoder = msgspec.json.Encoder(enc_hook=self._salted)  # of the scheduler's thread
        self._part, self.full_part = 1, 0
        self._lost = 0  # lines since the queue was full
        self._open(path)
        self.start()
        atexit.register(self.close)

    def put(self, line: Line) -> None:
        """Hand over a line, which is lost if the disk is slow. Raises RecordingError if it fails."""
        if self._error is not None:
            raise RecordingError(f"{self._path} cannot be written: {self._error}")
        if self._lost or self._lines.qsize() >= self.QUEUE:
            self._lost += 1
            if self._lost == 1:
                LOG.warning(
                    "Underglass loses lines, because %s wait for %s: its disk is slow. It goes on in "
                    "another part when the disk has caught up",
                    self.QUEUE,
                    self._path,
                )
            return
        # A thread that encodes each line would compete for the interpreter in every step.
        is_frequent = line["type"] in ("step", "done") and self._tokenizer is None
        self._lines.put(self._own_encoder.encode(line) if is_frequent else line)

    def goes_on(self) -> bool:
        """Return whether lines were lost and there is room for more: then a header must come next."""
        if not self._lost or self._lines.qsize() > self.QUEUE // 2:
            return False
        self._lines.put(self._end_of_part())
        return True

    def _end_of_part(self) -> bytes:
        """Return the line that says how many lines are lost."""
        lost, self._lost = self._lost, 0
        return self._own_encoder.encode({"type": "lost", "lines": lost})

    def close(self, seconds: float = 15) -> None:
        """Write what is left, for at most some seconds."""
        if self._lost:
            self._lines.put(self._end_of_part())
        self._ends.set()
        if seconds:
            self.join(seconds)

    def run(self) -> None:
        """Write what has come, twice a second."""
        try:
            self._load_pieces()
            ends = False
            while not ends:
                ends = self._ends.wait(self.FLUSH_SECONDS)
                for _ in range(self._lines.qsize()):
                    line = self._lines.get()
                    if isinstance(line, bytes):
                        self._append(line)
                        continue
                    if line["type"] == "underglass_vllm" and line["part"] > 1:
                        self._finish()
                        self._part = line["part"]
                        self._open(self._path and numbered(self._path, "part", self._part))
                    self._write(line)
                self._flush()
            self._finish()
            if self._shown is not None:
                self._shown.close()  # its process ends
        except Exception as error:
            self._error = error
            self._lines = queue.SimpleQueue()  # the engine goes on without them
            if self._ends.is_set():  # no call of `put` will say it
                LOG.warning("Underglass could not write the end of %s: %s", self._path, error)

    def _load_pieces(self) -> None:
        """Load the tokenizer. Without it token ids are recorded, and no texts."""
        if self._tokenizer:
            try:
                self._pieces = Pieces(self._tokenizer)
            except Exception as error:
                LOG.warning("Underglass records token ids without their texts: %s", error)

    def _open(self, path: Path | None) -> None:
        # Unbuffered, because a buffer that could not be written would fail again when it is closed.
        self._file = path and path.open("wb", buffering=0)
        self._pending: list[bytes] = []
        self._packer = zlib.compressobj(5, wbits=31) if path and path.suffix == ".gz" else None
        self._bytes, self._seen = 0, set[int]()

    def _write(self, line: Line) -> None:
        pieces = self._new_pieces(line)
        if pieces and line["type"] == "underglass_vllm":  # the first line of a file
            line = line | {"pieces": pieces}
        elif pieces:
            self._pending.append(self._encoder.encode({"type": "pieces", "pieces": pieces}))
        self._append(self._encoder.encode(line))

    def _append(self, line: bytes) -> None:
        self._pending.append(line)
        self._bytes += len(line)
        if self._bytes > self._limit:
            self.full_part = self._part

    def _flush(self, mode: int = zlib.Z_SYNC_FLUSH) -> None:
        if not self._pending and mode != zlib.Z_FINISH:
            return
        data = b"".join(line + b"\n" for line in self._pending)
        self._pending = []
        if self._shown is not None:
            self._show(data)
        if self._file is None:
            return
        if self._packer is not None:
            data = self._packer.compress(data) + self._packer.flush(mode)
        while data:
            data = data[self._file.write(data) :]

    def _show(self, data: bytes) -> None:
        """Send lines to the page. Without a file, the recording ends with the page."""
        assert self._shown is not None
        try:
            self._shown.write(data)
            self._shown.flush()
        except OSError:
            self._shown = None
            if self._file is None:
                raise
            LOG.warning("Underglass has no live page any more: its process has ended")

    def _finish(self) -> None:
        self._flush(zlib.Z_FINISH)
        if self._file is not None:
            self._file.close()

    def _salted(self, hashes: Any) -> list[str]:
        """Return hashes that are equal where vLLM's are, in this run only."""
        keyed = hashlib.blake2b
        return [
            keyed(one, key=self._salt, digest_size=8).hexdigest() if one else ""
            for one in hashes.values
        ]

    def _new_pieces(self, line: Line) -> dict[int, str | list[int]]:
        """Return the text of each token id of a line that this file does not have yet."""
        rows = [line.get("prompt"), *line.get("gained", {}).get("ids", ())]
        for request in line.get("state", {}).get("requests", ()):
            rows += [request["prompt"], request["output"]]
        new = {id_ for row in rows if isinstance(row, list) for id_ in row} - self._seen
        self._seen |= new
        return self._pieces.of(sorted(new)) if new and self._pieces else {}


class Pieces:
    """The text of single tokens, for byte-level and SentencePiece vocabularies."""

    def __init__(self, tokenizer: str) -> None:
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(tokenizer)
        self._special = set(self._tokenizer.all_special_tokens)
        # Byte-level vocabularies write each byte as a printable character: those of Latin-1 as
        # themselves, the others as the characters from 256 on.
        plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = (byte for byte in range(256) if byte not in plain)
        self._bytes = {chr(256 + index): byte for index, byte in enumerate(others)}
        self._bytes |= {chr(byte): byte for byte in plain}
        self._is_byte_level = any("\u0120" in token for token in self._tokenizer.get_vocab())

    def of(self, ids: list[int]) -> dict[int, str | list[int]]:
        """Return each id's text, or its bytes where they are a part of a character."""
        pieces: dict[int, str | list[int]] = {}
        for id_, token in zip(ids, self._tokenizer.convert_ids_to_tokens(ids), strict=True):
            raw = self._raw(token or "")
            try:
                pieces[id_] = raw.decode()
            except UnicodeDecodeError:
                pieces[id_] = list(raw)
        return pieces

    def _raw(self, token: str) -> bytes:
        if token in self._special:
            return token.encode()
        if self._is_byte_level and all(character in self._bytes for character in token):
            return bytes(self._bytes[character] for character in token)
        if token.startswith("<0x") and len(token) == 6:
            return bytes([int(token[3:5], 16)])
        return token.replace("\u2581", " ").encode()


def numbered(path: Path, name: str, number: int) -> Path:
    """Return the path with a name and a number before its suffixes."""
    stem, _, suffixes = path.name.partition(".")
    return path.with_name(f"{stem}.{name}{number}" + (f".{suffixes}" if suffixes else ""))
