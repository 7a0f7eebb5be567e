"""OpenAI's API: completions and chat completions, streamed and whole."""
