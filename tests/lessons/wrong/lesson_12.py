"""Lesson 12: plausible wrong parts, the promises that they break, and facts of the messages."""

from checks.lesson_12 import Promise
from solutions.lesson_12 import ToolState as Solution


class SharesItsBuffer(Solution):
    buffer: list[int] = []
    open = False

    def __init__(self, marks, tokenizer, evaluate):
        super().__init__(marks, tokenizer, evaluate)
        self.open = False

    def feed(self, token):
        if token == self.marks.call_start:
            self.open = True
            self.buffer.clear()
        elif token == self.marks.call_end and self.open:
            self.open = False
            result = self.evaluate(self.tokenizer.decode(self.buffer))
            return [] if result is None else self.framed(result)
        elif self.open:
            self.buffer.append(token)
        return []

    def framed(self, text):
        answer = self.tokenizer.encode_ordinary(text)
        return [self.marks.output_start, *answer, self.marks.output_end]


class ForcesAnError(SharesItsBuffer):
    def __init__(self, marks, tokenizer, evaluate):
        super().__init__(marks, tokenizer, lambda text: evaluate(text) or "error")
        self.buffer = []


class TreatsPythonAsACalculator(SharesItsBuffer):
    def __init__(self, marks, tokenizer, evaluate):
        super().__init__(marks, tokenizer, self.python)
        self.buffer = []

    def python(self, text):
        try:
            return str(eval(text))
        except Exception:
            return None


class NeverStarts(Solution):
    def __init__(self, *given):
        super().__init__(*given)
        self.buffer = []

    def feed(self, token):
        if token == self.marks.call_start:
            self.buffer = []
        elif token == self.marks.call_end:
            result = self.evaluate(self.tokenizer.decode(self.buffer))
            return [] if result is None else SharesItsBuffer.framed(self, result)
        else:
            self.buffer.append(token)
        return []


class NeverCloses(Solution):
    def feed(self, token):
        call = None if self.call is None else list(self.call)
        answer = super().feed(token)
        if token == self.marks.call_end:
            self.call = call
        return answer


class KeepsTheFirstStart(Solution):
    def feed(self, token):
        if token == self.marks.call_start and self.call is not None:
            return []
        return super().feed(token)


class AnswersWithoutAFrame(Solution):
    def feed(self, token):
        return super().feed(token)[1:-1]


class GivesNone(Solution):
    def feed(self, token):
        return super().feed(token) or None


class AnswersEachLetter(Solution):
    def feed(self, token):
        answer = super().feed(token)
        if self.call:
            result = self.evaluate(self.tokenizer.decode(self.call))
            return SharesItsBuffer.framed(self, result) if result else []
        return answer


class NeverAnswers(Solution):
    def feed(self, token):
        super().feed(token)
        return []


class TakesTheMarksAlong(Solution):
    def feed(self, token):
        if self.call is not None and token == self.marks.call_end:
            self.call.append(token)
        return super().feed(token)


class DecodesTokenByToken(Solution):
    """Breaks an é, which is two tokens, into two replacement characters."""

    def __init__(self, marks, tokenizer, evaluate):
        super().__init__(marks, tokenizer, evaluate)
        self.text = None

    def feed(self, token):
        if token == self.marks.call_start:
            self.text = ""
        elif token == self.marks.call_end and self.text is not None:
            result, self.text = self.evaluate(self.text), None
            return [] if result is None else SharesItsBuffer.framed(self, result)
        elif self.text is not None:
            self.text += self.tokenizer.decode([token])
        return []


class DropsWhatIsNotAscii(DecodesTokenByToken):
    def feed(self, token):
        return [] if 127 < token < 256 else super().feed(token)


class ForcesAllResultsSoFar(Solution):
    def __init__(self, marks, tokenizer, evaluate):
        super().__init__(marks, tokenizer, evaluate)
        self.forced = []

    def feed(self, token):
        answer = super().feed(token)
        self.forced += answer
        return self.forced if answer else []


class KeepsItsCallInTheClass(Solution):
    """A call that no end has closed stays open for the next sample."""

    open = None

    def __init__(self, marks, tokenizer, evaluate):
        super().__init__(marks, tokenizer, evaluate)
        self.call = type(self).open

    def feed(self, token):
        answer = super().feed(token)
        type(self).open = self.call
        return answer


class BeginsTheResultAtTheStart(Solution):
    def feed(self, token):
        answer = super().feed(token)
        return [self.marks.output_start] if token == self.marks.call_start else answer[1:]


class ReturnsATuple(Solution):
    def feed(self, token):
        return tuple(super().feed(token))


WRONG = [
    (ForcesAllResultsSoFar, Promise.FRAMED, ["<|output_start|>7<|output_end|>", "'-5'"]),
    (KeepsItsCallInTheClass, Promise.OWN_STATE, []),
    (BeginsTheResultAtTheStart, Promise.ONLY_AFTER_END, ["<|python_start|>"]),
    (ReturnsATuple, Promise.LIST, ["()"]),
    (SharesItsBuffer, Promise.OWN_STATE, []),
    (
        ForcesAnError,
        Promise.NO_RESULT,
        ["<|python_start|>", "<|python_end|>", "<|output_start|>error<|output_end|>"],
    ),
    (TreatsPythonAsACalculator, Promise.NO_RESULT, ["'2**9'"]),
    (NeverStarts, Promise.NO_START, [7, "<|python_end|>"]),
    (NeverCloses, Promise.NO_START, []),
    (KeepsTheFirstStart, Promise.NO_RESULT, ["<|python_start|>", 7, "<|python_end|>"]),
    (AnswersWithoutAFrame, Promise.FRAMED, []),
    (GivesNone, Promise.LIST, ["feed()"]),
    (AnswersEachLetter, Promise.ONLY_AFTER_END, [7]),
    (NeverAnswers, Promise.ANSWERED, ["'7'"]),
    (
        DecodesTokenByToken,
        Promise.DECODED_TOGETHER,
        ["<|python_start|>", "'éèé'", "'é'", "<|python_end|>", "<|output_start|>3<|output_end|>"],
    ),
    (DropsWhatIsNotAscii, Promise.DECODED_TOGETHER, ["'éèé'", "'é'"]),
    (TakesTheMarksAlong, Promise.ANSWERED, []),
]
