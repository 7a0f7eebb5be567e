"""The settings of vLLM on which a decision of its scheduler depends, and what a header says of them."""

from typing import Any

# The settings that vLLM's scheduler and its KV cache manager read. The header has RECORDED ones under
# the names of Underglass. LACKING ones may change decisions, but Underglass's engine does not have
# them: the header names each whose value is not the one here, with which it changes none. No decision
# depends on IRRELEVANT ones, or they act only through another one that is listed. A field of vLLM's
# configuration that is in none of the three, because it is newer than this file, is named where it is
# not at its default. `recorders/fixtures/record_settings.py` lists what vLLM reads.
RECORDED = """
scheduler_config.async_scheduling scheduler_config.enable_chunked_prefill
scheduler_config.long_prefill_token_threshold scheduler_config.long_prefill_token_threshold_adaptive
scheduler_config.max_num_active_seqs scheduler_config.max_num_batched_tokens
scheduler_config.max_num_scheduled_tokens scheduler_config.max_num_seqs scheduler_config.policy
scheduler_config.scheduler_reserve_full_isl scheduler_config.watermark
cache_config.block_size cache_config.enable_prefix_caching cache_config.mamba_cache_mode
cache_config.num_gpu_blocks
lora_config.max_loras
"""
LACKING: dict[str, Any] = {
    "scheduler_config.disable_chunked_mm_input": False,
    "scheduler_config.prefill_schedule_interval": 1,
    "cache_config.enable_mamba_fine_grained_prefix_cache": False,
    "cache_config.enable_mamba_shared_prefix_checkpoint": False,
    "cache_config.prefix_match_unit": None,
    "model_config.is_diffusion": False,
    "model_config.is_encoder_decoder": False,
    "model_config.runner_type": "generate",
    "model_config.supports_multimodal_inputs": False,
    "parallel_config.decode_context_parallel_size": 1,
    "parallel_config.pipeline_parallel_size": 1,
    "parallel_config.prefill_context_parallel_size": 1,
    "speculative_config.max_num_new_slots_for_drafting": 0,
    "speculative_config.num_speculative_tokens_per_batch_size": None,
    "vllm_config.ec_transfer_config": None,
    "vllm_config.num_lookahead_tokens": 0,
    "vllm_config.num_prefill_lookahead_tokens": 0,
    "vllm_config.num_speculative_tokens": 0,
}
IRRELEVANT = """
scheduler_config.disable_hybrid_kv_cache_manager scheduler_config.encoder_cache_size
scheduler_config.is_encoder_decoder scheduler_config.is_multimodal_model
scheduler_config.max_model_len scheduler_config.max_num_encoder_input_tokens
scheduler_config.max_num_queued_reqs scheduler_config.max_num_queued_tokens
scheduler_config.runner_type scheduler_config.scheduler_cls scheduler_config.stream_interval
cache_config._block_size_resolved cache_config.cache_dtype
cache_config.cache_hit_alignment_tokens cache_config.effective_attention_block_size
cache_config.gpu_memory_utilization cache_config.hash_block_size cache_config.is_attention_free
cache_config.kv_cache_dtype_skip_layers cache_config.kv_cache_layout
cache_config.kv_cache_max_concurrency cache_config.kv_cache_memory_bytes
cache_config.kv_cache_size_tokens cache_config.kv_offloading_backend
cache_config.kv_offloading_size cache_config.kv_sharing_fast_prefill
cache_config.mamba_block_size cache_config.mamba_cache_dtype
cache_config.mamba_page_size_padded cache_config.mamba_ssm_cache_dtype
cache_config.num_cpu_blocks cache_config.num_gpu_blocks_override
cache_config.prefix_cache_retention_interval cache_config.prefix_caching_hash_algo
cache_config.replayssm_buffer_len cache_config.skip_page_size_padded cache_config.sliding_window
cache_config.swa_bounded_replay cache_config.use_kda_recoverssm cache_config.use_replayssm
cache_config.user_specified_block_size cache_config.user_specified_mamba_block_size
aux_output_config.enabled ec_manager_config.get_encoder_cache_manager_obj
kv_events_config.enable_kv_cache_events kv_transfer_config.is_kv_consumer
kv_transfer_config.is_kv_producer kv_transfer_config.kv_load_failure_policy
model_config.enable_return_routed_experts model_config.max_model_len
model_config.return_sampling_mask model_config.uses_mrope
observability_config.enable_logging_iteration_details observability_config.enable_mfu_metrics
observability_config.kv_cache_metrics observability_config.kv_cache_metrics_sample
observability_config.per_request_spec_decode_metrics parallel_config.data_parallel_index
speculative_config.use_eagle speculative_config.use_eagle_block_drop
speculative_config.use_multi_module_mtp
vllm_config.is_mm_encoder_only vllm_config.max_concurrent_batches
vllm_config.max_in_flight_tokens vllm_config.use_v2_model_runner
"""


def others_of(config: Any) -> dict[str, Any]:
    """Return the settings of vLLM that may change decisions, but that Underglass's engine lacks."""
    known, others = {*RECORDED.split(), *LACKING, *IRRELEVANT.split()}, dict[str, Any]()
    for name, neutral in LACKING.items():
        part, field = name.split(".")
        owner = config if part == "vllm_config" else getattr(config, part, None)
        if (value := getattr(owner, field, neutral)) != neutral:
            others[name] = value
    for part in ("scheduler_config", "cache_config"):
        for field in getattr(getattr(config, part, None), "__dataclass_fields__", {}).values():
            name, value = f"{part}.{field.name}", getattr(getattr(config, part), field.name, None)
            if name not in known and value != field.default:
                others[name] = value
    scheduler = config.scheduler_config
    if getattr(scheduler, "max_num_scheduled_tokens", None) not in (
        None,
        scheduler.max_num_batched_tokens,
    ):
        others["scheduler_config.max_num_batched_tokens"] = scheduler.max_num_batched_tokens
    # Before vLLM 0.31, which has the adaptive form, the limit also held for a request that is alone.
    limit = "long_prefill_token_threshold"
    fields = getattr(scheduler, "__dataclass_fields__", {})
    if getattr(scheduler, limit, 0) and f"{limit}_adaptive" not in fields:
        others[f"scheduler_config.{limit}"] = f"{getattr(scheduler, limit)}, also for one request"
    simple = (bool, int, float, str, type(None))
    return {name: one if isinstance(one, simple) else str(one) for name, one in others.items()}
