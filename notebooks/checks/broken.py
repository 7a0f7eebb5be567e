"""What a check raises when a part does not do what was promised."""


class Broken(Exception):
    """A promise is broken.

    did      what the part did, as a sentence
    promise  what was promised, as the end of "promise broken: ..."
    look     where to look, as a sentence or a question
    """

    def __init__(self, did: str, promise: str, look: str) -> None:
        super().__init__(did)
        self.did, self.promise, self.look = did, promise, look
