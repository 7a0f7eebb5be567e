"""Int8 weights, and projections: packed or in tiles, in any precision, the same product."""

import threading

import pytest
import torch
from torch.nn import functional as F

from engine.models import layers as linear
from engine.models import products
from engine.models.layers import Embedding, Linear
from engine.models.products import product, rounded_int8_product
from engine.models.weights.matrix import Int8Matrix, equal

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture
def weight():
    torch.manual_seed(0)
    weight = torch.randn(24, 40) * torch.logspace(-3, 1, 24)[:, None]
    weight[5] = 0
    return weight


def test_a_value_moves_by_half_a_step_of_its_row_at_most(weight):
    matrix = Int8Matrix.quantize(weight, torch.float32)
    assert matrix.values.dtype == torch.int8
    assert matrix.shape == (24, 40)
    step = weight.abs().amax(dim=1, keepdim=True) / 127
    assert ((matrix.dequantize() - weight).abs() <= step * 0.5001).all()
    torch.testing.assert_close(matrix.dequantize().abs().amax(dim=1), weight.abs().amax(dim=1))


def test_int8_values_and_a_row_of_zeros_are_kept_exactly(weight):
    weight = (torch.arange(24 * 40) % 255 - 127.0).reshape(24, 40)
    weight[:, 0], weight[3] = 127, 0
    assert Int8Matrix.quantize(weight, torch.float32).dequantize().equal(weight)


def test_matrices_are_equal_if_kind_and_values_are(weight):
    matrix = Int8Matrix.quantize(weight, torch.float32)
    assert equal(matrix, Int8Matrix.quantize(weight.clone(), torch.float32))
    assert equal(weight, weight.clone())
    assert not equal(matrix, Int8Matrix.quantize(-weight, torch.float32))
    assert not equal(matrix, Int8Matrix.quantize(2 * weight, torch.float32))
    assert not equal(matrix, matrix.dequantize())
    assert not equal(matrix.dequantize(), matrix)
    assert not equal(weight, weight + 1)


def test_rows_may_be_filled_in_chunks(weight):
    matrix = Int8Matrix.empty(24, 40, dtype=torch.float32)
    for first in range(0, 24, 7):
        matrix[first : first + 7] = weight[first : first + 7]
    whole = Int8Matrix.quantize(weight, torch.float32)
    assert matrix.values.equal(whole.values)
    assert matrix.scales.equal(whole.scales)
    assert matrix[7:14].dequantize().equal(whole.dequantize()[7:14])


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_embedding_returns_the_matrix_rows_in_the_models_precision(weight, dtype):
    ids = torch.tensor([3, 0, 3, 23, 5])
    matrix = Int8Matrix.quantize(weight, dtype)
    rows = Embedding(matrix)(ids)
    assert rows.dtype == dtype
    assert rows.equal(matrix.dequantize()[ids])
    assert Embedding(weight)(ids).equal(weight[ids])


TOKENS = [1, 2, 3, 4, 7, 8, 9, 13, 31, 33, 40, 101]
MANY = 48  # stands for products._MANY_TOKENS


def drawn(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.manual_seed(5)).to(dtype)


def exact(x, weight, bias=None):
    return F.linear(x.double(), weight.double(), None if bias is None else bias.double())


@pytest.fixture
def small_tiles(monkeypatch):
    """A matrix of 40 rows takes several tiles, and the last one is smaller."""
    monkeypatch.setattr(products, "_TILE", 7 * 24)
    monkeypatch.setattr(products, "_LARGE_TILE", 11 * 24)
    monkeypatch.setattr(products, "_MANY_TOKENS", MANY)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("bias", [None, drawn(40)], ids=["without bias", "with bias"])
@pytest.mark.parametrize("tokens", TOKENS)
def test_any_number_of_tokens_gives_the_plain_product(
    tokens, bias, packed, small_tiles, monkeypatch
):
    if not packed:
        monkeypatch.setattr(linear, "_CAN_PACK", False)
    weight, x = drawn(40, 24), drawn(tokens, 24)
    before = x.clone()
    y = Linear(weight, bias)(x)
    torch.testing.assert_close(y.double(), exact(x, weight, bias), atol=1e-5, rtol=1e-5)
    assert y.is_contiguous()
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int8])
@pytest.mark.parametrize("tokens", TOKENS)
def test_products_are_exact_in_the_values_of_the_weights(tokens, dtype, small_tiles):
    """Only a single token is rounded, and only with weights in half precision."""
    weight, x = (20 * drawn(40, 24)).to(dtype), drawn(tokens, 24)
    y = product(x, weight)
    rounded = tokens == 1 and dtype != torch.int8
    if rounded:
        x = x.to(dtype)
    accuracy = 4 * torch.finfo(dtype).eps if rounded else 1e-6
    assert y.dtype == torch.float32
    torch.testing.assert_close(y.double(), exact(x, weight), atol=200 * accuracy, rtol=accuracy)


def test_half_precision_activations_get_torchs_own_product():
    half, x = drawn(40, 24, dtype=torch.bfloat16), drawn(8, 24, dtype=torch.bfloat16)
    assert torch.equal(Linear(half)(x), F.linear(x, half))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens", TOKENS)
def test_a_product_with_int8_weights_is_rounded_only_for_a_few_tokens(tokens, dtype):
    weight, x, bias = drawn(40, 64), drawn(tokens, 64), drawn(40)
    matrix = Int8Matrix.quantize(weight, dtype)
    expected = exact(x, matrix.values * matrix.scales[:, None].double(), bias)
    error = (Linear(matrix, bias)(x) - expected).norm() / expected.norm()
    assert error < (5e-3 if rounded_int8_product(x, matrix.values) is not None else 1e-6)


def test_the_kernel_for_int8_is_used_only_where_it_is_faster_and_safe():
    values = drawn(40, 64).to(torch.int8)
    assert rounded_int8_product(drawn(4, 64), values) is not None
    assert rounded_int8_product(drawn(5, 64), values) is None
    assert rounded_int8_product(drawn(4, 40), values[:, :40].contiguous()) is None


def test_threads_convert_tiles_in_buffers_of_their_own():
    tile, other = drawn(4, 4, dtype=torch.float16), drawn(4, 4, dtype=torch.bfloat16)
    converted = products._widened(tile)
    thread = threading.Thread(target=products._widened, args=[-other])
    thread.start()
    thread.join()
    assert torch.equal(converted, tile.float())
    with torch.inference_mode():
        products._widened(drawn(300, 300, dtype=torch.float16))  # a larger buffer
    assert torch.equal(products._widened(other), other.float())
