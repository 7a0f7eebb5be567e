"""What a request may ask for at most, whichever protocol brings it.

Bounds are here where more could not be meant, or would cost everybody: the engine's thread looks for
each stop string after every token, and a name goes into the log. Whether a request fits into memory,
batch and context is the engine's to say.
"""

MAX_NAME_LENGTH = 256
MAX_STOPS = 64
MAX_STOP_LENGTH = 256
MAX_STOP_TOKENS = 1024
MAX_BIASES = 1024  # vLLM's (`vllm/v1/worker/gpu/sample/logit_bias.py`)

# The log is JSON, whose readers know 64 bits.
LARGEST_WHOLE = 2**63 - 1
LARGEST_COUNT = 2**31 - 1
