#!/usr/bin/env python3
"""Makes the tables of products of a platform from measured ones: scripts/gemm_tables.py SWEEP.csv OUTPUT.csv [options]

SWEEP.csv has the columns stack, precision, m, n, k and pure_us, as aiconfigurator's gemm_perf tables have them without the
time of casts. --take NAME=STACK:PRECISION says which rows become the table of NAME (bf16, fp8, fp8_block, mxfp8, nvfp4).

A time is replaced by a smooth one where --smooth names its table: by a robust local fit of ln(time / mnk), linear in ln m,
ln n and ln k, over the neighbours within two steps of the grid on each axis. What remains is a part of the grid (--axes),
because between its points time / mnk is interpolated anyway.
"""

import argparse
import csv
import math

M = [256, 512, 1024, 1536, 2048, 3072, 4096, 8192, 16384, 32768]
NK = [256, 512, 1024, 2048, 3072, 4096, 5120, 6144, 7168, 8192, 10240, 12288, 16384, 51200, 65536]


def read(path, stack, precision):
    times = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            if row["stack"] == stack and row["precision"] == precision:
                times[int(row["m"]), int(row["n"]), int(row["k"])] = float(row["pure_us"])
    if not times:
        raise SystemExit(f"{path}: expected rows of {stack} in {precision}, got none")
    return times


def solve(a, b):
    """Solves a small symmetric system; a and b are overwritten."""
    n = len(b)
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(a[r][i]))
        a[i], a[pivot], b[i], b[pivot] = a[pivot], a[i], b[pivot], b[i]
        for r in range(i + 1, n):
            factor = a[r][i] / a[i][i]
            for c in range(i, n):
                a[r][c] -= factor * a[i][c]
            b[r] -= factor * b[i]
    for i in reversed(range(n)):
        b[i] = (b[i] - sum(a[i][c] * b[c] for c in range(i + 1, n))) / a[i][i]
    return b


def smooth_at(shape, times, axes, reach=2, rounds=4):
    """Returns the fitted time at `shape`. Weights fall with the distance in logarithms and with the residual (Tukey)."""
    at = [axis.index(side) for axis, side in zip(axes, shape)]
    near = [axis[max(0, i - reach) : i + reach + 1] for axis, i in zip(axes, at)]
    points = []
    for m in near[0]:
        for n in near[1]:
            for k in near[2]:
                us = times.get((m, n, k))
                if us is None:
                    continue
                x = [math.log(side / here) for side, here in zip((m, n, k), shape)]
                points.append(([1.0, *x], math.log(us / (m * n * k)), math.exp(-sum(d * d for d in x) / 0.5)))
    weights = [w for _, _, w in points]
    fit = [0.0] * 4
    for _ in range(rounds):
        a = [[sum(w * x[i] * x[j] for w, (x, _, _) in zip(weights, points)) + (1e-9 if i == j else 0) for j in range(4)] for i in range(4)]
        b = [sum(w * x[i] * y for w, (x, y, _) in zip(weights, points)) for i in range(4)]
        fit = solve(a, b)
        left = [y - sum(c * xi for c, xi in zip(fit, x)) for x, y, _ in points]
        scale = max(1e-3, 1.4826 * sorted(abs(r) for r in left)[len(left) // 2])
        weights = [w * max(0.0, 1 - (r / (4.7 * scale)) ** 2) ** 2 for (_, _, w), r in zip(points, left)]
    return math.exp(fit[0]) * shape[0] * shape[1] * shape[2]


def table_of(times, is_smoothed):
    axes = [sorted({shape[side] for shape in times}) for side in range(3)]
    for m in M:
        for n in NK:
            for k in NK:
                shape = (m, n, k)
                if all(side in axis for side, axis in zip(shape, axes)):
                    yield shape, smooth_at(shape, times, axes) if is_smoothed or shape not in times else times[shape]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep")
    parser.add_argument("output")
    parser.add_argument("--take", action="append", required=True, metavar="NAME=STACK:PRECISION")
    parser.add_argument("--keep", metavar="TABLE.csv", help="rows of this table come first, as they are")
    parser.add_argument("--smooth", action="append", default=[], metavar="NAME")
    given = parser.parse_args()
    rows = []
    if given.keep:
        with open(given.keep, newline="") as file:
            for row in csv.DictReader(file):
                rows.append(f"{row['m']},{row['n']},{row['k']},{row['time_us']},{row.get('dtype') or 'bf16'}\n")
    for take in given.take:
        name, _, of = take.partition("=")
        stack, _, precision = of.partition(":")
        for (m, n, k), us in table_of(read(given.sweep, stack, precision), name in given.smooth):
            rows.append(f"{m},{n},{k},{us:.4g},{name}\n")
    with open(given.output, "w") as file:
        file.write("m,n,k,time_us,dtype\n")
        file.writelines(rows)


if __name__ == "__main__":
    main()
