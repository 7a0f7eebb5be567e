"""Build a tokenizer from a SentencePiece vocabulary: Llama 2, Mistral 7B, Gemma, Phi-3.

SentencePiece's BPE has no list of merges. It joins the two neighbours whose union is the token with the
highest score, the leftmost ones first, until no union is a token. So each way to write a token as two
others is a merge, ranked by the token's score.

Source: `bpe_model.cc` in SentencePiece; llama.cpp's `llm_tokenizer_spm`.

Differs from SentencePiece in two things. If several pairs have the same score, SentencePiece joins the
leftmost one, and the `tokenizers` library joins the first in the list of merges; the list begins with
the longer left token, so both agree in a run of spaces. And `prefix_space` adds a space after
user-defined tokens, too, as llama.cpp and transformers do.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers
from gguf import TokenType
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from engine.models.text.sentencepiece_model import SentencePieceModel, read_sentencepiece

SPACE = "▁"
SPECIAL = (TokenType.UNKNOWN, TokenType.CONTROL)


def read_sentencepiece_directory(
    file: Path, settings: dict[str, Any]
) -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
    """Return the tokenizer of a tokenizer.model, and the settings beside it, completed.

    `settings` is the content of tokenizer_config.json. It adds tokens (`added_tokens_decoder`) and may
    override what the model says (`add_prefix_space`, `legacy`, `bos_token`, `eos_token`). As in
    transformers, the BOS token is prepended unless `add_bos_token` is false. Raises ValueError.
    """
    model = read_sentencepiece(file, prefix_after_special=settings.get("legacy") is not False)
    if settings.get("add_prefix_space") is not None:
        model = replace(model, prefix_space=settings["add_prefix_space"])
    added = {int(id_): token for id_, token in settings.get("added_tokens_decoder", {}).items()}
    special = {token["content"] for token in added.values() if token.get("special")}
    types = [
        TokenType.CONTROL if piece in special else type_
        for piece, type_ in zip(model.pieces, model.types, strict=True)
    ]
    strips = {token["content"] for token in added.values() if token.get("rstrip")}
    tokenizer = build_sentencepiece(replace(model, types=types, strips_after=strips))
    for id_, token in sorted(added.items()):
        flags = ("lstrip", "rstrip", "single_word", "normalized", "special")
        known = {flag: token[flag] for flag in flags if flag in token}
        tokenizer.add_tokens([tokenizers.AddedToken(token["content"], **known)])
        if tokenizer.token_to_id(token["content"]) != id_:
            raise ValueError(
                f"tokenizer_config.json gives {token['content']!r} the id {id_}, but the next id after "
                f"tokenizer.model is {tokenizer.token_to_id(token['content'])}"
            )
    ids = {"bos_token": model.bos_id, "eos_token": model.eos_id}
    found = {name: model.pieces[id_] for name, id_ in ids.items() if id_ is not None}
    return tokenizer, {"add_bos_token": True} | found | settings


def build_sentencepiece(model: SentencePieceModel) -> tokenizers.Tokenizer:
    """Return the tokenizer of a SentencePiece model; it prepends no BOS token."""
    tokenizer = tokenizers.Tokenizer(_bpe(model))
    steps: list[Any] = []
    if model.charsmap:
        steps.append(normalizers.Precompiled(model.charsmap))
    if model.collapse_spaces:
        steps += [
            normalizers.Replace(Regex(r"\A +| +\z"), ""),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    if model.prefix_space and model.prefix_after_special:
        steps.append(normalizers.Prepend(SPACE))
    steps.append(normalizers.Replace(" ", SPACE))
    tokenizer.normalizer = normalizers.Sequence(steps)
    if model.prefix_space and not model.prefix_after_special:
        # As in transformers: a text that begins with a space gets no second one.
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
            replacement=SPACE, prepend_scheme="first", split=False
        )
    tokenizer.add_tokens(
        [
            # SentencePiece finds user-defined pieces in the normalized text. The library would
            # prepend a space to them, too, so with `prefix_space` it looks for them in the raw text.
            tokenizers.AddedToken(
                piece,
                rstrip=piece in model.strips_after,
                special=type_ != TokenType.USER_DEFINED,
                normalized=type_ == TokenType.USER_DEFINED and not model.prefix_space,
            )
            for piece, type_ in zip(model.pieces, model.types, strict=True)
            if type_ in (*SPECIAL, TokenType.USER_DEFINED)
        ]
    )
    parts: list[Any] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if model.prefix_space:
        parts.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(parts)
    return tokenizer


def _bpe(model: SentencePieceModel) -> models.BPE:
    vocabulary = {piece: id_ for id_, piece in enumerate(model.pieces)}
    return models.BPE(
        vocabulary,
        merges_of(model),
        unk_token=model.pieces[model.unk_id],
        fuse_unk=True,
        byte_fallback=model.byte_fallback,
    )


def merges_of(model: SentencePieceModel) -> list[tuple[str, str]]:
    """Return all pairs of tokens that join to a token, the ones to join first at the front."""
    scores = {
        piece: score
        for piece, score, type_ in zip(model.pieces, model.scores, model.types, strict=True)
        if type_ == TokenType.NORMAL
    }
    ranked = [
        (-score, -cut, piece)
        for piece, score in scores.items()
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]
    ranked.sort()
    return [(piece[:-minus_cut], piece[-minus_cut:]) for _, minus_cut, piece in ranked]
