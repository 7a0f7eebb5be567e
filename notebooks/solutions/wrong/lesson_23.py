"""Lesson 23: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_23 import Promise

RETURNS = "return before, tuple(tokens), tuple(extra)"
ALL = "before, tokens, adapter, salt"
LORA, SALT = '("lora", adapter)', '("cache_salt", salt)'

WRONG = {
    Promise.HASHABLE: {"AList": f"return [{ALL}]"},
    Promise.NOT_NONE: {"OnlyExtras": {RETURNS: "return tuple(extra) or None"}},
    Promise.SAME: {
        "ASaltOfItsOwn": {
            "salt: str | None)": "salt: str | None, calls=[0])",
            RETURNS: "calls.append(0)\n    return before, tuple(tokens), adapter, salt or len(calls)",
        }
    },
    Promise.TOKENS: {"ASet": {"tuple(tokens)": "frozenset(tokens)"}},
    Promise.BEFORE: {
        "NoChain": "return tuple(tokens), adapter, salt",
        "TheBlockBeforeAlone": "return before and before[1], tuple(tokens), adapter, salt",
    },
    Promise.ADAPTER: {
        "NoAdapter": {f"extra.append({LORA})": "pass"},
        "SaltOrAdapter": "return before, tuple(tokens), salt or adapter",
    },
    Promise.SALT: {
        "NoSalt": {f"extra.append({SALT})": "pass"},
        "SaltAfterTheFirst": {"before is None and": "before is not None and"},
    },
    Promise.TEXT: {
        "WithoutTags": {LORA: "adapter", SALT: "salt"},
        "NoneIsText": "return f'{before}|{tokens}|{adapter}|{salt}'",
    },
    Promise.MANY: {"AShortHash": f"import zlib\nreturn zlib.crc32(repr([{ALL}]).encode()) % 2000"},
    CommonPromise.UNCHANGED: {"Appends": "tokens += [adapter, salt]\nreturn before, *tokens"},
}
