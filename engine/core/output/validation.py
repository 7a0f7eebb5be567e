"""Validate a request by everything that never changes: settings, tokenizer and context.

An engine validates what it is given, and a server validates a request before it is queued, perhaps in
another process than the engine's.
"""

from collections.abc import Sequence

from engine.core.config import EngineConfig
from engine.core.sampling_params import SamplingParams
from engine.core.scheduling.admission import RequestError, check_request
from engine.extensions.grammars.constraint import Constraint
from engine.extensions.grammars.grammar import GrammarCompiler
from engine.extensions.grammars.grammar_error import GrammarError
from engine.models.text.bad_words import bad_word_ids
from engine.models.text.tokenizer import Tokenizer


class RequestValidator:
    """Validates requests. Any thread may call it."""

    def __init__(self, config: EngineConfig, tokenizer: Tokenizer) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._grammars = GrammarCompiler(tokenizer)

    def validate(
        self,
        tokens: Sequence[int],
        params: SamplingParams,
        priority: int,
        *,
        max_context: int | None,
    ) -> None:
        """Raise RequestError unless an otherwise empty engine can serve this request.

        What `structured` asks for is compiled by `constraint`.
        """
        check_request(
            tokens,
            params,
            priority,
            config=self._config,
            vocab_size=self._tokenizer.vocab_size,
            max_context=max_context,
        )
        try:
            bad_word_ids(params.bad_words, self._tokenizer)
        except ValueError as error:
            raise RequestError("bad_words", str(error)) from error

    def prepare(self) -> None:
        """Prepare for structured outputs, so that the first one does not delay other requests."""
        self._grammars.prepare()

    def constraint(self, params: SamplingParams) -> Constraint | None:
        """Compile what the output must match, if anything. Raises RequestError."""
        if params.structured is None:
            return None
        try:
            return self._grammars.constraint(params.structured, ignore_eos=params.ignore_eos)
        except GrammarError as error:
            raise RequestError("structured", str(error)) from error
