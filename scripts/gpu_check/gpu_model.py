"""Measures the model of the GPU: its calibration, its predictions of unmeasured shapes, the cost of overlap for
compute, and the gain of each mode."""
import re
import tomllib

from gpu_check.check import ROOT, Step
from gpu_check.gpt2_speed import torch_json
from gpu_check.training import gpt2, open_modes, settings_as_words

LIMIT_S = 510

# The model has no width, length or vocabulary of calibrate/probes/gpu_sizes.cpp.
UNSEEN = """
[model]
num_layers = 4
hidden_size = 896
num_attention_heads = 14
seq_length = 768
vocab_size = 16_000
[cluster]
link_GBps = 50
link_latency_us = 10
[overlap]
bucket_size = 10_000_000
[training]
precision = "bf16"
micro_batch_size = 8
global_batch_size = 16
[compare]
repeats = 5
"""
TINY_UNSEEN = ["model.num_layers=4", "model.hidden_size=24", "model.num_attention_heads=4", "model.seq_length=8", "model.vocab_size=64",
               "training.micro_batch_size=1", "training.global_batch_size=4", "compare.repeats=1"]
TP_SP = ["parallel.tensor_model_parallel_size=2", "parallel.sequence_parallel=true"]
# compare runs every mode that a layout has.
COMPARED = {
    "dp": ["compare.ranks=[1, 2, 4]"],
    "tp": ["compare.ranks=[2, 4]", *TP_SP],
    "dp of 8 channels": ["compare.ranks=[4]", "cluster.nccl_communicator_config.dp.max_ctas=8"],
    "cp": ["compare.ranks=[2]", "parallel.context_parallel_size=2"],
    "fsdp": ["compare.ranks=[2]", "parallel.data_parallel_size=2", "parallel.data_parallel_sharding_strategy=optim_grads_params"],
}
# Layouts in which modes should gain, and link speeds among which the best for each is predicted.
LINKS_GBps = [2, 4, 8, 16, 32, 64, 128]
# Products so long that their chunks fill the GPU, and SMs that they leave to communication: a GEMM of the other rank has
# all of them when communication begins.
WIDE = ["model.hidden_size=2048", "model.num_attention_heads=16", "model.seq_length=2048", "model.num_layers=2", "training.micro_batch_size=4",
        "training.global_batch_size=8", "cluster.nccl_communicator_config.tp.max_ctas=16"]
GAINS = {
    "dp": ["parallel.data_parallel_size=2"],
    "tp": [*TP_SP, *WIDE],
    "tp without sequence parallelism": [*TP_SP[:1], *WIDE],
    "pp": ["parallel.pipeline_model_parallel_size=2", "parallel.virtual_pipeline_model_parallel_size=2", "overlap.overlap_p2p_comm=true",
           "training.micro_batch_size=2"],
    "cp": ["parallel.context_parallel_size=2"],
    "fsdp": ["parallel.data_parallel_size=2", "parallel.data_parallel_sharding_strategy=optim_grads_params"],
}


def unseen(check):
    path = check.work / "unseen.toml"
    path.write_text(UNSEEN)
    return path, TINY_UNSEEN if check.tiny else []


def calibration(check):
    """Calibrates, and continues from the measurements of an interrupted calibration in FOLDER."""
    done = check.run(check.stretto, "calibrate", "--backend", "cuda", "-o", check.folder / "gpu.toml")
    check.log("calibrate", done.out + done.err)
    kept = [line for line in done.out.splitlines() if line.startswith("goes on from")]
    # Steps of experts with as many rows as data says are among those that are measured, and they are no graphs.
    notes = [line for line in done.out.splitlines() if line.startswith("note: ") and "data says how many rows" not in line]
    if check.note("calibrate", done.code == 0, seconds=round(done.seconds, 1), kept=kept, notes=notes, **({} if done.code == 0 else {"why": done.why()})):
        check.headline("calibrate_s", round(done.seconds, 1))


def platform_of(check, name):
    path = check.folder / "gpu.toml"
    return path if path.exists() else check.note(name, False, why="no platform: calibrate has not ended") or None


def curves_in(table):
    """Yields every curve of a platform's table: its name, and the table that holds it."""
    for key, value in table.items():
        if isinstance(value, dict) and isinstance(value.get("value"), list):
            yield key, value
        elif isinstance(value, dict):
            yield from curves_in(value)


def interference(check):
    """Records the calibrated slowdown of each kernel while k thread blocks communicate, and while copy engines are
    busy."""
    path = platform_of(check, "interference")
    if not path:
        return
    platform, curves, assumed = tomllib.loads(path.read_text()), {}, []
    sms = platform["gpu"]["sms"]
    for name, curve in curves_in(platform):
        at = curve.get("blocks") or curve.get("copies")
        curves[name] = {str(k): round(value, 4) for k, value in zip(at, curve["value"])}
        if curve.get("kind") != "measured":
            assumed.append(name)
    check.detail("interference", "share that is lost, by thread blocks or copies", curves)
    # On an emulated device no operations are concurrent.
    check.note("interference", bool(curves) and (check.tiny or not assumed), curves=len(curves), not_measured=assumed)
    # A GEMM whose blocks wait for whole waves loses in steps; one that shares out its work loses the share of the SMs
    # that it lacks.
    taken = curves.get("gemm_beside_moving") or {}
    check.detail("interference", "gemm_beside_moving, were it by shares of the SMs",
                 {k: round(float(k) / (sms - float(k)), 4) for k in taken if float(k) < sms})
    check.headline("gemm_beside_moving", curves.get("gemm_beside_moving"))


def compare(check, name, scenario, settings, platform, limit_s):
    result, done = check.json_of("compare", scenario, "--backend", "cuda", "--platform", platform, *settings_as_words(settings), limit_s=limit_s)
    if result:
        check.detail("compare", name, result)
    return result, done


def predictions(check):
    platform = platform_of(check, "predictions")
    if not platform:
        return
    scenario, base = unseen(check)
    worst, mean = [], []
    for name, settings in COMPARED.items():
        result, done = compare(check, name, scenario, [*base, *settings], platform, 45)
        if not result or result["mean_abs_error_pct"] is None:
            check.note(f"compare {name}", False, why=done.why())
            continue
        mean.append((result["mean_abs_error_pct"], len(result["rows"])))
        worst.append(result["worst_abs_error_pct"])
        # People judge how accurate the predictions are: no bound has been measured yet.
        check.note(f"compare {name}", done.code == 0, mean_error_pct=round(mean[-1][0], 1), worst_error_pct=round(worst[-1], 1), rows=mean[-1][1],
                   noise_pct=result["noise_pct"] and round(result["noise_pct"], 1), **({} if done.code == 0 else {"why": done.why()}))
    if mean:
        check.headline("mean_abs_error_pct", round(sum(m * n for m, n in mean) / sum(n for _, n in mean), 2))
        check.headline("worst_abs_error_pct", round(max(worst), 2))


def base_platform(check):
    """Returns the published platform of this GPU, which supplies the constants that a short calibration does not
    measure."""
    names = sorted((ROOT / "scenarios/platforms").glob("*.toml"))
    device = check.results.get("device", "").upper()
    return next((path for path in names if path.name.split("-")[0].upper() in device), ROOT / "scenarios/platforms/h100-sxm.toml")


def sustained(check):
    """Measures a large GEMM of random numbers until the GPU is warm."""
    seconds = 1 if check.tiny else 30
    result, done = check.json_of("calibrate", "--backend", "cuda", "--minimal", "--base", base_platform(check), "--seconds", seconds,
                                 "-o", check.work / "minimal.toml")
    rates = re.search(r"([0-9.e+]+) TFLOP/s in the first second, ([0-9.e+]+) in the last third", str(result and result["notes"]))
    if done.code != 0 or not rates:
        return check.note("sustained GEMM", False, why=done.why())
    first, last = map(float, rates.groups())
    check.note("sustained GEMM", True, seconds=seconds, first_second_TFLOPs=first, last_third_TFLOPs=last,
               measured=[f"{part['what']} {part['value']}" for part in result["parts"] if part["from"] == "measured here"])
    check.headline("sustained_gemm_TFLOPs", last)


def layer_mix(check):
    """Compares GEMMs in a step that has run for a while with GEMMs of equal shapes that run one by one."""
    scenario, settings = gpt2(check, "124m", 64)
    result, done = check.json_of("profile", scenario, "--backend", "cuda", "--set", f"compare.repeats={2 if check.tiny else 60}",
                                 *settings_as_words(settings), limit_s=60)
    if not result:
        return check.note("GEMMs in a step", False, why=done.why())
    mix = {}
    for operation in result["operations"]:
        if shape := re.match(r"gemm (\d+)x(\d+)x(\d+)", operation["work"]):
            mix.setdefault("x".join(shape.groups()), []).append((operation["name"], operation["us"]))
    shapes = ",".join(sorted(mix))
    alone = torch_json(check, "GEMMs one by one", "torch_ceilings.py", "--gemms", shapes) if shapes else None
    rows = []
    for shape, operations in mix.items():
        m, n, k = map(int, shape.split("x"))
        for name, us in operations:
            alone_us = alone and alone["gemms"].get(shape)
            rows.append({"operation": name, "shape": shape, "us": us, "TFLOPs": round(2e-6 * m * n * k / us, 1) if us else None,
                         "alone_us": alone_us, "of_alone": alone_us and us and round(us / alone_us, 3)})
    check.detail("profiles", "GEMMs in a step", rows)
    ratios = sorted(row["of_alone"] for row in rows if row["of_alone"])
    check.note("GEMMs in a step", bool(rows), operations=len(rows), times_as_long_as_alone=[ratios[0], ratios[len(ratios) // 2], ratios[-1]] if ratios else None)


def gains(check):
    """Measures each mode at the bandwidth at which its predicted gain is greatest, and the share of the hidden
    communication that is lost because concurrent compute is slower."""
    platform = platform_of(check, "gains")
    if not platform:
        return
    scenario, base = unseen(check)
    for layout, settings in GAINS.items():
        best = {}  # mode → (speed relative to plain, GB/s)
        for link in LINKS_GBps[::6] if check.tiny else LINKS_GBps:
            found, done = check.json_of("simulate", scenario, "--platform", platform, "--modes",
                                        *settings_as_words([*settings, *base, f"cluster.link_GBps={link}"]), limit_s=20)
            if not found:
                check.note(f"gains, {layout}", False, why=done.why())
                break
            predicted = {m["mode"]: m["step_ms"] for m in found["modes"]}
            for mode in open_modes(found)[1:]:
                best[mode] = max(best.get(mode, (0, 0)), (predicted["plain"] / predicted[mode], link))
        for link in sorted({link for _, link in best.values()}):
            measure_gains(check, scenario, platform, layout, [*settings, *base], sorted(m for m in best if best[m][1] == link), link)


def measure_gains(check, scenario, platform, layout, settings, modes, link):
    names = ", ".join(f'"{mode}"' for mode in ["plain", *modes])
    settings = [*settings, f"cluster.link_GBps={link}", "compare.ranks=[2]", f"compare.modes=[{names}]"]
    result, done = compare(check, f"gains, {layout} at {link} GB/s", scenario, settings, platform, 60)
    if not result or len(result["rows"]) < 2:
        return check.note(f"gains, {layout}", False, why=done.why())
    plain, *rows = result["rows"]
    for row in rows:
        compute, exposed = ([r["breakdown_measured"][part] for r in (plain, row)] for part in ("compute_ms", "exposed_ms"))
        # A gain of 1.15 is the target; people read whether it is reached.
        check.note(f"gain of {row['mode']}, {layout}", done.code == 0, times_as_fast=round(plain["measured_ms"] / row["measured_ms"], 3),
                   predicted=round(plain["predicted_ms"] / row["predicted_ms"], 3), link_GBps=link, plain_ms=round(plain["measured_ms"], 3),
                   hidden_ms=round(exposed[0] - exposed[1], 3), still_exposed_ms=round(exposed[1], 3),
                   compute_slower_by_ms=round(compute[1] - compute[0], 3))


def diagnosis(check):
    """Explains a trace of PyTorch's profiler on this GPU by the predicted step of the GPU's published platform."""
    scenario, settings = gpt2(check, "124m", 64)
    trace = check.folder / "torch-trace.json.gz"
    size = ["--micro-batch", 2, "--size", "tiny"] if check.tiny else ["--micro-batch", 64]
    measured = torch_json(check, "PyTorch, eager, traced", "torch_gpt2.py", "--eager", "--cudnn-attention", "--trace", trace, *size)
    if not measured:
        return
    result, done = check.json_of("diagnose", trace, scenario, "--platform", base_platform(check), *settings_as_words(settings), limit_s=30)
    check.log("diagnose", done.out + done.err)
    if result:
        check.detail("diagnose", "PyTorch, eager, of the published platform", result)
    check.note("diagnose", bool(result) and done.code == 0, step_ms=measured.get("step_ms"), **({} if done.code == 0 else {"why": done.why()}))


def attention(check):
    """Measures fused attention of many heads over lengths and widths by PyTorch's kernels: the rates of a published
    platform depend on both."""
    result = torch_json(check, "attention by PyTorch's kernels", "torch_ceilings.py", "--attention", *(["--tiny"] if check.tiny else []))
    if result:
        check.detail("attention", "us", result["attention"])


STEPS = [
    Step(calibration, 330, ("calibrate_s",)),
    Step(interference, 10, ("gemm_beside_moving",)),
    Step(predictions, 120, ("mean_abs_error_pct", "worst_abs_error_pct")),
    Step(sustained, 60, ("sustained_gemm_TFLOPs",)),
    Step(layer_mix, 60),
    Step(gains, 120),
    Step(diagnosis, 90),
    Step(attention, 60),
]
