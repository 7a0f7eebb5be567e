"""OpenAI's own Python SDK, as the judge of what the server sends."""

import openai


def sdk(url: str) -> openai.OpenAI:
    """A client that accepts nothing but what OpenAI's published types say."""
    return openai.OpenAI(
        base_url=f"{url}/v1", api_key="-", max_retries=0, _strict_response_validation=True
    )


def lenient(client: openai.OpenAI) -> openai.OpenAI:
    """The same, for what OpenAI itself sends against these types.

    In a stream of completions they want a finish_reason in every chunk, where OpenAI sends null;
    in `echo` with logprobs a number for the first token, which has none.
    """
    return client.with_options(_extra_kwargs={"_strict_response_validation": False})
