"""Compile what a request asks for into a grammar over the tokens of a vocabulary.

A JSON schema, a regular expression or a list of choices becomes a grammar over bytes; llguidance walks
the tokens of the vocabulary through it. The library is imported when the first request needs it.

vLLM's counterparts are `vllm/v1/structured_output/__init__.py` and its backends.

Differs from vLLM: JSON has no whitespace except a space after each colon and comma, because a small
model fills its output with whitespace where it may; and an object with `properties` is closed unless
the schema says otherwise, because a small model invents keys. `--structured-outputs-config` has both
as options in vLLM (`disable_any_whitespace`, `disable_additional_properties`).
"""

import importlib
import json
import math
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import lru_cache
from types import ModuleType
from typing import Any, TypeVar

from engine.core.extras import needs_extra
from engine.core.sampling_params import StructuredOutput
from engine.core.tokenizer import Tokenizer
from engine.extensions.grammars.constraint import Beginning, GrammarConstraint, Matcher
from engine.extensions.grammars.ebnf import ebnf_to_lark, is_ebnf
from engine.extensions.grammars.exact_schema import make_exact
from engine.extensions.grammars.grammar_error import GrammarError
from engine.extensions.grammars.json_schema import as_list, children, close_objects, walk
from engine.extensions.grammars.limits import (
    LIBRARY_LIMITS,
    MAX_MULTIPLE,
    MAX_REGEX,
    MAX_TEXT,
    reason_of,
)
from engine.extensions.grammars.unique_items import keep_items_unique

_REHEARSED = 4  # tokens
_LARGE = 50_000  # tokens; a smaller vocabulary is read in less than 0.2 s
_JSON = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_STACK = 256 << 20  # bytes of address space, used only as far as a grammar is nested
_STACK_LOCK = threading.Lock()
_LOCK = threading.Lock()  # of all vocabularies: an engine with its own lock could not be copied
_Result = TypeVar("_Result")
# Characters of schemas that are compiled by themselves to find the part with the error.
_MAX_SEARCHED = 2 * MAX_TEXT
_REGEX_ERROR = re.compile(r"regex parse error:\n    (.*)\n    ( *)\^+\nerror: (.*)")
_GRAMMAR_ERROR = re.compile(r"(?:at )?(\d+)\((\d+)\): (.*)")


class GrammarCompiler:
    """Compiles grammars for one tokenizer. Any thread may call it.

    Nothing is kept for other requests with the same grammar, because copies of a compiled grammar share
    llguidance's lexer: one request that reaches a limit of the lexer would end all of them.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def constraint(
        self, structured: StructuredOutput, *, ignore_eos: bool = False
    ) -> GrammarConstraint:
        """Return a new constraint. Raises GrammarError."""
        beginning = Beginning(lambda: self._compile(structured))
        return GrammarConstraint(beginning, self._tokenizer.eos_ids, ignore_eos=ignore_eos)

    def prepare(self) -> None:
        """Read a large vocabulary now, not with the first grammar.

        The library holds the GIL meanwhile, for half a second if there are 150,000 tokens.
        """
        if self._tokenizer.eos_ids and self._tokenizer.vocab_size >= _LARGE:
            _vocabulary_of(self._tokenizer)

    def _compile(self, structured: StructuredOutput) -> Matcher:
        if not self._tokenizer.eos_ids:
            raise GrammarError("a tokenizer without an end token cannot end an output")
        _llguidance()  # not only on the thread: a web page has neither, and this is the reason to tell
        return _on_a_large_stack(lambda: self._compile_with(structured))

    def _compile_with(self, structured: StructuredOutput) -> Matcher:
        library = _llguidance()
        grammar = _grammar(library.LLMatcher, structured)
        matcher: Matcher = library.LLMatcher(
            _vocabulary_of(self._tokenizer),
            grammar,
            log_level=0,
            limits=_limits(library),
        )
        if error := matcher.get_error():
            if structured.kind == "json_schema":
                path = _path_of(error, json.loads(structured.text), library)
                raise GrammarError(f"{path}: {_reason(error)}")
            raise GrammarError(_reason(error))
        matcher = keep_items_unique(matcher, grammar, self._tokenizer)
        self._rehearse(matcher)
        return matcher

    def _rehearse(self, matcher: Matcher) -> None:
        """Raise GrammarError if a limit is reached within the first few tokens of one output.

        The compiler finds neither all limits nor a recursion without an end. Most grammars that reach
        a limit while they are read do so here, before their request is queued.
        """
        rehearsal = GrammarConstraint(
            Beginning(lambda: matcher), self._tokenizer.eos_ids, ignore_eos=True
        )
        output: list[int] = []
        while len(output) < _REHEARSED and not (output and rehearsal.is_complete(output)):
            mask = rehearsal.mask(output)
            if rehearsal.error:
                where = "" if output else "no output can begin: "
                raise GrammarError(where + rehearsal.error)
            output.append((mask & -mask).bit_length() - 1)  # the first allowed token
        if rehearsal.error:
            raise GrammarError(rehearsal.error)


def _llguidance() -> ModuleType:
    with needs_extra("structured output"):
        return importlib.import_module("llguidance")


def _vocabulary_of(tokenizer: Tokenizer) -> Any:
    with _LOCK:
        return _vocabulary(tokenizer)  # type: ignore[arg-type] # hashed by identity


@lru_cache(maxsize=8)  # kept when an engine restarts
def _vocabulary(tokenizer: Tokenizer) -> Any:
    """Return llguidance's view of a tokenizer."""
    library = _llguidance()
    wrapper = library.TokenizerWrapper(_Vocabulary(tokenizer))
    return library.LLTokenizer(wrapper, eos_token=sorted(tokenizer.eos_ids))


def _on_a_large_stack(work: Callable[[], _Result]) -> _Result:
    """Do work on a thread of its own. Compiling a chain of rules recurses once for each of them."""
    with _STACK_LOCK:
        usual = threading.stack_size(_STACK)
        try:
            with ThreadPoolExecutor(1) as thread:
                done = thread.submit(work)
        finally:
            threading.stack_size(usual)
    return done.result()


class _Vocabulary:
    """A tokenizer as llguidance's TokenizerWrapper wants it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokens = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
        self.special_token_ids = sorted(tokenizer.special_ids | tokenizer.eos_ids)
        self.eos_token_id = min(tokenizer.eos_ids)
        self.bos_token_id = tokenizer.bos_id
        self._tokenizer = tokenizer

    def __call__(self, text: str) -> list[int]:
        """Return the ids of plain text."""
        return self._tokenizer.encode_ordinary(text)


def _grammar(matcher: Any, structured: StructuredOutput) -> str:
    """Return a request's shape in llguidance's own format. Raises GrammarError."""
    text = structured.text
    if len(text) > MAX_TEXT:
        raise GrammarError(f"has {len(text):,} characters; at most {MAX_TEXT:,} are compiled")
    grammar: str
    match structured.kind:
        case "regex":
            _check_length(text, "")
            grammar = matcher.grammar_from_regex(text)
        case "grammar":
            lark = ebnf_to_lark(text) if is_ebnf(text) else text
            grammar = matcher.grammar_from_lark(lark)
        case "choice":
            choices = as_list(_json(text))
            if not choices or not all(isinstance(one, str) for one in choices):
                raise GrammarError(f"the choices must be a list of texts, got {text[:80]}")
            grammar = matcher.grammar_from_lark("start: " + " | ".join(map(json.dumps, choices)))
        case "json_object":
            grammar = _json_grammar(matcher, {"type": "object"})
        case "json_schema":
            schema = _json(text)
            if not isinstance(schema, dict):
                raise GrammarError(f"a JSON schema must be an object, got {text[:80]}")
            _check_cost(schema)
            make_exact(schema)
            close_objects(schema)
            grammar = _json_grammar(matcher, schema)
    return grammar


def _json_grammar(matcher: Any, schema: Any) -> str:
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError:
        raise GrammarError("has half a surrogate pair: write whole characters") from None
    except ValueError:
        raise GrammarError("has a number that is no finite 64-bit float") from None
    try:
        grammar: str = matcher.grammar_from_json_schema(text, overrides=_JSON)
    except ValueError as error:  # the library's own parser recurses
        raise GrammarError("is nested too deeply") from error
    return grammar


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise GrammarError(f"is not JSON: {error}") from error
    except RecursionError:
        raise GrammarError("is nested too deeply") from None


def _check_length(expression: str, where: str) -> None:
    if len(expression) > MAX_REGEX:
        raise GrammarError(
            f"{where}an expression may have {MAX_REGEX:,} characters, got {len(expression):,}"
        )


def _check_cost(root: Any) -> None:
    """Reject parts of a schema for which the library has no limit of its own."""
    for path, schema in walk(root):
        if isinstance(pattern := schema.get("pattern"), str):
            _check_length(pattern, f"{path}: ")
        step = schema.get("multipleOf")
        if isinstance(step, int | float) and math.isfinite(step):
            digits = int("".join(map(str, Decimal(str(step)).normalize().as_tuple().digits)))
            if max(digits, step) > MAX_MULTIPLE:
                raise GrammarError(
                    f"{path}: multipleOf must have a value and digits of at most {MAX_MULTIPLE:,}, "
                    f"got {step}"
                )


def _limits(library: Any) -> Any:
    return library.LLParserLimits(**LIBRARY_LIMITS)


def _path_of(error: str, root: Any, library: Any) -> str:
    """Return the JSON path of the smallest part of a schema that gives this error by itself."""
    shared = {key: root[key] for key in ("$defs", "definitions") if key in root}
    path, schema, searched = "$", root, 0
    while True:
        for step, child in children(schema):
            if isinstance(child, dict):
                grammar = _json_grammar(library.LLMatcher, shared | child)
                searched += len(grammar)
                if searched > _MAX_SEARCHED:
                    return path
                if library.LLMatcher.validate_grammar(grammar, limits=_limits(library)) == error:
                    path, schema = path + step, child
                    break
        else:
            return path


def _reason(error: str) -> str:
    """Return an error of llguidance in one line, with the position in the expression or grammar."""
    if found := _REGEX_ERROR.search(error):
        expression, indent, reason = found.groups()
        return f"{reason}, at position {len(indent)} of the expression {expression}"
    if found := _GRAMMAR_ERROR.match(error):
        line, column, reason = found.groups()
        return f"line {line}, column {column}: {reason_of(reason)}"
    return reason_of(error)
