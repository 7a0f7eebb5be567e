"""Which product is the fastest, for each shape and number of tokens: measured once on each machine.

A product that wins on one CPU loses on the next. On an AMD EPYC with AVX2, packed weights take half the
time of `F.linear` for 8 tokens of the bundled model; on one with AVX-512, they take longer, except for
large matrices, where they take half the time again. So the candidates of `products.py` are
timed when a model is loaded, which takes less than a second, and the times are kept:

    ~/.cache/underglass/kernels.json    machine -> weights and shape -> product -> microseconds for
                                        1, 2, 4, ... 256 tokens

The choice is fixed while a model is loaded and, thanks to the file, from one run to the next. Times of
a busy machine mislead, so they serve one process and are not kept. All candidates compute the same up
to rounding. The environment variable UNDERGLASS_KERNELS fixes the choice instead: it names a product,
which is used wherever it exists; elsewhere, it is `linear`.

Two products keep the weights in a form of their own, `packed` and `half`. A small matrix may have such
a copy beside its plain form. A large one has it only if that is faster for most numbers of tokens and
not much slower for a single one, and is then kept in that form alone.

Int8 matrices have products of their own (`integer_products.py`), among which the choice is the same.

Differs from vLLM, where a GPU's kernels are chosen by its capabilities and by tables that are part of
the source (`vllm/model_executor/layers/fused_moe/configs/`); Triton and torch.compile tune at run time.
"""

import json
import math
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from engine.core.compute.device import activation_dtype, dtype_name
from engine.core.config import ConfigError
from engine.models.integer_products import INTEGER_PRODUCTS
from engine.models.products import PRODUCTS, Product

ENVIRONMENT_VARIABLE = "UNDERGLASS_KERNELS"
TOKENS = [
    2**n for n in range(9)
]  # a product of other numbers of tokens is chosen like the next of them

Times = dict[str, list[float]]  # product -> microseconds for each of TOKENS

_MEASURED = "measured"
_FORMS = ("packed", "half")  # products that keep the weights in a form of their own
_FEW_TOKENS, _DECODED = 8, 32  # in an expert's matrix; in others, as most steps decode
_FEW_VALUES = 2**15  # a smaller matrix is not worth measuring
_MAX_COPIED = 2**19  # values of a matrix that may be held twice
_BETTER = (
    0.9  # share of `linear`'s time that another product must reach, so that noise does not choose
)
_FORM_PAYS = 0.9  # its time over that of the plain form on average, for a large matrix
_SINGLE_TOKEN = 1.1  # how much slower a single token may become by it
_ROUNDS = 2
# Bytes of the matrices that are measured together: more than the cache of one core, and of all cores.
_SMALL_MODEL, _LARGE_MODEL = 2**23, 2**25


def kernel_index(tokens: int) -> int:
    """Return the index of the first of TOKENS that is not less than `tokens`, or of the last."""
    return min((tokens - 1).bit_length(), len(TOKENS) - 1)


class Choice(NamedTuple):
    """The products of a matrix for each of TOKENS, and their names."""

    products: tuple[Product, ...]
    names: tuple[str, ...]


def choose(
    weight: Tensor, bias: Tensor | None, *, few_tokens: bool = False, may_replace: bool = True
) -> Choice:
    """Return the products for a matrix on a CPU.

    weight       [out, in], of a floating-point type or int8
    bias         [out], or None, as it must be for int8
    few_tokens   the matrix seldom gets more than a few tokens, so a second copy would not pay
    may_replace  the caller drops `weight`, so that another form may take its place

    Raises ConfigError if the environment variable names no product.
    """
    made: dict[str, Product | None] = {}
    names: tuple[str, ...] = ("linear",)
    while not all(made.get(name) for name in names):
        lacking = {name for name in made if made[name] is None}
        names = _names(weight, lacking, few_tokens=few_tokens, may_replace=may_replace)
        made |= {name: _make(name, weight, bias) for name in {*names} - made.keys()}
    for notes in _notes:
        notes[_key(weight)] = _summary(names)
    return Choice(tuple(product for name in names if (product := made[name])), names)


def _make(name: str, weight: Tensor, bias: Tensor | None = None) -> Product | None:
    """Return the product of this name, or None if there is none for the matrix."""
    if weight.dtype == torch.int8:
        make = INTEGER_PRODUCTS.get(name)
        return make(weight) if make else None
    return PRODUCTS[name](weight, bias, _activations(weight.dtype))


def _activations(weights: torch.dtype) -> torch.dtype:
    integers = weights == torch.int8
    return torch.float32 if integers else activation_dtype(weights, torch.device("cpu"))


def _names(
    weight: Tensor, lacking: set[str], *, few_tokens: bool, may_replace: bool
) -> tuple[str, ...]:
    """Return the name of the product for each of TOKENS, of those that the matrix does not lack."""
    may_copy = weight.numel() <= _MAX_COPIED and not few_tokens
    fixed = os.environ.get(ENVIRONMENT_VARIABLE) or _MEASURED
    if fixed not in (_MEASURED, *PRODUCTS):
        raise ConfigError(
            f"{ENVIRONMENT_VARIABLE} must be {_MEASURED} or one of {', '.join(PRODUCTS)}, got {fixed!r}"
        )
    if fixed != _MEASURED:
        usable = fixed not in lacking and (fixed not in _FORMS or may_copy or may_replace)
        return (fixed if usable else "linear",) * len(TOKENS)
    if weight.numel() < _FEW_VALUES:
        return ("linear",) * len(TOKENS)
    times = {name: each for name, each in _table.times(weight).items() if name not in lacking}
    plain = {name: each for name, each in times.items() if name not in _FORMS}
    names = _fastest(times if may_copy else plain)
    if may_copy or not may_replace:
        return names
    best = [plain[name][n] for n, name in enumerate(names)]
    last = kernel_index(_FEW_TOKENS if few_tokens else _DECODED)
    gains: dict[str, float] = {}  # the form -> its share of the plain form's time
    for form in times.keys() - plain.keys():
        ratios = [one / other for one, other in zip(times[form], best, strict=True)][: last + 1]
        if ratios[0] < _SINGLE_TOKEN:
            gains[form] = math.prod(ratios) ** (1 / len(ratios))
    form = min(gains, key=gains.__getitem__, default="")
    return (form,) * len(TOKENS) if gains.get(form, 1) < _FORM_PAYS else names


def _fastest(times: Times) -> tuple[str, ...]:
    names: list[str] = []
    for n, plain in enumerate(times["linear"]):
        best = min(times, key=lambda name: times[name][n])
        names.append(best if times[best][n] < _BETTER * plain else "linear")
    return tuple(names)


class _Table:
    """The times that were measured on this machine, in memory and in the user's cache folder."""

    def __init__(self) -> None:
        self._times: dict[str, Times] | None = None

    def times(self, weight: Tensor) -> Times:
        """Return the times for a matrix of this type and shape. They are measured if there are none."""
        if self._times is None:
            self._times = self._read().get(_machine(), {})
        key = _key(weight)
        if key not in self._times:
            self._times[key] = measure(weight.shape, weight.dtype)
            if _is_quiet():
                self._save()
        return self._times[key]

    def _read(self) -> dict[str, dict[str, Times]]:
        """Return the file's contents; a file that is missing or damaged counts as empty."""
        try:
            machines = json.loads(_file().read_text(encoding="utf-8"))
            for table in machines.values():
                for times in table.values():
                    assert "linear" in times
                    assert all(len(each) == len(TOKENS) for each in times.values())
                    assert all(isinstance(one, float) for each in times.values() for one in each)
        except (OSError, ValueError, AttributeError, TypeError, AssertionError):
            return {}
        return dict(machines)

    def _save(self) -> None:
        """Add the times to the file, atomically. A folder that cannot be written is no error."""
        file = _file()
        with suppress(OSError):
            machines = self._read()  # another process may have written since
            machines[_machine()] = machines.get(_machine(), {}) | (self._times or {})
            file.parent.mkdir(parents=True, exist_ok=True)
            partial = file.with_suffix(f".{os.getpid()}")
            partial.write_text(json.dumps(machines, indent=1), encoding="utf-8")
            partial.replace(file)


_table = _Table()
_notes: list[dict[str, str]] = []  # of each enclosing `noted`


@contextmanager
def noted() -> Iterator[Mapping[str, str]]:
    """Collect what is chosen within this block: "float32 320x192" -> "linear to 8, packed"."""
    notes: dict[str, str] = {}
    _notes.append(notes)
    try:
        yield notes
    finally:
        _notes.remove(notes)


def measure(shape: torch.Size, dtype: torch.dtype) -> Times:
    """Time every product for matrices of this shape, or for some of their rows if they are large.

    A step multiplies by each matrix of a model once, so the cache that holds the previous matrices does
    not hold the next one. Several matrices in turns imitate that. With a single one, other products
    would win.
    """
    size = _SMALL_MODEL if shape.numel() <= _MAX_COPIED else _LARGE_MODEL
    decoded = kernel_index(_DECODED) + 1
    few = _measure(shape, dtype, size // dtype.itemsize, TOKENS[:decoded])
    many = _measure(shape, dtype, _MAX_COPIED, TOKENS[decoded:])  # arithmetic is the limit
    return {name: few[name] + many[name] for name in few}


def _measure(shape: torch.Size, dtype: torch.dtype, values: int, counts: list[int]) -> Times:
    """Time products of these numbers of tokens, with matrices of so many values together."""
    activations = _activations(dtype)
    # A value that every type holds; for others, some products would not exist.
    value = 1 if dtype == torch.int8 else 0.5**7
    rows = min(shape[0], max(1, values // shape[1]))
    weights = [
        torch.full((rows, shape[1]), value, dtype=dtype)
        for _ in range(max(1, values // (rows * shape[1])))
    ]
    products: dict[str, list[Product]] = {}
    for name in PRODUCTS:
        same = [product for weight in weights if (product := _make(name, weight))]
        with suppress(RuntimeError):  # oneDNN, for a type that this CPU cannot multiply
            for product in same[:1]:
                product(torch.zeros(1, shape[1], dtype=activations))
                products[name] = same
    scale = 1e6 * shape[0] / rows / len(weights)
    times: Times = {name: [] for name in products}
    for tokens in counts:
        x = torch.full((tokens, shape[1]), value, dtype=activations)
        for name, seconds in _least_seconds(products, x).items():
            times[name].append(round(seconds * scale, 2))
    return times


def _least_seconds(products: Mapping[str, list[Product]], x: Tensor) -> dict[str, float]:
    """Return for each kind the least seconds of all its products, which are called in turns."""
    # The thread's own CPU time is blind to other threads, but also to other processes.
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    least = dict.fromkeys(products, math.inf)
    for name in least:
        products[name][0](x)  # the first call compiles
    for _ in range(_ROUNDS):
        for name, seconds in least.items():
            start = clock()
            for product in products[name]:
                product(x)
            least[name] = min(seconds, clock() - start)
    return least


def _is_quiet() -> bool:
    """Return whether a core was free in the last minute. Windows does not tell, and counts as quiet."""
    return not hasattr(os, "getloadavg") or os.getloadavg()[0] < (os.cpu_count() or 1)


def _machine() -> str:
    """Return what the times depend on: the CPU, torch, its number of threads, and the products."""
    capabilities: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    features = sorted(name for name, present in capabilities.items() if present is True)
    cpu = capabilities.get("cpu_name") or platform.processor() or platform.machine()
    threads = f"{torch.get_num_threads()} threads"
    facts = (cpu, " ".join(features), f"torch {torch.__version__}", threads, " ".join(PRODUCTS))
    return "; ".join(map(str, facts))


def _file() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "underglass" / "kernels.json"


def _key(weight: Tensor) -> str:
    rows, columns = weight.shape
    return f"{dtype_name(weight.dtype)} {rows}x{columns}"


def _summary(names: tuple[str, ...]) -> str:
    """Return "linear to 8, packed": each product with the largest number of tokens that it gets."""
    last = {n: name for n, name in enumerate(names) if names[n + 1 : n + 2] != (name,)}
    parts = [f"{name} to {TOKENS[n]}" for n, name in last.items()]
    return ", ".join([*parts[:-1], names[-1]])
