"""Upper bounds on a request's fields, for both protocols.

A field is bounded here if a larger value would be useless or would slow down every other request: the
engine thread searches for each stop string after every token, and a name goes into the log. The engine
itself checks whether a request fits into memory, batch and context.
"""

MAX_NAME_LENGTH = 256
MAX_STOPS = 64
MAX_STOP_LENGTH = 256
MAX_STOP_TOKENS = 1024
# vLLM's limit in its newer model runner (MAX_NUM_LOGIT_BIAS_TOKENS in
# vllm/v1/worker/gpu/sample/logit_bias.py).
MAX_BIASES = 1024

# The log is JSON, whose readers know 64 bits.
LARGEST_WHOLE = 2**63 - 1
LARGEST_COUNT = 2**31 - 1
