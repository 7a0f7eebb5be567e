"""Int8 weights, and every way to multiply: in any precision, the same product."""

import threading

import pytest
import torch
from torch.nn import functional as F

from engine.models import integer_products, products
from engine.models.kernels import ENVIRONMENT_VARIABLE
from engine.models.layers import Linear, row_lookup
from engine.models.products import PRODUCTS
from engine.models.weights.gguf_blocks import Groups
from engine.models.weights.int4_matrix import Int4Matrix, int4_bytes
from engine.models.weights.matrix import Int8Matrix, MixedMatrix, equal

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


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_embedding_returns_the_matrix_rows_in_the_models_precision(weight, dtype):
    ids = torch.tensor([3, 0, 3, 23, 5])
    matrix = Int8Matrix.quantize(weight, dtype)
    rows = row_lookup(matrix)(ids)
    assert rows.dtype == dtype
    assert rows.equal(matrix.dequantize()[ids])
    assert row_lookup(weight)(ids).equal(weight[ids])


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


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("stored", DTYPES)
@pytest.mark.parametrize("activations", DTYPES)
@pytest.mark.parametrize("bias", [None, drawn(40)], ids=["without bias", "with bias"])
def test_every_product_gives_the_plain_one(name, stored, activations, bias, small_tiles):
    weight = drawn(40, 24).to(stored)
    bias = None if bias is None else bias.to(stored)
    product = PRODUCTS[name](weight, bias, activations)
    if product is None:
        assert name != "linear"
        return
    exact_weights = stored == torch.float32 or name in ("tiles", "half")
    exact_weights &= activations == torch.float32
    accuracy = 1e-5 if exact_weights else 4 * max(torch.finfo(t).eps for t in (stored, activations))
    for tokens in TOKENS:
        x = drawn(tokens, 24).to(activations)
        before = x.clone()
        try:
            y = product(x)
        except RuntimeError:  # oneDNN, in a type that this CPU cannot multiply; not chosen, either
            assert (name, stored) == ("packed", torch.bfloat16)
            return
        assert (y.dtype, y.is_contiguous()) == (activations, True)
        wanted = exact(x, weight, bias)
        torch.testing.assert_close(y.double(), wanted, atol=20 * accuracy, rtol=accuracy)
        assert torch.equal(x, before)


def test_weights_that_float16_holds_but_for_a_power_of_two_are_exact():
    held = 2.0 ** torch.arange(-20, 0)[:, None] * drawn(20, 32, dtype=torch.bfloat16).float()
    for weight in (held, 1e9 * held.bfloat16(), 2.0**-40 * held, held.half(), torch.zeros(4, 32)):
        product = PRODUCTS["half"](weight, None, torch.float32)
        if products.HAS_FBGEMM:
            assert torch.equal(product(torch.eye(32)), weight.float().t())
    for weight in (drawn(20, 32), held / 3, held / 0):
        assert PRODUCTS["half"](weight, None, torch.float32) is None


SATURATES = integer_products._saturates()


@pytest.fixture(params=["exact", "split", "rounded", "packed"])
def kernel(request, monkeypatch):
    """What machines with VNNI compute, older ones, those without oneDNN, and FBGEMM."""
    fixed = "packed" if request.param == "packed" else "linear"
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, fixed)
    monkeypatch.setattr(integer_products, "_saturates", lambda: request.param == "split")
    monkeypatch.setattr(integer_products, "HAS_ONEDNN", request.param != "rounded")
    return request.param


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_int8_product_is_that_of_the_rounded_factors(dtype, kernel):
    if kernel == "exact" and SATURATES:
        pytest.skip("this processor needs the other kernel")
    weight, x, bias = drawn(40, 96), drawn(256, 96, dtype=dtype), drawn(40)
    x[0], weight[0], x[3], x[1] = 1, 1, 0, 1e3 * x[1]
    matrix, rows = Int8Matrix.quantize(weight, dtype), Int8Matrix.quantize(x, torch.float32)
    y = Linear(matrix, bias.to(dtype))(x)
    expected = exact(rows.dequantize(), matrix.values * matrix.scales[:, None].double(), bias)
    accuracy = max(1e-6, torch.finfo(dtype).eps, 4e-3 if kernel == "rounded" else 0)
    assert y.dtype == dtype
    torch.testing.assert_close(y.double(), expected, atol=20 * accuracy, rtol=accuracy)
    # What rounding both factors costs.
    plain = exact(x[4:], weight)
    assert (expected[4:] - bias - plain).norm() / plain.norm() < 0.011


def an_int4_matrix(rows, columns):
    """A matrix that was filled in two parts, and its weights: its scales are exact in bfloat16."""
    levels = torch.randint(16, (rows, columns // 32, 32)).to(torch.uint8)
    groups = Groups(levels, drawn(rows, columns // 32, 1, dtype=torch.bfloat16).float(), None)
    matrix = Int4Matrix.empty(rows, columns)
    for part in (slice(0, 64), slice(64, rows)):
        matrix.fill(part, Groups(levels[part], groups.scales[part], None))
    return matrix, groups.dequantize()


def test_a_row_of_a_quantized_product_has_the_same_bits_in_any_batch(kernel):
    int8, x = Int8Matrix.quantize(drawn(72, 320), torch.float32), drawn(256, 320)
    project = Linear(MixedMatrix((int8, an_int4_matrix(192, 320)[0])))
    whole = project(x)
    for tokens in (1, 2, 3, 4, 5, 8, 32, 255):
        assert torch.equal(project(x[-tokens:]), whole[-tokens:])


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_int4_product_is_rounded_to_bfloat16(dtype):
    (matrix, weight), x, bias = an_int4_matrix(192, 96), drawn(9, 96, dtype=dtype), drawn(192)
    y, expected = Linear(matrix, bias.to(dtype))(x), exact(x, weight, bias)
    assert matrix[64:].nbytes == matrix.nbytes * 2 / 3 == int4_bytes(128 * 96)
    assert y.dtype == dtype
    assert (y - expected).norm() < 0.005 * expected.norm()


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
