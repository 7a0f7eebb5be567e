"""Lesson 17: count the tokens of a request for a scheduler that works one step ahead."""


class Ahead:
    """Counts of one request.

    known         tokens of the prompt and of the text so far
    placeholders  tokens that scheduled steps will add
    computed      leading tokens that are computed or being computed
    """

    def __init__(self, prompt: int, max_tokens: int) -> None:
        self.last = prompt + max_tokens
        self.known = prompt
        self.placeholders = self.computed = 0
        self.ended = False

    def want(self) -> int:
        """Count the placeholder, too, unless it is certainly the last token."""
        length = self.known + self.placeholders
        return 0 if self.ended or length == self.last else length - self.computed

    def scheduled(self, count: int) -> None:
        """Add a placeholder if the row reaches the last token."""
        self.computed += count
        if self.computed == self.known + self.placeholders:
            self.placeholders += 1

    def commit(self, token: int, ends: bool) -> bool:
        """Replace a placeholder. A preemption may have dropped it."""
        if self.ended:
            return False
        self.placeholders = max(0, self.placeholders - 1)
        self.known += 1
        self.ended = ends or self.known == self.last
        return True

    def preempted(self) -> None:
        """Start again with the known tokens."""
        self.placeholders = self.computed = 0
