"""The exception that a check raises for a broken promise."""

from enum import StrEnum


class Promises(StrEnum):
    """The promises that a check tests. A lesson's `Promise` derives from it."""

    def broken(self, did: str, look: str) -> "Broken":
        """Return the exception for this promise; see `Broken`."""
        return Broken(did, self, look)


class CommonPromise(Promises):
    """The promises of every part, whatever its lesson."""

    UNCHANGED = "the arguments stay as they were"
    ENDS = "it comes to an end"
    ANSWERS = "it has an answer for every case"
    IS_A_PART = "the check gets the function or the class itself"


class Broken(Exception):
    """A promise is broken.

    did      what the part did, as a sentence
    promise  the promise, printed after "Promise broken": a member of a lesson's `Promise`
    look     where to look, as a sentence or a question
    """

    def __init__(self, did: str, promise: str, look: str) -> None:
        super().__init__(did)
        self.did, self.promise, self.look = did, promise, look
