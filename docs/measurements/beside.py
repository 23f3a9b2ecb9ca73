#!/usr/bin/env python3
"""Results of one GPU beside those of another, emulated or not, on the same operands; wants numpy.

    beside.py make DIR                 writes a case each: DIR/NAME.safetensors, the same every time
    beside.py compare DIR ONE OTHER    reads DIR/NAME.ONE.*.safetensors and DIR/NAME.OTHER.*.safetensors, which
                                       `warpsmith run --untimed --operands … --c f32 --out …` writes; a table

A difference is in units of 2^-24 of the sum of magnitudes: of a product Σ|a||b|, times |α|; of silu(g)·u with the sums G of g
and U of u, 1.1·G·|u| + |silu(g)|·U, as no slope of silu is above 1.1.
"""
import json
import pathlib
import sys

import numpy as np

# Rows of each group, N, K.
CASES = {
    "gemm-5": (1, (80, 0, 37, 129, 54), 272, 704),
    "gemm-4": (1, (16, 1, 0, 64), 320, 1088),
    "gemm-8": (1, (1, 0, 8, 2, 5, 0, 16, 3), 256, 512),
    "dual-5": (2, (100, 3, 0, 70, 127), 272, 704),
    "dual-3": (2, (256, 0, 44), 400, 640),
    "dual-8": (2, (1, 0, 8, 2, 5, 0, 16, 3), 256, 512),
}
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
DTYPES = {"U8": np.uint8, "F8_E4M3": np.uint8, "F32": np.float32, "I64": np.int64}


def write(path, tensors):
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        part = array.astype(DTYPES[dtype]).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def read(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, tensor in json.loads(data[8 : 8 + length]).items():
        begin, end = (8 + length + at for at in tensor["data_offsets"])
        tensors[name] = np.frombuffer(data[begin:end], DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
    return tensors


def make(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, (products, rows, n, k)) in enumerate(CASES.items()):
        rng = np.random.default_rng(seed)
        groups = len(rows)
        tensors = {"offsets": ("I64", np.cumsum((0,) + rows))}

        def matrix(name, *shape):
            # Every code; scales of every magnitude, without NaN.
            tensors[name] = ("U8", rng.integers(0, 256, (*shape, k // 2)))
            tensors[f"{name}_scale"] = ("F8_E4M3", rng.integers(0, 0x7F, (*shape, k // 16)))

        matrix("a", sum(rows))
        for number in [""] if products == 1 else ["1", "2"]:
            matrix(f"b{number}", groups, n)
            tensors[f"alpha{number}"] = ("F32", rng.uniform(0.5, 2.0, groups) * 2.0**-20)
        write(folder / f"{name}.safetensors", tensors)


def values(tensors, name):
    codes, scales = tensors[name], tensors[f"{name}_scale"]
    elements = E2M1[np.stack([codes & 15, codes >> 4], -1)].reshape(*codes.shape[:-1], -1)
    exponent, fraction = (scales >> 3 & 15).astype(int), (scales & 7) / 8.0
    scale = np.where(exponent == 0, np.ldexp(fraction, -6), np.ldexp(1 + fraction, exponent - 7))
    return elements * np.repeat(scale, 16, -1)


def exact(tensors):
    """The result in f64, and the sum of magnitudes of each element."""
    a, offsets = values(tensors, "a"), tensors["offsets"]
    numbers = [""] if "b" in tensors else ["1", "2"]
    sums = []
    for number in numbers:
        b, alpha = values(tensors, f"b{number}"), tensors[f"alpha{number}"].astype(float)
        of = [(a[begin:end], b[g], alpha[g]) for g, (begin, end) in enumerate(zip(offsets, offsets[1:]))]
        both = [(factor * (x @ y.T), abs(factor) * (abs(x) @ abs(y).T)) for x, y, factor in of]
        sums.append([np.concatenate(part) for part in zip(*both)])
    if len(sums) == 1:
        return sums[0]
    (g, g_sum), (u, u_sum) = sums
    with np.errstate(over="ignore"):
        silu = g / (1 + np.exp(-g))
    return silu * u, 1.1 * g_sum * abs(u) + abs(silu) * u_sum


def compare(folder, one, other):
    print(f"| case | {one} | {other} | {one} − {other} | {other} − exact | {one} − exact | the same numbers, % |")
    print("|---|---|---|---|---|---|---|")
    compared = 0
    for name in CASES:
        value, magnitude = exact(read(folder / f"{name}.safetensors"))

        def apart(x, y):
            difference = abs(x.astype(float) - y.astype(float))
            assert np.isfinite(difference).all() and (magnitude[difference > 0] > 0).all(), name
            return (difference / np.where(magnitude > 0, magnitude, 1)).max() * 2**24

        ours, theirs = (
            [read(path)["c"] for path in sorted(folder.glob(f"{name}.{device}.*.safetensors"))] for device in (one, other)
        )
        pairs = [(c, d) for c in ours for d in theirs]
        if not pairs:
            continue
        compared += len(pairs)
        same = [(c == d).mean() * 100 for c, d in pairs]
        worst = max(apart(c, d) for c, d in pairs), max(apart(d, value) for d in theirs), max(apart(c, value) for c in ours)
        cells = [name, f"{len(ours)} kernels", f"{len(theirs)}", *(f"{of:.1f}" for of in worst), f"{min(same):.0f} to {max(same):.0f}"]
        print("| " + " | ".join(cells) + " |")
    return 0 if compared else "nothing to compare"


match sys.argv[1:]:
    case ["make", folder]:
        make(pathlib.Path(folder))
    case ["compare", folder, one, other]:
        sys.exit(compare(pathlib.Path(folder), one, other))
    case _:
        sys.exit(__doc__)
