"""The patterns that split text before byte-level BPE merges within each part.

A tokenizer.json holds its patterns; a GGUF file only names them (`tokenizer.ggml.pre`). Names and flags
are those of llama.cpp (`llama-vocab.cpp`), the patterns those of the models' tokenizer.json files.
Where a name has several patterns, each one splits the parts that the previous one left.
"""

from dataclasses import dataclass

import tokenizers
from tokenizers import pre_tokenizers


@dataclass(frozen=True, slots=True)
class Splits:
    """How one family of models splits text.

    patterns     the regular expressions; a match and the text between two matches become parts
    whole_words  a part that is a token stays whole, even if merging would not produce it
    adds_bos     a prompt begins with the BOS token unless the file says otherwise
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    adds_bos: bool = False

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        """Return the splits as the `tokenizers` library wants them, bytes as characters."""
        steps: list[pre_tokenizers.PreTokenizer] = [
            pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated")
            for pattern in self.patterns
        ]
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        return pre_tokenizers.Sequence(steps)


def _words(letters: str, digits: str, *, contractions: str = "", newlines: str = r"\r\n") -> str:
    """Return the pattern that most models since GPT-4 share, with their differences."""
    return (
        rf"{contractions}{letters}|\p{{N}}{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[{newlines}]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


_SUFFIX = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"  # English contractions
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
# "camelCase" becomes two parts: upper-case letters only begin one.
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = r"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{end}|[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{end}"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_GPT4 = _words(_LETTERS, "{1,3}", contractions=_SUFFIX + "|")
_QWEN2 = _words(_LETTERS, "", contractions=_SUFFIX + "|")
_QWEN35 = (
    rf"{_SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT4O = _words(
    _CASED.format(upper=_UPPER, lower=_LOWER, end=_SUFFIX + "?"), "{1,3}", newlines=r"\r\n/"
)
_TEKKEN = _words(_CASED.format(upper=_UPPER, lower=_LOWER, end=""), "", newlines=r"\r\n/")
_DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_FAMILIES = {
    "gpt-2 phi-2 gigachat mellum a.x-4.0 exaone4 olmo mpt jais trillion": Splits((_GPT2,)),
    "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2": Splits(
        (r"\p{N}", _GPT2)
    ),
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2": Splits(
        (_GPT4,), whole_words=True, adds_bos=True
    ),
    "dbrx smaug-bpe glm4 chatglm-bpe": Splits((_GPT4,)),
    "qwen2 deepseek-r1-qwen megrez stablelm2 hunyuan solar-open grok-2": Splits((_QWEN2,)),
    "qwen35": Splits((_QWEN35,)),
    "gpt-4o llama4 kanana2 minimax-m2": Splits((_GPT4O,)),
    "tekken": Splits((_TEKKEN,), whole_words=True, adds_bos=True),
    "deepseek-v3 hunyuan-dense": Splits((r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK3)),
    "default": Splits((r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
}
SPLITS = {name: splits for names, splits in _FAMILIES.items() for name in names.split()}
