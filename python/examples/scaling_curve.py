"""Tokens per second and GPU over the number of GPUs, at a constant batch per data-parallel rank: a table, and a plot as SVG.

    python3 scaling_curve.py llama3-8b curve.svg --gpus 16 32 64 128 256
"""
import argparse
import sys

import stretto


def svg(curve, title):
    """Returns a polyline with its points as SVG; needs no library."""
    width, height, margin = 640, 360, 60
    most_x, most_y = max(x for x, _ in curve), 1.1 * max(y for _, y in curve)

    def place(x, y):
        return margin + (width - 2 * margin) * x / most_x, height - margin - (height - 2 * margin) * y / most_y

    path = " ".join(f"{px:.1f},{py:.1f}" for px, py in (place(x, y) for x, y in curve))
    dots = "".join(f'<circle cx="{place(x, y)[0]:.1f}" cy="{place(x, y)[1]:.1f}" r="4"><title>{x} GPUs: {y:.0f}</title></circle>'
                   for x, y in curve)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">'
            f'<text x="{margin}" y="30">{title}</text><polyline points="{path}" fill="none" stroke="#36c" stroke-width="2"/>'
            f'<g fill="#36c">{dots}</g><text x="{width / 2}" y="{height - 15}">GPUs</text></svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario")
    parser.add_argument("svg")
    parser.add_argument("--gpus", type=int, nargs="+", default=[16, 32, 64, 128, 256])
    parser.add_argument("--batch_per_gpu", type=int, default=2, help="sequences of the global batch for each GPU")
    options = parser.parse_args()
    model_ranks = ranks_of_a_replica(options.scenario)
    print(f"{'GPUs':>6}  {'step ms':>9}  {'tokens/s/GPU':>12}")
    curve = []
    for gpus in options.gpus:
        if gpus % model_ranks:
            sys.exit(f"{gpus} GPUs: expected a multiple of {model_ranks}, the ranks of one replica")
        step = stretto.simulate(options.scenario, {"parallel.data_parallel_size": gpus // model_ranks,
                                                   "training.global_batch_size": gpus * options.batch_per_gpu})
        curve.append((gpus, step["tokens_per_s_per_gpu"]))
        print(f"{gpus:6}  {step['step_ms']:9.1f}  {step['tokens_per_s_per_gpu']:12.1f}")
    with open(options.svg, "w") as file:
        file.write(svg(curve, f"{options.scenario}: tokens/s of a GPU"))


def ranks_of_a_replica(scenario):
    ranks = 1
    for axis in stretto.show(scenario)["mesh"]["axes"]:
        ranks *= axis["size"] if axis["coord"] != "dp" else 1
    return ranks


if __name__ == "__main__":
    main()
