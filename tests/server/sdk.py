"""OpenAI's own Python SDK, as the judge of what the server sends."""

from typing import Any

import openai


def sdk(url: str, **options: Any) -> openai.OpenAI:
    """A client that accepts nothing but what OpenAI's published types say."""
    strict = {"api_key": "-", "max_retries": 0, "_strict_response_validation": True}
    return openai.OpenAI(base_url=f"{url}/v1", **strict | options)


def lenient(client: openai.OpenAI) -> openai.OpenAI:
    """The same, for what OpenAI itself sends against these types.

    In a stream of completions they want a finish_reason in every chunk, where OpenAI sends null;
    in `echo` with logprobs a number for the first token, which has none.
    """
    return client.with_options(_extra_kwargs={"_strict_response_validation": False})
