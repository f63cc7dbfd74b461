"""Computes codes and scales in numpy, by a search in the table of a format's values, and checks the checksums in
base/fp8_test.cpp, base/scaling_test.cpp and exec/host/kernels/low_precision_test.cpp. Usage: low_precision_reference.py
ROOT. Exits with 1 and a line for every checksum that the tests do not have; without numpy (Debian: python3-numpy) it
says so and exits with 0.
"""
import pathlib
import sys
import zlib

try:
    import numpy as np
except ImportError:
    print("skipped: no numpy (Debian: python3-numpy)")
    sys.exit(0)
np.seterr(all="ignore")
F32 = np.float32
LARGEST = np.finfo(F32).max
# exponent bits, mantissa bits, bias, largest number
FORMATS = {"e4m3": (4, 3, 7, 448), "e5m2": (5, 2, 15, 57344), "e2m1": (2, 1, 1, 6)}


BLOCKS = {"block_128": (1, 128), "block_128x128": (128, 128), "mx": (1, 32), "nv": (1, 16), "nv_16x16": (16, 16)}


def values_of(name):
    """The finite values without a sign, [code]."""
    exponents, mantissas, bias, largest = FORMATS[name]
    values = []
    for code in range(1 << (exponents + mantissas)):
        exponent, mantissa = code >> mantissas, code % (1 << mantissas)
        least = mantissa * 2.0 ** (1 - bias - mantissas)
        values.append(least if exponent == 0 else (1 + mantissa / 2**mantissas) * 2.0 ** (exponent - bias))
    return np.array([value for value in values if value <= largest])


def neighbours(x, name):
    values = values_of(name)
    size = np.minimum(np.where(np.isnan(x), 0, np.abs(x)).astype(np.float64), values[-1])
    low = np.searchsorted(values, size, side="right") - 1
    return values, size, low, np.minimum(low + 1, len(values) - 1)


def with_sign(x, code, name):
    exponents, mantissas = FORMATS[name][:2]
    nan = (1 << (exponents + mantissas)) - 1
    return np.where(np.isnan(x), nan, code | np.signbit(x) << (exponents + mantissas)).astype(np.uint8)


def cast(x, name):
    """To nearest, ties to even, saturating."""
    x = np.asarray(x, F32)
    values, size, low, high = neighbours(x, name)
    middle = (values[low] + values[high]) / 2
    is_up = (size > middle) | ((size == middle) & (low % 2 == 1))
    return with_sign(x, np.where(is_up, high, low), name)


def cast_randomly(x, name, words):
    values, size, low, high = neighbours(x, name)
    share = np.where(high > low, (size - values[low]) / np.where(high > low, values[high] - values[low], 1), 0)
    return with_sign(x, np.where(words / 2.0**32 < share, high, low), name)


def value(code, name):
    exponents, mantissas = FORMATS[name][:2]
    bits = exponents + mantissas
    table = np.append(values_of(name), [np.nan] * (1 << bits))
    return np.where(code >> bits & 1, F32(-1), F32(1)) * table[code & ((1 << bits) - 1)].astype(F32)


def scale_of_amax(amax, name, power_of_two=False):
    scale = np.minimum(F32(FORMATS[name][3]) / amax, LARGEST).astype(F32)
    if power_of_two:
        scale = (scale.view(np.uint32) & np.uint32(0xFF800000)).view(F32)
    return np.where((amax > 0) & np.isfinite(amax), scale, F32(1)).astype(F32)


def delayed(amax, old, name, margin):
    scale = np.minimum(F32(FORMATS[name][3]) / amax / F32(2**margin), LARGEST)
    return np.where((amax > 0) & np.isfinite(amax), scale, F32(old)).astype(F32)


def e8m0(x):
    bits = np.asarray(x, F32).view(np.uint32)
    exponent, mantissa = (bits >> 23 & 255).astype(int), bits & 0x7FFFFF
    up = np.where(exponent == 0, mantissa > 0x400000, mantissa > 0)
    return np.where(np.isnan(x), 255, np.minimum(exponent + up, 254)).astype(np.uint8)


def nv_tensor(amax):
    scale = np.where(amax > 0, F32(448 * 6) / amax, F32(1)).astype(F32)
    scale = np.where(scale > LARGEST, LARGEST, scale).astype(F32)
    return scale * (F32(1) / F32(6)), F32(1) / scale


def nv_block(amax, multiplier, inverse):
    code = cast(amax * multiplier, "e4m3")
    factor = F32(1) / (value(code, "e4m3") * inverse)
    return code, np.where(factor > LARGEST, LARGEST, factor).astype(F32)


def blocked(x, rows, cols):
    """x as [block row, row, block column, column], and the amax of each block, broadcast to it."""
    blocks = x.reshape(x.shape[0] // rows, rows, x.shape[1] // cols, cols)
    return blocks, np.abs(blocks).max((1, 3))


def spread(of_blocks):
    return of_blocks[:, None, :, None]


def block_scaled(x, name, rows, cols):
    blocks, amax = blocked(x, rows, cols)
    scale = scale_of_amax(amax, name, True)
    return cast(blocks * spread(scale), name).reshape(x.shape), F32(1) / scale


def mx(x, name):
    blocks, amax = blocked(x, 1, 32)
    scale = e8m0(amax * (F32(1) / F32(FORMATS[name][3])))
    inverse = np.ldexp(F32(1), 127 - scale.astype(int)).astype(F32)
    return cast(blocks * spread(inverse), name).reshape(x.shape), scale


def nv(x, rows):
    multiplier, inverse = nv_tensor(np.abs(x).max())
    blocks, amax = blocked(x, rows, 16)
    code, factor = nv_block(amax, multiplier, inverse)
    return cast(blocks * spread(factor), "e2m1").reshape(x.shape), code


def hadamard_down(x):
    signs = np.array([1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1], F32)
    matrix = np.array([[1]], F32)
    for _ in range(4):
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    blocks, sums = x.reshape(-1, 16, x.shape[1]), np.zeros((x.shape[0] // 16, 16, x.shape[1]), F32)
    for i in range(16):
        sums = sums + signs[i] * matrix[i][None, :, None] * blocks[:, i : i + 1]
    bits = (sums * F32(0.25)).view(np.uint32)
    bits = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    return (bits & np.uint32(0xFFFF0000)).view(F32).reshape(x.shape)


def hashed(count, seed):
    u = (np.arange(count, dtype=np.uint64) * 2654435761 + seed).astype(np.uint32)
    u = ((u ^ u >> np.uint32(15)).astype(np.uint64) * 2246822519).astype(np.uint32)
    return u ^ u >> np.uint32(13)


def hashed_numbers(rows, cols, seed):
    bits = hashed(rows * cols, seed)
    bits = bits >> np.uint32(31) << np.uint32(15) | (np.uint32(0x3C00) + (bits & np.uint32(0x3FF)))
    return (bits << np.uint32(16)).view(F32).reshape(rows, cols)


def numbers_of(x, scaling, name):
    """Returns the numbers that codes of x, scaled along its rows, stand for, and the tensor's factor."""
    if scaling == "tensor":
        scale = scale_of_amax(np.abs(x).max(), name)
        return value(cast(x * scale, name), name), F32(1) / scale
    rows, cols = BLOCKS[scaling]
    if scaling.startswith("block"):
        codes, factors = block_scaled(x, name, rows, cols)
    elif scaling == "mx":
        codes, scales = mx(x, name)
        factors = np.ldexp(F32(1), scales.astype(int) - 127).astype(F32)
    else:
        codes, scales = nv(x, rows)
        factors = value(scales, "e4m3")
    numbers = value(codes, name).reshape(x.shape[0] // rows, rows, x.shape[1] // cols, cols) * spread(factors)
    return numbers.astype(F32).reshape(x.shape), nv_tensor(np.abs(x).max())[1] if scaling.startswith("nv") else F32(1)


def product(a, b, block):
    """a · bᵀ of pairs of numbers and factors: sums in f32 in order, `block` products at a time, then the factors."""
    total = None
    for begin in range(0, a[0].shape[1], block):
        part = np.zeros((a[0].shape[0], b[0].shape[0]), F32)
        for k in range(begin, min(begin + block, a[0].shape[1])):
            part = part + a[0][:, k, None] * b[0][None, :, k]
        total = part if total is None else total + part
    return total * (a[1] * b[1])


def layer(scaling, of_weights, of_gradients):
    """y = x · Wᵀ, dx = dy · W and dW = dyᵀ · x of a layer with 128 tokens, 256 inputs and 128 outputs."""
    x, w, dy = hashed_numbers(128, 256, 1), hashed_numbers(128, 256, 2), hashed_numbers(128, 128, 3)
    forward = "e2m1" if scaling == "nv" else "e4m3"
    block = 128 if scaling == "block_128" else 1 << 30

    def down(z):
        return np.ascontiguousarray((hadamard_down(z) if scaling == "nv" else z).T)

    w_down = numbers_of(np.ascontiguousarray(w.T), of_weights, forward)
    return [
        product(numbers_of(x, scaling, forward), numbers_of(w, of_weights, forward), block),
        product(numbers_of(dy, scaling, of_gradients), w_down, block),
        product(numbers_of(down(dy), scaling, of_gradients), numbers_of(down(x), scaling, forward), block),
    ]


def checksums():
    """Names of the test files and checksums that they must have."""
    every = (np.arange(65536, dtype=np.uint32) << 16).view(F32)
    amaxes = every[:32768]
    fp8 = {f"codes {name}": cast(every, name) for name in FORMATS}
    fp8["e8m0"] = e8m0(every[:0x7F80])
    fp8["stochastic"] = cast_randomly(every[:0x7F80], "e2m1", hashed(0x7F80, 99))
    scaling = {}
    for name in ("e4m3", "e5m2"):
        scaling[f"current {name}"] = scale_of_amax(amaxes, name)
        scaling[f"powers of two {name}"] = scale_of_amax(amaxes, name, True)
        scaling[f"delayed {name}"] = delayed(amaxes, 3.25, name, 0)
        scaling[f"margin {name}"] = delayed(amaxes, 3.25, name, 3)
        scaling[f"mx {name}"] = e8m0(amaxes * (F32(1) / F32(FORMATS[name][3])))
    scaling["nv multiplier"], scaling["nv inverse"] = nv_tensor(amaxes)
    code, factor = nv_block(amaxes, *nv_tensor(F32(5.5)))
    scaling["nv block"], scaling["nv factor"] = code, factor[:0x7F81]

    bits = hashed(256 * 512, 12345)
    bits = bits >> np.uint32(31) << np.uint32(15) | (np.uint32(0x3C00) + (bits & np.uint32(0x3FF)))
    x = (bits << np.uint32(16)).view(F32).reshape(256, 512)
    kernels = {}
    for side, of in (("", x), (" transposed", np.ascontiguousarray(x.T))):
        for name in ("e4m3", "e5m2"):
            if side == "" or name == "e4m3":
                kernels[f"tensor {name}{side}"] = cast(of * scale_of_amax(np.abs(of).max(), name), name)
            both = block_scaled(of, name, 1, 128)
            kernels[f"block {name}{side}"], kernels[f"scales of block {name}{side}"] = both
        kernels[f"mx{side}"], kernels[f"scales of mx{side}"] = mx(of, "e4m3")
        kernels[f"nv{side}"], kernels[f"scales of nv{side}"] = nv(of, 1)
    kernels["squares"], kernels["scales of squares"] = block_scaled(x, "e4m3", 128, 128)
    kernels["nv squares"], kernels["scales of nv squares"] = nv(x, 16)
    for of_rows, *others in (
        ("tensor", "tensor", "e5m2"),
        ("block_128", "block_128x128", "e4m3"),
        ("mx", "mx", "e5m2"),
        ("nv", "nv_16x16", "e2m1"),
    ):
        for direction, result in zip(("forward", "dgrad", "wgrad"), layer(of_rows, *others)):
            kernels[f"{direction} of {of_rows}"] = result
    turned = np.ascontiguousarray(hadamard_down(x).T)
    kernels["hadamard"], kernels["nv hadamard"] = turned, nv(turned, 1)[0]
    return {
        "base/fp8_test.cpp": fp8,
        "base/scaling_test.cpp": scaling,
        "exec/host/kernels/low_precision_test.cpp": kernels,
    }


wrong = 0
for file, arrays in checksums().items():
    text = (pathlib.Path(sys.argv[1]) / file).read_text()
    for name, array in arrays.items():
        digits = "0x%08x" % zlib.crc32(np.ascontiguousarray(array).tobytes())
        if digits not in text:
            wrong += 1
            print(f"{file}: {name}: expected the checksum {digits}, which the test does not have")
sys.exit(1 if wrong else 0)
