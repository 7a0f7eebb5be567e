"""The request fields that this server does not support, and the neutral values that it still accepts.

Clients of OpenAI's API, vLLM and SGLang send many fields with values that ask for nothing, such as
`use_beam_search: false`. Such a value is neutral and is accepted. Any other value is an error that
names the field and its replacement. No field is ignored: a client that sends `ebnf`, for example, must
not get an answer that ignores the grammar. `null` always means that the field is absent.

The bodies (`ChatRequest`, `CompletionRequest`, `TokenizeRequest`, `DetokenizeRequest`) declare the
fields that work there. `UNSUPPORTED` lists all other fields, for all bodies alike. A field may be in
both: `best_of` works for completions, while chat accepts only 1. Together they cover every field of
vLLM 0.32 (`vllm/entrypoints/openai/*/protocol.py`) and SGLang 0.5.23
(`sglang/srt/entrypoints/openai/protocol.py`); `docs/clients.md` lists the fields side by side.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from server.http.errors import bad_request, unknown_field


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A field that an endpoint does not support.

    neutral   the values that are accepted, besides null, because they ask for nothing
    hint      whether every value is accepted, because the field cannot change an answer
    instead   what to do instead; the end of the error message
    """

    neutral: tuple[Any, ...] = ()
    hint: bool = False
    instead: str = "leave it out"

    def accepts(self, value: object) -> bool:
        """Return whether a value asks for nothing."""
        return value is None or self.hint or any(_same(value, neutral) for neutral in self.neutral)

    def check(self, name: str, value: object) -> None:
        """Raise ApiError unless the value of the field with this name asks for nothing."""
        if not self.accepts(value):
            raise bad_request(name, f"{name} is not supported here: {self.instead}")


def _same(value: object, neutral: object) -> bool:
    """Return whether two JSON values are equal; 0 is not false and 1 is not true."""
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)


_OFF = Unsupported((False,))
_EITHER = Unsupported((True, False))  # the field only qualifies another, unsupported field
_HINT = Unsupported(hint=True)
_TEXT_ONLY = Unsupported(({},), instead="leave it out: the models read only text")
_NO_REASONING = "leave it out: the models do not reason before they answer"
_ONE_ENGINE = "leave it out: one engine runs the whole request"
_EXPERTS = "leave it out: the experts that a token used are not recorded"
_IDS = Unsupported((False,), instead="use return_token_ids, which returns prompt and output ids")


def _grammar(kind: str) -> Unsupported:
    return Unsupported(instead=f'use structured_outputs: {{"{kind}": ...}}')


UNSUPPORTED: dict[str, Unsupported] = {
    # OpenAI's API. Some of these fields work at one endpoint only.
    "audio": _TEXT_ONLY,
    "best_of": Unsupported((1,), instead="use n, or best_of with /v1/completions"),
    "function_call": Unsupported(("none", "auto"), instead="use tool_choice"),
    "functions": Unsupported(([],), instead="use tools"),
    "max_completion_tokens": Unsupported(instead="use max_tokens"),
    "metadata": Unsupported(({},), instead="leave it out: answers are not stored"),
    "modalities": Unsupported((["text"],), instead="leave it out: the models write only text"),
    "moderation": Unsupported(),
    "parallel_tool_calls": _EITHER,
    "prediction": Unsupported(),
    "prompt_cache_key": _HINT,
    "prompt_cache_options": Unsupported(),
    "prompt_cache_retention": Unsupported(("in_memory",)),
    "reasoning_effort": Unsupported(("none",), instead=_NO_REASONING),
    "service_tier": Unsupported(("auto", "default")),
    "store": Unsupported((False,), instead="leave it out: answers are not stored"),
    "stream_options.include_obfuscation": _OFF,
    "suffix": Unsupported(("",), instead="leave it out: the models continue a text at its end"),
    "tool_choice": Unsupported(("none", "auto"), instead="use /v1/chat/completions"),
    "tools": Unsupported(([],), instead="use /v1/chat/completions"),
    "top_logprobs": Unsupported((0,), instead="use logprobs: it is a number in /v1/completions"),
    "verbosity": Unsupported(("medium",)),
    "web_search_options": Unsupported(),
    # Sampling
    "custom_logit_processor": Unsupported(instead="use logit_bias"),
    "custom_params": Unsupported(({},), instead="leave it out: no logit processor reads it"),
    "early_stopping": _OFF,
    "length_penalty": Unsupported((1.0,), instead="leave it out: there is no beam search"),
    "logits_processors": Unsupported(([],), instead="use logit_bias"),
    "repetition_detection": Unsupported(instead="use repetition_penalty"),
    "thinking_token_budget": Unsupported((-1,), instead=_NO_REASONING),
    "use_beam_search": Unsupported((False,), instead="use n or best_of"),
    "watermark": Unsupported(({}, {"enabled": False})),
    "watermarking": _OFF,
    # Grammars under other names; `guided_...` are those of older versions of vLLM
    "ebnf": _grammar("grammar"),
    "guided_choice": _grammar("choice"),
    "guided_decoding_backend": Unsupported(instead="leave it out: there is one backend"),
    "guided_grammar": _grammar("grammar"),
    "guided_json": _grammar("json"),
    "guided_regex": _grammar("regex"),
    "guided_whitespace_pattern": Unsupported(),
    "json_schema": _grammar("json"),
    "regex": _grammar("regex"),
    # The prompt
    "add_generation_prompt": Unsupported((True,), instead="use /v1/chat/completions"),
    "add_special_tokens": Unsupported(
        (False,), instead="leave it out: the chat template adds them"
    ),
    "chat_template": Unsupported(instead="leave it out: the model's own template is used"),
    "chat_template_kwargs": Unsupported(({},), instead="use /v1/chat/completions"),
    "continue_final_message": Unsupported((False,), instead="use /v1/chat/completions"),
    "documents": Unsupported(([],), instead="use /v1/chat/completions"),
    "input_ids": Unsupported(instead="use /v1/completions with token ids as prompt"),
    "prompt_embeds": Unsupported(instead="use prompt: text or token ids"),
    # The end of the output, and how the answer shows it
    "no_stop_trim": Unsupported((False,), instead="use include_stop_str_in_output"),
    # This field affects only the slow tokenizers of transformers, as in vLLM.
    "spaces_between_special_tokens": _EITHER,
    "stop_regex": Unsupported(instead="use stop"),
    "stream_interval": Unsupported(
        (1,), instead="leave it out: each step's tokens are sent at once"
    ),
    # Further contents of the answer
    "logprob_token_ids": Unsupported(([],), instead="use logprobs and top_logprobs"),
    "return_cached_tokens_details": Unsupported(
        (False,), instead="read usage.prompt_tokens_details.cached_tokens"
    ),
    "return_flat_raw_output_top_logprobs": Unsupported((False,), instead="use top_logprobs"),
    "return_flat_raw_top_logprobs_b64": _EITHER,
    "return_hidden_states": _OFF,
    "return_input_ids_in_sglext": _IDS,
    "return_meta_info": Unsupported((False,), instead="read usage, finish_reason and stop_reason"),
    "return_output_ids_in_sglext": _IDS,
    "return_prompt_text": Unsupported((False,), instead="use /tokenize, which returns token_strs"),
    "return_prompt_token_ids": _IDS,
    "return_routed_experts": Unsupported((False,), instead=_EXPERTS),
    "return_sampling_mask": Unsupported((False,), instead="use structured_outputs and /trace"),
    "return_spec_tokens_details": Unsupported((False,), instead="read /trace"),
    "return_token_offsets": _OFF,
    "return_token_strs": Unsupported((False,), instead="use /tokenize"),
    "return_tokens_as_token_ids": Unsupported((False,), instead="use return_token_ids"),
    "routed_experts_prompt_start": Unsupported((0,), instead=_EXPERTS),
    "routed_experts_start_len": Unsupported((0,), instead=_EXPERTS),
    "sampling_logprobs_mode": Unsupported(),
    # Reasoning
    "include_reasoning": _EITHER,
    "reasoning": Unsupported(({}, {"enabled": False}, {"effort": "none"}), instead=_NO_REASONING),
    "separate_reasoning": _EITHER,
    "stream_reasoning": _EITHER,
    "task": Unsupported(),
    "thinking": Unsupported(({}, {"type": "disabled"}), instead=_NO_REASONING),
    # Images, audio and video
    "images_config": _TEXT_ONLY,
    "max_dynamic_patch": _TEXT_ONLY,
    "media_io_kwargs": _TEXT_ONLY,
    "min_dynamic_patch": _TEXT_ONLY,
    "mm_payload": Unsupported(("tensors", "none"), instead=_TEXT_ONLY.instead),
    "mm_processor_kwargs": _TEXT_ONLY,
    "return_mm_kwargs": _EITHER,
    "use_audio_in_video": _EITHER,
    "video_config": _TEXT_ONLY,
    # Caching, routing and bookkeeping
    "bootstrap_host": Unsupported(instead=_ONE_ENGINE),
    "bootstrap_port": Unsupported(instead=_ONE_ENGINE),
    "bootstrap_room": Unsupported(instead=_ONE_ENGINE),
    "custom_labels": Unsupported(
        ({},), instead="use user, which is the request's label in the log"
    ),
    "data_parallel_rank": Unsupported((0,), instead=_ONE_ENGINE),
    "disagg_prefill_dp_rank": Unsupported((0,), instead=_ONE_ENGINE),
    "ec_transfer_params": Unsupported(({},), instead=_ONE_ENGINE),
    "extra_key": Unsupported(instead="use cache_salt"),
    "kv_transfer_params": Unsupported(({},), instead=_ONE_ENGINE),
    "lora_path": Unsupported(instead="use model: the name of an adapter in /v1/models"),
    "routed_dp_rank": Unsupported((0,), instead=_ONE_ENGINE),
    "session_id": _HINT,
    "session_params": Unsupported(
        ({},), instead="send the whole conversation: its prefix is cached"
    ),
    "vllm_xargs": Unsupported(({},), instead="leave it out: there are no extensions"),
}


def check_unsupported(fields: Mapping[str, Any]) -> None:
    """Raise ApiError for a field that is unknown, or unsupported and not neutral.

    fields   the fields that the body does not declare, with their values
    """
    for name, value in fields.items():
        if value is None:
            continue
        if name not in UNSUPPORTED:
            raise unknown_field(name)
        UNSUPPORTED[name].check(name, value)
