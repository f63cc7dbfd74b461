"""Measures the speed compared with llm.c and at 1.5B, every overlap mode on ranks that share the GPU, and the readings
of NVIDIA's tools in the kernels."""
import array
import concurrent.futures
import csv
import io
import json
import os
import random
import re
import statistics
import struct

from gpu_check import experts
from gpu_check.check import ROOT, Step, kill_group
from gpu_check.gpt2_speed import profile_of
from gpu_check.machine import env_of_python, find_tool, llmc as find_llmc
from gpu_check.training import FUSIONS, TINY_SMALL, gpt2, losses, open_modes, settings_as_words, small, speed, train, worst_difference

LIMIT_S = 510


# ---- llm.c ----

LLMC_MAGIC, LLMC_VERSION, LLMC_HEADER_INTS = 20240520, 1, 256  # of llm.c's token files: llm.c, llmc/dataloader.h


def llmc(check):
    program = find_llmc()
    if not program:
        return check.left_out("llm.c", "neither STRETTO_LLMC nor train_gpt2cu on PATH")
    batch, steps = 64, 20
    tokens = array.array("H", random.choices(range(50_257), k=batch * 1024 * 4 + 1))
    file = check.work / "llmc.bin"
    header = struct.pack("<3i", LLMC_MAGIC, LLMC_VERSION, len(tokens)).ljust(4 * LLMC_HEADER_INTS, b"\0")
    file.write_bytes(header + tokens.tobytes())
    check.expect("llm.c -ge 0 tokens_per_s", "llm.c -ge 2 tokens_per_s")
    for fused in (0, 2):
        name = f"llm.c gpt2-124m, {batch} x 1024, -ge {fused}"
        done = check.run(program, "-i", file, "-j", file, "-e", "d12", "-b", batch, "-t", 1024, "-x", steps, "-v", 1_000_000, "-m", 1,
                         "-s", 0, "-r", 0, "-ge", fused, limit_s=60)
        check.log(name, done.out + done.err)
        times = [float(ms) for ms in re.findall(r"\| ([0-9.]+) ms \|", done.out)][3:]
        if not times:
            check.note(name, False, why=done.why())
            continue
        tokens_per_s = round(batch * 1024 / statistics.median(times) * 1e3)
        check.note(name, done.code == 0, step_ms=round(statistics.median(times), 2), tokens_per_s=tokens_per_s,
                   with_cudnn="cudnn" in check.run("ldd", program, limit_s=15).out)
        check.headline(f"llm.c -ge {fused} tokens_per_s", tokens_per_s)
        if ours := check.results["headlines"].get("gpt2-124m tokens_per_s"):
            check.headline(f"stretto_over_llmc -ge {fused}", round(ours / tokens_per_s, 3))


def gpt2_1558m(check):
    # Training 1.5B uses several micro-batches, which makes the optimizer's share of a step smaller.
    for batches in (1, 4):
        fast = speed(check, "1558m", 16, micro_batches=batches)
        for key, value in (fast or {}).items():
            check.headline(f"gpt2-1558m {batches} x 16 {key}", value)


def profile_1558m(check):
    result = profile_of(check, "1558m", 16)
    if result:
        check.headline("gpt2-1558m gemm_TFLOPs", round(result["gemm_TFLOPs"], 1))


def fusions(check):
    for count in range(len(FUSIONS)):
        speed(check, "124m", 64, fusions=FUSIONS[:count])
    for batch in (8, 32):
        speed(check, "124m", batch)


# ---- modes ----

def values_of(check, scenario, key):
    """Returns the values that the program accepts for a key of named values. The program lists them when it is given
    another value."""
    done = check.run(check.stretto, "show", scenario, "--gates", "--set", f"{key}=nothing_that_is_known", limit_s=15)
    names = re.search(r"expected one of (.*), got", done.err)
    if not names:
        raise ValueError(f"{key}: no values in: {done.err.strip()}")
    return re.findall(r"[\w+-]+", names[1])


def layouts(check, scenario, ranks):
    """Returns name → settings: a group of all ranks on each axis, in each of the axis's variants."""
    dp, tp, pp, cp = (f"parallel.{axis}_parallel_size={ranks}" for axis in ("data", "tensor_model", "pipeline_model", "context"))
    layers = "model.num_layers=8"  # two layers for each of 4 stages
    found = {"tp, sp": [tp, "parallel.sequence_parallel=true"], "tp": [tp],
             "pp of 2 chunks": [pp, layers, "parallel.virtual_pipeline_model_parallel_size=2", "overlap.overlap_p2p_comm=true"]}
    for schedule in values_of(check, scenario, "parallel.pipeline_schedule"):
        found[f"pp, {schedule}"] = [pp, layers, f"parallel.pipeline_schedule={schedule}"]
    for kind in values_of(check, scenario, "parallel.cp_comm_type"):
        levels = [f"parallel.hierarchical_context_parallel_sizes=[2, {ranks // 2}]"] if "+" in kind else []
        found[f"cp, {kind}"] = [cp, f"parallel.cp_comm_type={kind}", *levels]
    for strategy in values_of(check, scenario, "parallel.data_parallel_sharding_strategy"):
        optimizer = str(strategy != "no_shard").lower()
        found[f"dp, {strategy}"] = [dp, f"parallel.data_parallel_sharding_strategy={strategy}", f"parallel.use_distributed_optimizer={optimizer}"]
    return found


def modes_of(check, scenario, settings):
    """Returns the modes whose gates are open in a layout, or None if the layout is impossible; and the Done of the
    command."""
    platform = ROOT / "scenarios/platforms/h100-sxm.toml"  # a platform that is not read
    found, done = check.json_of("simulate", scenario, "--platform", platform, "--modes", *settings_as_words(settings), limit_s=20)
    if not found:
        return None, done
    return open_modes(found), done


def train_modes(check, scenario, settings, names):
    """Trains in each mode, with several trainings at the same time, because starting the program takes most of the
    time and the speed of a mode is not measured here. The trainings share a cache folder of their own, so that other
    steps do not use algorithms that were chosen under this load."""
    env = dict(os.environ, XDG_CACHE_HOME=str(check.work / "cache"))
    with concurrent.futures.ThreadPoolExecutor(1 if check.tiny else 4) as pool:
        try:
            return list(pool.map(lambda mode: train(check, scenario, settings, "--mode", mode, limit_s=30, env=env), names))
        except BaseException:  # asked to stop: the threads wait for these processes
            for process in list(check.running):
                kill_group(process)
            raise


def modes(check):
    scenario, base = small(check)
    gates = check.run(check.stretto, "show", "--gates").out.partition("| knob | needs")[0]
    known = set(re.findall(r"^\| `(\w+)` ", gates, re.MULTILINE)) - set(experts.MODES)  # which another step runs
    alone, met, wrong = {}, set(), 0
    layouts_of = [(ranks, layout, settings) for ranks in (2, 4) for layout, settings in layouts(check, scenario, ranks).items()]
    for at, (ranks, layout, settings) in enumerate(layouts_of):
        if check.left_s() <= 0:
            rest = [f"{layout} at {ranks} ranks" for ranks, layout, _ in layouts_of[at:]]
            return check.note("modes", False, why="no time was left for all layouts", left=rest)
        settings = [*base, *settings]
        of_layout, done = modes_of(check, scenario, settings)
        if of_layout is None:
            where = f"{layout} at {ranks} ranks"
            refused = done.code == 2  # this number of ranks cannot have the layout
            wrong += not refused
            check.note(where, None if refused else False, why=done.why())
            continue
        layers = str([s for s in settings if "num_layers" in s])
        if layers not in alone:
            alone[layers], why = train(check, scenario, [*base, *(s for s in settings if "num_layers" in s)])
            if not alone[layers]:
                return check.note("one rank", False, why=why)
        met.update(of_layout)
        for mode, (result, why) in zip(of_layout, train_modes(check, scenario, settings, of_layout)):
            name = f"{mode} of {layout} at {ranks} ranks"
            if not result:
                wrong += 1
                check.note(name, False, why=why)
                continue
            difference = worst_difference(alone[layers], result)
            ok = check.note(name, difference < 2e-2, loss_difference=round(difference, 6), notes=result["notes"])
            wrong += not ok
    check.note("every mode has been met", known <= met and bool(known), missing=sorted(known - met))
    if not wrong and known <= met:
        check.headline("modes", f"{len(met)} modes at 2 and 4 ranks")


# ---- tools ----

ONE_STEP = ["training.train_iters=1", "training.lr_warmup_iters=0"]
# Kernels that a step waits for, other than GEMMs and attention; exec/cuda/kernels has them.
KERNELS = ("backward_of_warp_kernel", "dgrad_kernel", "partial_sums_kernel", "add_partial_sums_kernel", "cross_entropy_kernel", "adamw_kernel")
METRICS = {"us": "gpu__time_duration.sum", "read_bytes": "dram__bytes_read.sum", "written_bytes": "dram__bytes_write.sum",
           "memory_pct": "dram__throughput.avg.pct_of_peak_sustained_elapsed", "sm_pct": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
           "warps_pct": "sm__warps_active.avg.pct_of_peak_sustained_active", "registers": "launch__registers_per_thread",
           "L1_pct": "l1tex__throughput.avg.pct_of_peak_sustained_elapsed"}
SCALE = {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3, "byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}


def kernels_of(text):
    """Returns the rows of ncu's CSV: name, grid, block and METRICS of each kernel, with times in microseconds and
    sizes in bytes."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if first is None:
        return []
    rows = list(csv.reader(io.StringIO("\n".join(lines[first:]))))
    head, units = rows[0], rows[1]
    kernels = []
    for row in rows[2:]:
        if len(row) != len(head):
            continue
        cells = dict(zip(head, row))
        kernel = {"kernel": cells["Kernel Name"], "grid": cells.get("Grid Size"), "block": cells.get("Block Size")}
        for key, metric in METRICS.items():
            if cells.get(metric):
                kernel[key] = round(float(cells[metric].replace(",", "")) * SCALE.get(units[head.index(metric)], 1), 3)
        kernels.append(kernel)
    return kernels


def nsight_compute(check):
    tool = find_tool("ncu")
    if not tool:
        return check.left_out("Nsight Compute", "no ncu")
    met = set()
    for fused in (FUSIONS, ()):  # a norm's gradient is one kernel or two
        scenario, settings = gpt2(check, "124m", 16, fusions=fused, steps=1)
        # A first run keeps the plans of GEMMs. Tuning runs kernels, which would be read in place of the step's.
        train(check, scenario, [*settings, "model.num_layers=2", *ONE_STEP], limit_s=30)
        done = check.run(tool, "--csv", "--page", "raw", "--clock-control", "none", "--metrics", ",".join(METRICS.values()), "--kernel-name",
                         f"regex:^({'|'.join(KERNELS)})$", "--launch-count", 48, check.stretto, "train", scenario, "--backend", "cuda",
                         *settings_as_words([*settings, "model.num_layers=2", *ONE_STEP]), limit_s=60)
        kernels = kernels_of(done.out)
        name = f"Nsight Compute, {'all fused' if fused else 'nothing fused'}"
        check.log(name, done.err + ("" if kernels else done.out))
        check.detail("kernels", name, kernels)
        longest = {}
        for kernel in kernels:
            short = kernel["kernel"].partition("<")[0].partition("(")[0].split(" ")[-1].split("::")[-1]
            met.add(short)
            if kernel.get("us", 0) > longest.get(short, {"us": -1})["us"]:
                longest[short] = kernel
        says = {short: f"{k.get('us')} us, memory {k.get('memory_pct')} %" for short, k in longest.items()}
        check.note(name, bool(kernels) and done.code == 0, kernels=says, **({} if kernels and done.code == 0 else {"why": done.why()}))
    if met:
        check.note("Nsight Compute met every kernel", not set(KERNELS) - met, missing=sorted(set(KERNELS) - met))


def sanitizer(check):
    tool = find_tool("compute-sanitizer")
    if not tool:
        return check.left_out("compute-sanitizer", "not found")
    scenario, settings = small(check)
    step = ["train", scenario, "--backend", "cuda", *settings_as_words([*settings, *TINY_SMALL, *ONE_STEP, "parallel.data_parallel_size=2"]),
            "--mode", "overlap_param_gather"]
    for kind, what, limit_s in (("memcheck", [check.stretto, *step], 40), ("racecheck", [check.stretto, *step], 40),
                                ("memcheck", [check.program("gpu_tests"), "device kernels agree*"], 60)):
        name = f"compute-sanitizer {kind}, {'a step' if what[0] == check.stretto else 'kernels'}"
        done = check.run(tool, "--tool", kind, "--error-exitcode", 9, *what, limit_s=limit_s)
        check.log(name, done.out + done.err)
        last = (done.out.strip().splitlines() or [""])[-1]
        check.note(name, done.code == 0, last=last, **({} if done.code == 0 else {"why": done.why()}))


def losses_of_torch(check):
    """Compares fp32 losses with the host's, and the loss and gradient norm with those that PyTorch computes in float64
    from equal weights and tokens."""
    losses(check, "fp32", 1e-4)
    if not check.python:
        return check.left_out("loss and gradient as in PyTorch", "no PyTorch")
    scenario, base = small(check)
    window = (check.work / "text.txt").read_bytes()[: (16 if check.tiny else 128) + 1]
    (check.work / "window.txt").write_bytes(window)  # as long as one sample: all samples are equal
    for precision, tolerance in (("fp32", 1e-4), ("bf16", 3e-2)):
        name = f"loss and gradient as in PyTorch, {precision}"
        folder = check.work / f"weights-{precision}"
        result, why = train(check, scenario, [*base, f'training.precision="{precision}"', 'training.data="window.txt"', "training.train_iters=2",
                                              "training.lr_warmup_iters=0", "training.lr=0", "training.min_lr=0", f'training.checkpoint_dir="{folder}"'])
        if not result:
            check.note(name, False, why=why)
            continue
        weights = folder / "weights.safetensors"
        done = check.run(check.stretto, "export", max(folder.glob("step-*.safetensors")), "-o", weights)
        if done.code != 0:
            check.note(name, False, why=done.why())
            continue
        dump = {"style": "gpt2", "file": str(weights), "model": {"num_layers": 2, "num_attention_heads": 4}, "tokens": [list(window[:-1])],
                "targets": [list(window[1:])], "loss": result["steps"][-1]["loss"], "gradient_norm": result["steps"][-1]["gradient_norm"],
                "tolerance": tolerance}
        (folder / "dump.json").write_text(json.dumps(dump))
        done = check.run(*check.python, ROOT / "tests/torch_weights.py", folder / "dump.json", env=env_of_python(check))
        check.note(name, done.code == 0, says=(done.out + done.err[-400:]).strip().splitlines())


STEPS = [
    Step(llmc, 100),
    Step(gpt2_1558m, 110, ("gpt2-1558m 1 x 16 tokens_per_s", "gpt2-1558m 4 x 16 tokens_per_s", "gpt2-1558m 4 x 16 mfu")),
    Step(modes, 220, ("modes",)),
    Step(profile_1558m, 60, ("gpt2-1558m gemm_TFLOPs",)),
    Step(nsight_compute, 70),
    Step(sanitizer, 130),
    Step(losses_of_torch, 50),
    Step(fusions, 90),
]
