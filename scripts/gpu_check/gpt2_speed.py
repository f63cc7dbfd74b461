"""Measures the basis of the other parts: ceilings, kernel tests, the speed of GPT-2 compared with PyTorch, and the
parts of its time."""
import json

from gpu_check.check import ROOT, Step
from gpu_check.machine import env_of_python
from gpu_check.training import gpt2, losses, settings_as_words, speed

LIMIT_S = 300


def torch_json(check, name, script, *words, limit_s=120):
    """Records and returns the JSON that a PyTorch script prints, or returns None if it prints none."""
    if not check.python:
        return check.note(name, False, why="no PyTorch") or None
    done = check.run(*check.python, ROOT / "scripts" / script, *words, env=env_of_python(check), limit_s=limit_s)
    check.log(name, done.out + done.err)
    try:
        result = json.loads(done.out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return check.note(name, False, why=done.why()) or None
    # Results that were printed before a failure are kept, but the check has failed.
    check.note(name, done.code == 0, **{key: value for key, value in result.items() if key != "gemms"}, **({} if done.code == 0 else {"why": done.why()}))
    return result


def ceilings(check):
    result = torch_json(check, "ceilings", "torch_ceilings.py", *(["--tiny"] if check.tiny else []))
    for key in ("gemm_TFLOPs", "copy_GBps", "launch_us", "event_us") if result else ():
        check.headline(key, result.get(key))


def gpu_tests(check):
    done = check.run(check.program("gpu_tests"))
    check.log("gpu_tests", done.out + done.err)
    last = (done.out.strip().splitlines() or [""])[-1]
    if check.note("gpu_tests", done.code == 0, last=last, **({} if done.code == 0 else {"why": done.why()})):
        check.headline("gpu_tests", last)


def loss_bf16(check):
    check.headline("loss_bf16", losses(check, "bf16", 2e-2))


def gpt2_124m(check):
    fast = speed(check, "124m", 64)
    for key, value in (fast or {}).items():
        check.headline(f"gpt2-124m {key}", value)


def torch_speed(check, name, *words):
    """Records the speed of GPT-2 in PyTorch."""
    for micro_batch in (64, 32):  # the second size where the memory does not suffice
        size = ["--micro-batch", micro_batch, *(["--size", "tiny"] if check.tiny else [])]
        result = torch_json(check, f"PyTorch, {name}", "torch_gpt2.py", *size, *words)
        if result and result.get("tokens_per_s"):
            check.headline(f"PyTorch {name} tokens_per_s", round(result["tokens_per_s"]))
        if result or "out of memory" not in str(check.results["checks"][-1].get("why")):
            break
    theirs = [value for key, value in check.results["headlines"].items() if key.startswith("PyTorch ") and value]
    ours = check.results["headlines"].get("gpt2-124m tokens_per_s")
    if theirs and ours:
        check.headline("stretto_over_torch", round(ours / max(theirs), 3))


def torch_compile(check):
    torch_speed(check, "compile")


def torch_compile_cudnn(check):
    torch_speed(check, "compile, cuDNN's attention", "--cudnn-attention")


def torch_eager(check):
    torch_speed(check, "eager", "--eager")


def profile_of(check, size, batch):
    """Records by how much a step exceeds its critical path's operations, the rate of its GEMMs, and which operations are
    furthest from their lower bounds. Returns the profile."""
    scenario, settings = gpt2(check, size, batch)
    name = f"profile gpt2-{size}, {batch} x 1024, all fused"
    result, done = check.json_of("profile", scenario, "--backend", "cuda", "--set", f"compare.repeats={2 if check.tiny else 5}",
                                 *settings_as_words(settings))
    if not result:
        return check.note(name, False, why=done.why()) or None
    check.detail("profiles", name, result)
    gaps = [f"{o['name']} {o['total_ms']:.2f} of {o['calls'] * (o['floor_us'] or 0) * 1e-3:.2f} ms" for o in result["operations"][:8]]
    gemms = [o for o in result["operations"] if o["work"].startswith("gemm ")]
    result["gemm_TFLOPs"] = 1e-9 * sum(o["flops"] * o["calls"] for o in gemms) / sum(o["total_ms"] for o in gemms)
    check.note(name, done.code == 0, step_ms=round(result["median_step_ms"], 3), overhead_pct=round(result["overhead_pct"], 2),
               gemm_TFLOPs=round(result["gemm_TFLOPs"], 1), furthest_from_floor=gaps,
               notes=[line for line in done.out.splitlines() if line.startswith("note: ")])
    return result


def profile(check):
    result = profile_of(check, "124m", 64)
    if result:
        check.headline("step_over_critical_path", round(result["step_over_critical_path"], 4))


STEPS = [
    Step(ceilings, 45, ("gemm_TFLOPs", "copy_GBps", "launch_us", "event_us")),
    Step(gpu_tests, 120, ("gpu_tests",)),
    Step(loss_bf16, 25, ("loss_bf16",)),
    Step(gpt2_124m, 45, ("gpt2-124m tokens_per_s", "gpt2-124m mfu")),
    Step(torch_compile, 80, ("PyTorch compile tokens_per_s", "stretto_over_torch")),
    Step(torch_compile_cudnn, 60, ("PyTorch compile, cuDNN's attention tokens_per_s",)),
    Step(profile, 40, ("step_over_critical_path",)),
    Step(torch_eager, 40, ("PyTorch eager tokens_per_s",)),
]
