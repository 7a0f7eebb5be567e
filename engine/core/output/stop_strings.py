"""Stop strings: the output ends before them, and no part of them is ever delivered.

With `include_stop_str_in_output`, the output ends after the stop string instead, and nothing is held
back.

A stop string may span several tokens. So the longest end of the text that could begin a stop string
is held back. It is delivered as soon as it can no longer begin one.

    stop "\\n\\n":   "Yes."  " \\n"      "\\n"                     the text is "Yes. "
    delivered:     "Yes."  " "  (\\n is held back)  found

Differs from vLLM: vLLM always holds back one character less than the longest stop string
(`vllm/v1/engine/detokenizer.py`).
"""

from collections.abc import Sequence


class StopStrings:
    """Searches the text of one output.

    include  whether the stop string is part of the text
    matched  the stop string that was found, "" before
    """

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        self._stops = stops
        self._include = include
        self._held = ""
        self.matched = ""

    def push(self, piece: str) -> str:
        """Add a piece of text and return the text that may be delivered now.

        If several stop strings match, the one completed first wins, so the result does not depend
        on how the text was divided into tokens.
        """
        text, found, held = self._held + piece, list[tuple[int, int, str]](), 0
        for stop in self._stops:
            if stop in text:
                found.append((text.find(stop) + len(stop), -len(stop), stop))
            # The longest end of the text that begins the stop string without completing it.
            for length in range(min(len(text), len(stop) - 1), held, -1):
                if text.endswith(stop[:length]):
                    held = length
                    break
        if found:
            end, _, self.matched = min(found)
            delivered = len(self._held) if self._include else 0
            self._held = ""
            return text[delivered : end if self._include else end - len(self.matched)]
        self._held = text[len(text) - held :]
        return piece if self._include else text[: len(text) - held]

    def flush(self) -> str:
        """Return the held-back text when the output ends for another reason."""
        text, self._held = self._held, ""
        return "" if self._include else text
