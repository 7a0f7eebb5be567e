"""The causes of a request's time. Each microsecond of a request has exactly one.

work      prefill           a forward pass computes its prompt, or tokens that a tool forced
          decode            a forward pass computes its last token
lost      preempted         it was preempted and has not resumed
          recomputed        a forward pass computes tokens that it had computed before
          others_prefill    inferred: the part of a decode that others' prefill in the step added
waiting   batch_full, no_free_blocks, ...   the recorded reasons of `step_scheduled`: `WaitingReason`
          of the head of the queue, of requests that the policy deferred, and of running ones that
          got no tokens. Behind the head, its reason counts
          step_in_progress  it arrived during a step; requests are examined between steps
engine    between_passes    between its forward passes: scheduling, sampling, sending
          failed_step       the step's scheduling failed, or its pass was dropped
          paused            the engine was paused, and no forward pass ran
          unknown           the log does not say: it begins later, messages are missing, or its
                            source does not know
"""

from typing import get_args

from engine.core.log.vocabulary import WaitingReason

WORK = ("prefill", "decode")
LOST = ("preempted", "recomputed", "others_prefill")
WAITING = (*get_args(WaitingReason), "awaits_token", "prefill_batch", "step_in_progress")
ENGINE = ("between_passes", "failed_step", "paused", "unknown")
CAUSES = (*WAITING, *WORK, *LOST, *ENGINE)

# Requests that wait for these wait for KV blocks.
FOR_BLOCKS = (
    "no_free_blocks",
    "whole_sequence",
    "reserved_blocks",
    "expected_tokens",
    "after_preemption",
    "preempted",
)
# Reasons that hold for every waiting request, not only for the head of the queue.
FOR_ALL = ("after_preemption", "static_batch")
