"""Lesson 16: plausible wrong parts, the promises that they break, and facts of the messages."""

from checks.broken import CommonPromise
from checks.lesson_16 import Promise
from solutions.lesson_16 import Ahead as Solution


class CountsOnlyKnownTokens(Solution):
    def want(self):
        return 0 if self.ended else max(0, self.known - self.computed)


class ForgetsMaxTokens(Solution):
    def want(self):
        return 0 if self.ended else self.known + self.placeholders - self.computed


class CountsMaxTokensWhenTheyAreKnown(Solution):
    def want(self):
        if self.ended or self.known == self.last:
            return 0
        return self.known + self.placeholders - self.computed


class StopsOneTooEarly(Solution):
    def __init__(self, prompt, max_tokens):
        super().__init__(prompt, max_tokens)
        self.last -= max_tokens > 1


class AppendsAfterTheEnd(Solution):
    def commit(self, token, ends):
        super().commit(token, ends)
        return True


class NeverEnds(Solution):
    def commit(self, token, ends):
        return super().commit(token, ends=False)


class WantsAfterTheEnd(Solution):
    def want(self):
        ended, self.ended = self.ended, False
        try:
            return super().want()
        finally:
            self.ended = ended


class KeepsItsMemory(Solution):
    def preempted(self):
        self.computed -= self.placeholders
        self.placeholders = 0


class DropsTheTokenInFlight(Solution):
    def __init__(self, prompt, max_tokens):
        super().__init__(prompt, max_tokens)
        self.in_vain = 0

    def commit(self, token, ends):
        if self.in_vain:
            self.in_vain -= 1
            return False
        return super().commit(token, ends)

    def preempted(self):
        self.in_vain = self.placeholders
        super().preempted()


class TakesOffOnePlaceholderTooMany(Solution):
    def commit(self, token, ends):
        missing = not self.placeholders
        kept = super().commit(token, ends)
        self.placeholders -= missing
        return kept


class NeverFillsThePlaceholder(Solution):
    def commit(self, token, ends):
        self.placeholders += 1
        return super().commit(token, ends)


class APlaceholderForEachChunk(Solution):
    def scheduled(self, count):
        self.computed += count
        self.placeholders += 1


class WantsThePromptAtOnce(Solution):
    def scheduled(self, count):
        super().scheduled(self.want())


class KeepsItsCountsInTheClass(Solution):
    known = computed = placeholders = 0

    def __init__(self, prompt, max_tokens):
        super().__init__(prompt, max_tokens)
        for name in ("known", "computed", "placeholders"):
            setattr(KeepsItsCountsInTheClass, name, self.__dict__.pop(name))

    def __setattr__(self, name, value):
        owner = KeepsItsCountsInTheClass
        if name in ("known", "computed", "placeholders") and "ended" in self.__dict__:
            setattr(owner, name, value)
        else:
            super().__setattr__(name, value)


class SchedulesWhenAsked(Solution):
    def want(self):
        count = super().want()
        Solution.scheduled(self, count)
        return count

    def scheduled(self, count):
        self.asked_for = count


class SaysWhetherItGoesOn(Solution):
    def want(self):
        return super().want() or None


class ReturnsNothing(Solution):
    def commit(self, token, ends):
        super().commit(token, ends)


class KeepsTheTokens(Solution):
    def __init__(self, prompt, max_tokens):
        super().__init__(prompt, max_tokens)
        self.text = [None]

    def commit(self, token, ends):
        self.text.remove(None)
        self.text.append(token)
        return super().commit(token, ends)


class LeavesTheStopTokenOut(Solution):
    def commit(self, token, ends):
        return super().commit(token, ends) and not ends


class ForgetsWhatHadARow(Solution):
    def scheduled(self, count):
        super().scheduled(count)
        self.computed -= count


class ForgetsToCountTheToken(Solution):
    def commit(self, token, ends):
        kept = super().commit(token, ends)
        self.known -= kept
        return kept


class KeepsThePromptsRows(Solution):
    def __init__(self, prompt, max_tokens):
        super().__init__(prompt, max_tokens)
        self.prompt = prompt

    def preempted(self):
        super().preempted()
        self.computed = self.prompt


class ForgetsTheTextAtAPreemption(KeepsThePromptsRows):
    def preempted(self):
        self.known, self.computed, self.placeholders = self.prompt, 0, 0


class TakesPlaceholdersForKnown(Solution):
    def preempted(self):
        self.known -= self.placeholders
        super().preempted()


class SetsInsteadOfAdding(Solution):
    def scheduled(self, count):
        self.computed = 0
        super().scheduled(count)


WRONG = [
    (LeavesTheStopTokenOut, Promise.IN_THE_TEXT, [1, False, "stop token"]),
    (ForgetsWhatHadARow, Promise.EXISTS, [1, 2]),
    (ForgetsToCountTheToken, Promise.NUMBER, ["-1"]),
    (KeepsThePromptsRows, Promise.AGAIN, [2]),
    (ForgetsTheTextAtAPreemption, Promise.AGAIN, [2, 3]),
    (CountsOnlyKnownTokens, Promise.GOES_ON, [0, 1, "max_tokens=2"]),
    (ForgetsMaxTokens, Promise.MAX_TOKENS, [1, "max_tokens=1"]),
    (CountsMaxTokensWhenTheyAreKnown, Promise.MAX_TOKENS, [1, "max_tokens=1"]),
    (StopsOneTooEarly, Promise.GOES_ON, [0, "max_tokens=2"]),
    (AppendsAfterTheEnd, Promise.AFTER_THE_END, [2, True]),
    (NeverEnds, Promise.AFTER_THE_END, [2, True]),
    (WantsAfterTheEnd, Promise.ENDED, [1]),
    (KeepsItsMemory, Promise.AGAIN, [2]),
    (DropsTheTokenInFlight, Promise.IN_THE_TEXT, [False]),
    (TakesOffOnePlaceholderTooMany, Promise.AGAIN, [2]),
    (NeverFillsThePlaceholder, Promise.MAX_TOKENS, [2]),
    (APlaceholderForEachChunk, Promise.ALL_TOKENS, [2, 0]),
    (WantsThePromptAtOnce, Promise.ALL_TOKENS, [1]),
    (KeepsItsCountsInTheClass, Promise.OWN_COUNTS, [1]),
    (SchedulesWhenAsked, Promise.ONLY_ASKS, [1]),
    (SaysWhetherItGoesOn, Promise.NUMBER, [None]),
    (ReturnsNothing, Promise.TRUE_OR_FALSE, [None]),
    (KeepsTheTokens, CommonPromise.ANSWERS, ["ValueError"]),
    (TakesPlaceholdersForKnown, Promise.AGAIN, [2]),
    (SetsInsteadOfAdding, Promise.MAX_TOKENS, [1, 2]),
]
