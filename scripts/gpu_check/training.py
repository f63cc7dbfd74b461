"""Scenarios of the checks, and functions that train them."""
import statistics

from gpu_check.check import ROOT

SMALL = """
[model]
num_layers = 2
hidden_size = 256
num_attention_heads = 4
seq_length = 128
vocab_size = 256
[cluster]
link_GBps = 5
link_latency_us = 20
[overlap]
bucket_size = 200_000
[training]
precision = "bf16"
micro_batch_size = 2
global_batch_size = 16
train_iters = 6
lr_warmup_iters = 2
data = "text.txt"
"""
# Settings for an emulated device.
TINY_SMALL = ["model.hidden_size=32", "model.seq_length=16", "training.global_batch_size=8", "training.train_iters=3"]
TINY_GPT2 = ["model.num_layers=2", "model.hidden_size=32", "model.num_attention_heads=2", "model.seq_length=16", "model.vocab_size=256",
             "model.make_vocab_size_divisible_by=1"]
FUSIONS = ("gelu", "bias_gradient", "residual", "norm_gradient")


def open_modes(simulated):
    """Returns the modes with open gates from the JSON of `simulate --modes`; the plain schedule is the first."""
    return [row["mode"] for row in simulated["modes"] if not row["advice"] or row["advice"]["verdict"] != "off"]


def settings_as_words(settings):
    return [word for setting in settings for word in ("--set", setting)]


def small(check):
    """Returns the file of the two-layer scenario SMALL, and the settings that it needs."""
    path = check.work / "small.toml"
    path.write_text(SMALL)
    return path, TINY_SMALL if check.tiny else []


def gpt2(check, size, micro_batch, fusions=FUSIONS, micro_batches=1, steps=12):
    """Returns the scenario file of GPT-2 and its settings for random tokens."""
    batch = 2 if check.tiny else micro_batch
    fused = [f"training.{name}_fusion={str(name in fusions).lower()}" for name in FUSIONS]
    return ROOT / f"scenarios/models/gpt2-{size}.toml", [
        "parallel.data_parallel_size=1", f"training.micro_batch_size={batch}", f"training.global_batch_size={batch * micro_batches}",
        f"training.train_iters={4 if check.tiny else steps}", "training.lr_warmup_iters=2", 'training.precision="bf16"',
        f'training.data="{check.work}/tokens.bin"', "overlap.overlap_grad_reduce=false", "overlap.overlap_param_gather=false",
        *fused, *(TINY_GPT2 if check.tiny else [])]


def train(check, scenario, settings, *words, backend="cuda", limit_s=600, env=None):
    """Returns the JSON of a training run with its printed notes and "", or None and the reason."""
    result, done = check.json_of("train", scenario, "--backend", backend, *settings_as_words(settings), *words, limit_s=limit_s, env=env)
    if result is None or done.code != 0:
        return None, done.why()
    result["notes"] = [line for line in done.out.splitlines() if line.startswith("note: ")]
    return result, ""


def worst_difference(one, other):
    """Returns the largest relative difference between the losses of two runs."""
    return max(abs(a["loss"] - b["loss"]) / a["loss"] for a, b in zip(one["steps"], other["steps"]))


def without_cudnn(notes):
    """Returns whether attention ran without cuDNN. GPT-2's speed is meaningless then."""
    return any("our own kernels" in note for note in notes)


def speed(check, size, micro_batch, **more):
    """Records how fast GPT-2 trains. Returns the figures (tokens/s, step time and MFU), or None."""
    scenario, settings = gpt2(check, size, micro_batch, **more)
    result, why = train(check, scenario, settings)
    batches = more.get("micro_batches", 1)
    name = f"gpt2-{size}, {f'{batches} of ' if batches > 1 else ''}{micro_batch} x 1024, bf16, fused: {', '.join(more.get('fusions', FUSIONS)) or 'nothing'}"
    if not result:
        check.note(name, False, why=why)
        return None
    steps = result["steps"][2:]  # the first step is made of calls, the second is captured
    tokens_per_s = round(statistics.median(s["tokens_per_s"] for s in steps))
    times = [s["step_ms"] for s in steps]
    # No data sheet lists the emulated device.
    figures = {"tokens_per_s": tokens_per_s, "step_ms": round(statistics.median(times), 2), "mfu": result["mfu"] or (0.0 if check.tiny else None)}
    check.note(name, check.tiny or not without_cudnn(result["notes"]), **figures, least_ms=round(min(times), 2), most_ms=round(max(times), 2),
               tflops=round(result["tflops_per_gpu"], 1), notes=result["notes"])
    return figures


def losses(check, precision, tolerance):
    """Checks that the losses on the GPU equal those on the host, within `tolerance`. Returns the largest relative
    difference, or None."""
    scenario, settings = small(check)
    settings = [*settings, f'training.precision="{precision}"']
    host, why = train(check, scenario, settings, backend="host")
    gpu, why_gpu = train(check, scenario, settings)
    if not host or not gpu:
        check.note(f"loss as on the host, {precision}", False, why=why or why_gpu)
        return None
    worst = worst_difference(host, gpu)
    check.note(f"loss as on the host, {precision}", worst < tolerance, worst_relative_difference=worst, notes=gpu["notes"])
    return worst
