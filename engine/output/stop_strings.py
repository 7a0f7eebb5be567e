"""Stop strings: the output ends before them, and nothing of them is ever shown.

A stop string may be spread over tokens. So text that could be the beginning of one is held back, and
no more than that: the longest end of the text that is a proper beginning of a stop string. It is
given out as soon as it turns out to be harmless.

    stop "\\n\\n":   "Yes."  " \\n"      "\\n"                     the text is "Yes. "
    given out:     "Yes."  " "  (\\n is held back)  found

vLLM checks the whole text so far after each token (`vllm/v1/engine/detokenizer.py`) and holds back as
many characters as the longest stop string has, less one.
"""

from collections.abc import Sequence


class StopStrings:
    """Watches the text of one output. `matched` is the stop string that was found, "" before."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self.matched = ""

    def push(self, piece: str) -> str:
        """The text that may be shown now that `piece` has come.

        Of several stop strings the one that is complete first wins, so that the result does not
        depend on how the text was cut into tokens.
        """
        if not self._stops:
            return piece
        text = self._held + piece
        found = [
            (text.find(stop) + len(stop), -len(stop), stop) for stop in self._stops if stop in text
        ]
        if found:
            end, _, self.matched = min(found)
            self._held = ""
            return text[: end - len(self.matched)]
        held = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def flush(self) -> str:
        """What is still held back, at the end of an output that no stop string ended."""
        text, self._held = self._held, ""
        return text


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a proper beginning of `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
