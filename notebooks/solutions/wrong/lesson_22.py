"""Lesson 22: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_22 import Promise

KV_HEADS = '(config.get("num_key_value_heads") or heads)'
SIZE = 'config.get("head_dim") or config["hidden_size"] // heads'
LATENT = 'config["kv_lora_rank"] + config["qk_rope_head_dim"]'
SLIDES = 'min(tokens, window) if kind == "sliding_attention" else tokens'
RETURNS = "return int(kept * values * bytes_per_value)"

WRONG = {
    Promise.TWICE: {"KeysOnly": {f"2 * {KV_HEADS}": KV_HEADS}},
    Promise.TOKENS: {"OfOneToken": {RETURNS: "return layers * values * bytes_per_value"}},
    Promise.BYTES: {"CountsValues": {RETURNS: "return kept * values"}},
    Promise.LAYERS: {"OfOneLayer": {RETURNS: "return kept // layers * values * bytes_per_value"}},
    Promise.HEADS: {"OneHeadIfNotSaid": {"or heads)": "or 1)"}},
    Promise.KV_HEADS: {
        "EveryHeadItsOwn": {KV_HEADS: "heads"},
        "DividesByKVHeads": {
            SIZE: 'config.get("head_dim") or config["hidden_size"] // '
            '(config.get("num_key_value_heads") or heads)'
        },
    },
    Promise.HEAD_DIM: {"DividesTheHiddenSize": {SIZE: 'config["hidden_size"] // heads'}},
    Promise.FULL: {
        "AWindowForAll": {SLIDES: "min(tokens, window)"},
        "TheOthersSlide": {'== "sliding': '!= "sliding'},
    },
    Promise.SHORT: {"AlwaysAFullWindow": {"min(tokens, window)": "window"}},
    Promise.WINDOW: {
        "NoWindow": {SLIDES: "tokens"},
        "TheFirstLayerForAll": {"for kind in kinds)": "for kind in kinds[:1] * layers)"},
    },
    Promise.LATENT: {
        "AKeyAndAValue": {LATENT: f"2 * ({LATENT})"},
        "WithoutTheRotatedKey": {LATENT: 'config["kv_lora_rank"]'},
        "OneForEachHead": {LATENT: f'config["num_attention_heads"] * ({LATENT})'},
        "NoLatent": {'if config.get("kv_lora_rank"):': "if not config:"},
    },
    Promise.NUMBER: {"InWords": {RETURNS: 'return f"{kept * values * bytes_per_value} bytes"'}},
    CommonPromise.ANSWERS: {
        "ExpectsKVHeads": {KV_HEADS: 'config["num_key_value_heads"]'},
        "NullIsAnEntry": {
            'config.get("num_key_value_heads") or heads': 'config.get("num_key_value_heads", heads)'
        },
    },
}
