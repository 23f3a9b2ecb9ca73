#!/usr/bin/env python3
"""Ours beside others', as a markdown table: ratios.py ours.json others.json

ours.json is what `warpsmith bench --json > ours.json` writes. others.json is a list of objects
with op, M (a list of rows if grouped), N and K; every further number is a time in µs, except NAME_err, floor_* and
what ends in _only (a part of the work). Measure both in one go: an absolute time moves with the machine, a
ratio much less.
"""
import json
import math
import sys

SHAPE = ("op", "M", "N", "K")


def key(row):
    return json.dumps([row.get(name) for name in SHAPE])


def is_time(name, value):
    if name in SHAPE or name.startswith("floor_") or name.endswith(("_err", "_only")):
        return False
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def times(row):
    return {name: value for name, value in row.items() if is_time(name, value)}


def title(row):
    m, suffix = row["M"], ""
    if isinstance(m, list):
        m, suffix = sum(m), f" in {len(m)} groups"
    return f"{row['op']} {m}, {row['N']}, {row['K']}{suffix}"


def cells(row, others, names):
    """The cells of a row, and its ratios (plain, dependent), which are missing if nothing can be compared."""
    plain, pdl = row.get("warpsmith"), row.get("warpsmith_pdl")
    if plain is None or pdl is None:
        return [title(row), "-", "-"] + ["-"] * (len(names) + 5) + [row.get("variant") or "-"], None
    found = times(others.get(key(row), {}))
    best = min(found, key=found.get, default=None)
    bold = {name: "**" if name == best else "" for name in names}
    peers = [f"{bold[name]}{found[name]:.1f}{bold[name]}" if name in found else "-" for name in names]
    ratios = (found[best] / plain, found[best] / pdl) if best else None
    compared = [best, f"{ratios[0]:.2f}", f"{ratios[1]:.2f}"] if best else ["-"] * 3
    shares = [f"{row['floor_us']:.1f}", f"{100 * row['floor_us'] / plain:.0f} / {100 * row['floor_us'] / pdl:.0f} %"]
    return [title(row), f"{plain:.1f}", f"{pdl:.1f}"] + peers + compared + shares + [row.get("variant") or "-"], ratios


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    ours, others = (json.load(open(path)) for path in sys.argv[1:])
    for row in ours:
        if row["op"] == "ceilings":
            product = row["product_tflops"]
            rate = "not measured" if product is None else f"{product:.0f} TFLOP/s"
            bandwidths = f"copy {row['copy_gb_s']:.0f} GB/s, read {row['read_gb_s']:.0f} GB/s"
            print(f"{row['machine']}; {bandwidths}, product {rate}\n")
    ours = [row for row in ours if row["op"] != "ceilings"]
    others = {key(row): row for row in others}
    names = list(dict.fromkeys(name for row in ours for name in times(others.get(key(row), {}))))
    head = ["op M, N, K", "ours", "ours, dependent", *names, "best other", "best / ours", "best / dependent"]
    head += ["floor", "of floor", "variant"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    by_op = {}
    for row in ours:
        line, ratios = cells(row, others, names)
        print("| " + " | ".join(line) + " |")
        if ratios:
            by_op.setdefault(row["op"], []).append(ratios)
    for op, ratios in by_op.items():
        mean = [math.exp(sum(map(math.log, column)) / len(column)) for column in zip(*ratios)]
        print(f"\n{op}: geometric mean of the {len(ratios)} ratios {mean[0]:.2f}, dependent {mean[1]:.2f}")


if __name__ == "__main__":
    main()
