"""What a machine has, and what is missing: said in the first seconds."""
import glob
import json
import os
import pathlib
import re
import shutil

LOOK_AT_TORCH = """
import json, torch, numpy
has = torch.cuda.is_available()
print(json.dumps({"torch": torch.__version__, "torch's CUDA": torch.version.cuda, "torch's GPU": has and torch.cuda.get_device_name(),
                  "torch's cuDNN": torch.backends.cudnn.version(), "torch's NCCL": has and str(torch.cuda.nccl.version())}))
"""
PLACES = ("/usr/local/cuda*/bin", "/usr/local/cuda*/compute-sanitizer", "/opt/nvidia/nsight-compute/*", "/opt/nvidia/*/bin")


def find_tool(name):
    """On PATH, or where NVIDIA's packages put it; None without."""
    found = shutil.which(name)
    for place in PLACES:
        for folder in sorted(glob.glob(place), reverse=True):
            found = found or shutil.which(name, path=folder)
    return found


def env_of_python(check):
    # Libraries that were packed with stretto are not for Python.
    packed = str(pathlib.Path(check.stretto).resolve().parent.parent / "lib")
    paths = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path and os.path.realpath(path) != packed]
    return dict(os.environ, LD_LIBRARY_PATH=":".join(paths))


def python_with_torch(check):
    """The command of a Python that has PyTorch, and what it says of itself; else None, and why not."""
    why = ""
    for python in ("python3", "/usr/bin/python3"):
        if not shutil.which(python):
            continue
        done = check.run(python, "-c", LOOK_AT_TORCH, env=env_of_python(check), limit_s=60)
        if done.code == 0:
            return [python, "-B"], json.loads(done.out.strip().splitlines()[-1])
        why += f"{python}: {(done.err.strip().splitlines() or [done.why()])[-1]} "
    return None, why or "no python3"


def llmc():
    """llm.c's program, where there is one."""
    return os.environ.get("STRETTO_LLMC") or shutil.which("train_gpt2cu")


def machine(check):
    found, missing = {}, []

    def see(name, value, why="not found"):
        if value:
            found[name] = value
        else:
            missing.append(f"{name} ({why})")
        print(f"         {name}: {value or 'MISSING, ' + why}", flush=True)

    def version(name, tool, *words, pattern=r"[Vv]ersion (\S+)|release (\S+),"):
        path = find_tool(tool)
        if not path:
            return see(name, None, f"no {tool}")
        done = check.run(path, *words, limit_s=15)
        matched = re.search(pattern, done.out + done.err)
        see(name, matched and next(group for group in matched.groups() if group), f"{path} says no version")

    see("stretto", check.run(check.stretto, "--version", limit_s=15).out.partition("\n")[0], "does not start")
    smi = check.run("nvidia-smi", "--query-gpu=name,driver_version,memory.total,power.limit,clocks.max.sm", "--format=csv,noheader",
                    limit_s=15) if shutil.which("nvidia-smi") else None
    rows = smi.out.strip().splitlines() if smi and smi.code == 0 else []
    see("GPU, driver, memory, power limit, most clock", rows[0] if rows else None, smi.why() if smi else "no nvidia-smi")
    see("GPUs", len(rows))
    version("nvcc", "nvcc", "--version")
    version("Nsight Compute", "ncu", "--version")
    version("compute-sanitizer", "compute-sanitizer", "--version")
    module = pathlib.Path(check.stretto).resolve().parent / "libstretto_cuda.so"
    if module.exists() and shutil.which("ldd"):
        lines = check.run("ldd", module, limit_s=15).out.splitlines()
        lost = [line.split()[0] for line in lines if "not found" in line]
        see("libraries of libstretto_cuda.so", not lost and "found", f"not found: {' '.join(lost)}")
        for name in ("cudnn", "nccl", "cublasLt", "cudart"):
            lib = next((line.split("=>")[1].split()[0] for line in lines if f"lib{name}.so" in line and "/" in line), None)
            if lib:
                see(f"lib{name}", os.path.realpath(lib))
    else:
        see("libstretto_cuda.so", None, f"not beside {check.stretto}")
    try:
        see("gpu_tests", check.program("gpu_tests"))
    except FileNotFoundError as error:
        see("gpu_tests", None, str(error))
    see("llm.c", llmc(), "neither STRETTO_LLMC nor train_gpt2cu on PATH")
    check.python, about = python_with_torch(check)
    for name, value in about.items() if check.python else ():
        see(name, value)
    if not check.python:
        see("PyTorch", None, about)
    see("MPS", shutil.which("nvidia-cuda-mps-control"))
    see("processor", f"{os.cpu_count()} cores")
    check.results["machine"] = {"found": found, "missing": missing}
    check.results.update(device=rows[0] if rows else "unknown", version=found.get("stretto", "unknown"))
    check.note("machine", True, missing=missing)
