"""Tokens per second and GPU over the number of GPUs, for one layout or several: a table, and a plot as SVG.

    python3 scaling_curve.py llama3-8b curve.svg --gpus 16 32 64 128 256
    python3 scaling_curve.py llama3-70b curve.svg --gpus 64 128 256 512 1024 --batch 512 \\
        --layout tensor=4,pipeline=8,virtual=1,context=1 --layout tensor=8,pipeline=4,virtual=1,context=1

The curves of the second plot cross: at a constant global batch more replicas have fewer micro-batches each, and the longer pipeline waits.
"""
import argparse
import math
import sys

import stretto

AXES = {"tensor": "tensor_model_parallel_size", "pipeline": "pipeline_model_parallel_size", "context": "context_parallel_size",
        "virtual": "virtual_pipeline_model_parallel_size"}
COLOURS = ["#36c", "#c33", "#393", "#963", "#639"]


def svg(curves, title):
    """Returns a plot as SVG, without a library: the number of GPUs on a logarithmic axis, tokens/s of a GPU on one from 0."""
    width, height, left, top, bottom = 720, 420, 90, 50, 60
    counts = sorted({x for _, curve in curves for x, _ in curve})
    most = max(y for _, curve in curves for _, y in curve)
    tick = 10 ** math.floor(math.log10(most))
    tick = next(part * tick for part in (0.1, 0.2, 0.25, 0.5, 1, 2) if most / (part * tick) <= 8)

    def place(x, y):
        share = math.log(x / counts[0]) / math.log(counts[-1] / counts[0]) if counts[-1] > counts[0] else 0.5
        return left + (width - left - 40) * share, height - bottom - (height - top - bottom) * y / (1.05 * most)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
             f'<rect width="{width}" height="{height}" fill="white"/><text x="{left}" y="25" font-size="15">{title}</text>']
    for step in range(int(most / tick) + 1):
        y = place(counts[0], step * tick)[1]
        parts.append(f'<line x1="{left}" x2="{width - 40}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
                     f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{step * tick:g}</text>')
    for x in counts:
        parts.append(f'<text x="{place(x, 0)[0]:.1f}" y="{height - bottom + 20}" text-anchor="middle">{x}</text>')
    parts.append(f'<text x="{(left + width - 40) / 2}" y="{height - 12}" text-anchor="middle">GPUs</text>'
                 f'<text transform="translate(20 {height / 2}) rotate(-90)" text-anchor="middle">tokens/s of a GPU</text>')
    for number, (name, curve) in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        points = [place(x, y) for x, y in curve]
        parts.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4" fill="{colour}"><title>{name}, {x} GPUs: {y:.0f}</title></circle>'
                  for (px, py), (x, y) in zip(points, curve)]
        parts.append(f'<text x="{left + 15}" y="{height - bottom - 15 - 18 * number}" fill="{colour}">{name}</text>')
    return "\n".join(parts) + "\n</svg>\n"


def layout(text):
    """Reads tensor=4,pipeline=8 as keys of a scenario."""
    try:
        return {"parallel." + AXES[axis]: int(size) for axis, size in (part.split("=") for part in text.split(","))}
    except (KeyError, ValueError):
        raise argparse.ArgumentTypeError(f"expected sizes of {', '.join(AXES)}, as tensor=4,pipeline=8, got {text}") from None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario")
    parser.add_argument("svg")
    parser.add_argument("--gpus", type=int, nargs="+", default=[16, 32, 64, 128, 256])
    parser.add_argument("--batch_per_gpu", type=int, default=2, help="sequences of the global batch for each GPU")
    parser.add_argument("--batch", type=int, help="sequences of the global batch, whatever the number of GPUs")
    parser.add_argument("--layout", type=layout, action="append", help="a curve with these sizes; may be repeated; default: the scenario's")
    options = parser.parse_args()
    curves = []
    print(f"{'GPUs':>6}  {'step ms':>9}  {'tokens/s/GPU':>12}")
    for sizes in options.layout or [{}]:
        name = ", ".join(f"{key.split('.')[1].split('_')[0]} {size}" for key, size in sizes.items()) or options.scenario
        model_ranks = ranks_of_a_replica(options.scenario, sizes)
        curve = []
        for gpus in options.gpus:
            if gpus % model_ranks:
                sys.exit(f"{gpus} GPUs: expected a multiple of {model_ranks}, the ranks of one replica with {name}")
            step = stretto.simulate(options.scenario, {**sizes, "parallel.data_parallel_size": gpus // model_ranks,
                                                       "training.global_batch_size": options.batch or gpus * options.batch_per_gpu})
            curve.append((gpus, step["tokens_per_s_per_gpu"]))
            print(f"{gpus:6}  {step['step_ms']:9.1f}  {step['tokens_per_s_per_gpu']:12.1f}" + (f"  {name}" if sizes else ""))
        curves.append((name, curve))
    with open(options.svg, "w") as file:
        file.write(svg(curves, f"{options.scenario}: tokens/s of a GPU"))


def ranks_of_a_replica(scenario, sizes):
    ranks = 1
    for axis in stretto.show(scenario, {**sizes, "parallel.data_parallel_size": 1})["mesh"]["axes"]:
        ranks *= axis["size"] if axis["coord"] != "dp" else 1
    return ranks


if __name__ == "__main__":
    main()
