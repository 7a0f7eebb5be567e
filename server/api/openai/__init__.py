"""OpenAI's API: completions and chat completions, streamed or whole.

requests.py      the fields that both endpoints share
completions.py   /v1/completions: body, route, prompts, response; the teaching stream
chat.py          /v1/chat/completions: body, route, prompt, response
responses.py     what both responses share, and their schemas

response_request.py   /v1/responses: its body, as a chat request
response_events.py    /v1/responses: its route and its output items
"""
