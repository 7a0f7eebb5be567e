"""OpenAI's API: completions and chat completions, streamed or whole.

routes.py        from a request to its response
requests.py      the fields that both endpoints share
completions.py   /v1/completions: body, prompts, response
chat.py          /v1/chat/completions: body, prompt, response
logprobs.py      log-probabilities in OpenAI's two formats
responses.py     what both responses share, and their schemas
"""
