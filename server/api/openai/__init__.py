"""OpenAI's API: completions, chat completions and responses, streamed or whole.

requests.py      the fields that both endpoints share
conversation.py  messages, and how they become a prompt
tools.py         the tools of a request, and the calls in its response
routes.py        all routes, and those that render a request without running it
completions.py   /v1/completions: body, prompts, response; the teaching stream
chat.py          /v1/chat/completions: body, prompt, response
responses.py     the parts that the responses of both share, and their schemas

response_request.py   /v1/responses: its body and the conversion to a chat request
response_events.py    /v1/responses: its output items
"""
