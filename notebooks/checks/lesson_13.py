"""Lesson 13: a bounded buffer for one reader, so that no other reader waits for it."""

import asyncio
import random
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from inspect import isawaitable
from itertools import product
from typing import Any

from checks.answer import Answer
from checks.broken import Broken, Promises
from checks.guard import watched
from checks.judging import counted

ANSWERS = {
    "suffers": Answer(
        "the server's memory",
        {
            "nothing: TCP takes care of it": "TCP does its part when it tells the server to wait with "
            "Kim's text. But where does the text wait that the machine still makes?",
            "the other twenty-nine answers": "They would suffer if the bridge waited for Kim's laptop, "
            "but a queue without a limit never makes it wait.",
        },
        source="The number of pieces in her outbox",
        fits=lambda pieces: pieces > 90,
    ),
    "stops": Answer(
        65,
        {
            "it does not": "The bridge waits for Kim's outbox, and the outbox waits for her laptop.",
            64: "Her outbox is full after that step, but until then everything goes well.",
            96: "All answers end there, if the bridge gets that far. Follow the `await` inside the "
            "first `for`.",
        },
    ),
}
HINTS = (
    "One string is enough: put() appends to it, and get() takes all of it. A text takes up "
    "len(text.encode()) bytes, in addition to those that are buffered already.",
    "put() and close() set the event, and get() awaits it first. Then get() clears the event, takes "
    "all of the text, and returns it with the reason.",
)


class Promise(Promises):
    """The promises that the check tests."""

    NEVER_WAITS = "put() and close() never wait"
    GET_WAITS = "get() can be awaited"
    PUT_ANSWERS = "put() returns True, or False if the text does not fit"
    BOUNDED = "no more than the limit is buffered"
    TAKES_WHAT_FITS = "text that fits is accepted"
    WAKES = "get() returns as soon as there is text or a reason"
    GET_ANSWERS = "get() returns a text and a reason, None while more may come"
    SAME_TEXT = "the received texts, joined, are the sent text"
    NOT_EMPTY = "get() waits until there is text or a reason"
    FIRST_REASON = "the reason is that of the first close()"
    REASON_LAST = "the reason comes last"
    OWN_OUTBOX = "every reader has an outbox of its own"


# Turns of the event loop, more than a woken reader needs to get its text.
TURNS = 20
# Time for a get() that polls. A reader that sleeps longer would never wake.
POLL_SECONDS = 2.0
# Limit for a put() that blocks the whole thread; a right one takes a thousandth of it.
TIMEOUT_SECONDS = 20.0


class PlainOutbox:
    """The lesson's own outbox: a queue, a count of its bytes, and the reason as its last item."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._pieces: asyncio.Queue[tuple[str, str | None]] = asyncio.Queue()
        self._closed = False

    def put(self, text: str) -> bool:
        """Accept a text if its bytes fit."""
        size = len(text.encode())
        if size > self._free:
            return False
        self._free -= size
        self._pieces.put_nowait((text, None))
        return True

    def close(self, reason: str) -> None:
        """Append the reason as the last item."""
        if not self._closed:
            self._closed = True
            self._pieces.put_nowait(("", reason))

    async def get(self) -> tuple[str, str | None]:
        """Return the next item."""
        text, reason = await self._pieces.get()
        self._free += len(text.encode())
        return text, reason


@dataclass(frozen=True)
class Story:
    """The calls to one outbox, in order: "put" with a text, "get", "close" with a reason.

    At the end the outbox is closed, if it is still open, and read to its end. After a put() that
    returns False comes close("slow_reader"), as in the lesson, and no further put().
    """

    limit: int
    acts: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        calls = [f"{name}({word!r})" if word else f"{name}()" for name, word in self.acts]
        if all(name != "close" for name, _ in self.acts):
            calls.append("at the end close('stop')")
        return f"An outbox of {counted(self.limit, 'byte')}: {', '.join(calls)}."


def adapt(outbox: type | None) -> type:
    """Return the learner's class, or the lesson's own until that passes."""
    return outbox or PlainOutbox


def cases() -> list[Story]:
    """Return all short stories with two sizes of outbox, and some longer ones; the shortest first."""
    acts = [("put", "He"), ("put", "llo"), ("put", "é"), ("get", ""), ("close", "stop")]
    short = [story for length in range(1, 5) for story in product(acts, repeat=length)]
    chance = random.Random(11)
    weights = [3, 3, 2, 4, 0.3]
    long = [tuple(chance.choices(acts, weights, k=chance.randint(6, 12))) for _ in range(150)]
    stories = [Story(limit, acts) for acts in short for limit in (8, 3)]
    stories += [Story(chance.choice((4, 7, 64)), acts) for acts in long]
    return sorted(filter(_is_in_order, stories), key=_size)


def _is_in_order(story: Story) -> bool:
    """Return whether no put() follows the first close(), and at most one more close() does."""
    names = [name for name, _ in story.acts]
    end = names.index("close") if "close" in names else len(names)
    return "put" not in names[end:] and names.count("close") <= 2 and "get" not in names[end + 1 :]


def _size(story: Story) -> tuple[int, ...]:
    words = "".join(word for _, word in story.acts)
    return (len(story.acts), words.count("é"), len(words), -story.limit)


def attempt(outbox: type, story: Story) -> None:
    """Play a story on an event loop in a thread of its own: the notebook's loop is already running."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            with watched(outbox):
                asyncio.run(_play(outbox, story))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(TIMEOUT_SECONDS)
    if thread.is_alive():
        raise Broken("A method blocked the whole thread.", *_NEVER_WAITS)
    if failed:
        raise failed[0]


_NEVER_WAITS = (
    Promise.NEVER_WAITS,
    "One loop feeds thirty outboxes. While it waits for one reader, 29 other readers wait, too.",
)


async def _play(outbox: type, story: Story) -> None:
    await _Play(outbox, story.limit).act(story.acts)


class _Play:
    """One outbox, its reader, and the text that should be in between."""

    def __init__(self, outbox: type, limit: int) -> None:
        self._limit = limit
        self._other = outbox(limit)
        self._box = outbox(limit)
        self._sent = self._received = ""
        self._reason: str | None = None
        self._refused = self._ended = False
        self._reading: asyncio.Task[Any] | None = None

    async def act(self, acts: Iterable[tuple[str, str]]) -> None:
        """Play the whole story and its end, and check a second outbox."""
        for name, word in acts:
            if name == "put" and not self._refused:
                self._put(word)
            elif name == "close":
                self._close(word)
            elif name == "get" and self._reading is None and not self._ended:
                self._reading = self._read()
            await self._run_reader()
        if self._reason is None:
            self._close("stop")
        while not self._ended:
            if self._reading is None:
                self._reading = self._read()
            await self._run_reader()
        if self._sent:
            await self._check_second_outbox()

    def _read(self) -> asyncio.Task[Any]:
        reading = self._box.get()
        if not isawaitable(reading):
            raise Promise.GET_WAITS.broken(
                f"get() returned {reading!r} at once.",
                "The reader says `await outbox.get()`. What does the stub have before `def`?",
            )
        return asyncio.ensure_future(reading)

    def _put(self, text: str) -> None:
        fits = len((self._waiting + text).encode()) <= self._limit
        answer = self._box.put(text)
        _at_once(answer, "put")
        held = counted(len(self._waiting.encode()), "byte")
        about = (
            f"{held} buffered, the limit is {self._limit}, and {text!r} has {len(text.encode())}."
        )
        if answer not in (True, False):
            raise Promise.PUT_ANSWERS.broken(
                f"put({text!r}) returned {answer!r}.", "What does each path through put() return?"
            )
        if answer and not fits:
            raise Promise.BOUNDED.broken(f"put({text!r}) returned True.", about)
        if fits and not answer:
            raise Promise.TAKES_WHAT_FITS.broken(f"put({text!r}) returned False.", about)
        if answer:
            self._sent += text
        else:
            self._refused = True
            self._close("slow_reader")

    def _close(self, reason: str) -> None:
        _at_once(self._box.close(reason), "close")
        self._reason = self._reason or reason

    async def _run_reader(self) -> None:
        due = bool(self._waiting) or self._reason is not None
        for _ in range(TURNS):
            if self._reading is None or self._reading.done():
                break
            await asyncio.sleep(0)
        if self._reading is None:
            return
        if due:
            await asyncio.wait({self._reading}, timeout=POLL_SECONDS)
        if self._reading.done():
            answer, self._reading = self._reading.result(), None
            self._receive(answer)
        elif due:
            there = f"{self._waiting!r} was buffered" if self._waiting else "the outbox was closed"
            self._reading.cancel()
            raise Promise.WAKES.broken(
                f"The reader slept although {there}.",
                "What wakes a reader that already waits? And one that comes later?",
            )

    @property
    def _waiting(self) -> str:
        return self._sent[len(self._received) :]

    def _receive(self, answer: Any) -> None:
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[0], str):
            raise Promise.GET_ANSWERS.broken(
                f"get() returned {answer!r}.", "What does get() return?"
            )
        text, reason = answer
        if text == self._reason != reason:
            raise Promise.GET_ANSWERS.broken(
                f"get() returned {answer!r}.", "Which of the two comes first?"
            )
        received = self._received + text
        if not self._sent.startswith(received):
            raise Promise.SAME_TEXT.broken(
                f"The reader received {received!r}; {self._sent!r} was sent.",
                "Follow each piece of text from put() to get().",
            )
        if reason is None and not text:
            raise Promise.NOT_EMPTY.broken(
                "get() returned nothing.",
                "A reader that gets nothing asks again at once, and again.",
            )
        self._received = received
        if reason is not None:
            self._receive_end(reason)

    def _receive_end(self, reason: Any) -> None:
        if reason != self._reason:
            first = f"close({self._reason!r}) came first" if self._reason else "it was not closed"
            raise Promise.FIRST_REASON.broken(
                f"The reader got the reason {reason!r}.", f"Here {first}."
            )
        if self._waiting and not self._refused:
            raise Promise.REASON_LAST.broken(
                f"The reader got the reason {reason!r} before it got {self._waiting!r}.",
                "After a reason the reader stops reading. Where was that text?",
            )
        self._ended = True

    async def _check_second_outbox(self) -> None:
        """Check that a second, unused outbox of the class has only its own text."""
        self._other.put("x")
        self._other.close("stop")
        text, _ = await self._other.get()
        if text != "x":
            raise Promise.OWN_OUTBOX.broken(
                f"A second outbox got 'x' and nothing else. Its reader received {text!r}.",
                "Where is the buffered text kept: in the object, or in the class?",
            )


def _at_once(answer: Any, method: str) -> None:
    if isawaitable(answer):
        if hasattr(answer, "close"):
            answer.close()  # or Python warns that it was never awaited
        raise Broken(f"{method}() returned a coroutine, so its caller has to wait.", *_NEVER_WAITS)
