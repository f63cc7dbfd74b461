"""Prints the hardware and tools of the machine, and which of them are missing, in the first seconds."""
import glob
import json
import os
import pathlib
import re
import shutil
import sys

from gpu_check.check import NoProgram

# The versions that the driver and the libraries report, as the loader finds them for stretto. A list says why there is
# none.
LOOK_AT_LIBRARIES = """
import ctypes, json

def gpu(cuda):
    if code := cuda.cuInit(0):
        raise OSError(f"cuInit: error {code}")
    count, device, sms, version = (ctypes.c_int() for _ in range(4))
    memory, name = ctypes.c_size_t(), ctypes.create_string_buffer(256)
    if cuda.cuDeviceGetCount(ctypes.byref(count)) or not count.value or cuda.cuDeviceGet(ctypes.byref(device), 0):
        raise OSError("the driver has no device")
    cuda.cuDeviceGetName(name, 256, device)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    cuda.cuDeviceGetAttribute(ctypes.byref(sms), 16, device)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    return f"{name.value.decode()}, {sms.value} SMs, {memory.value / 2**30:.1f} GiB, CUDA {version.value / 1000}"

def cudnn(library):
    library.cudnnGetVersion.restype = ctypes.c_size_t
    return library.cudnnGetVersion()

def nccl(library):
    version = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(version))
    return version.value

for what, name, ask in (("GPU by the driver", "libcuda.so.1", gpu), ("cuDNN", "libcudnn.so.9", cudnn), ("NCCL", "libnccl.so.2", nccl)):
    try:
        answer = ask(ctypes.CDLL(name))
    except (OSError, AttributeError) as error:
        answer = [str(error)]
    print(json.dumps([what, answer]), flush=True)
"""
LOOK_AT_TORCH = """
import json, torch
has = torch.cuda.is_available()
print(json.dumps({"torch": torch.__version__, "torch's CUDA": torch.version.cuda, "torch's GPU": has and torch.cuda.get_device_name(),
                  "torch's cuDNN": torch.backends.cudnn.version(), "torch's NCCL": has and str(torch.cuda.nccl.version())}))
"""
PLACES = ("/usr/local/cuda*/bin", "/usr/local/cuda*/compute-sanitizer", "/opt/nvidia/nsight-compute/*", "/opt/nvidia/*/bin")


def find_tool(name):
    """Returns the path of a tool on PATH or in the folders of NVIDIA's packages, or None."""
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
    """Returns the command of a Python that has PyTorch with a GPU and that Python's versions; or None, and the
    reason."""
    why = ""
    for python in dict.fromkeys(filter(None, map(shutil.which, ("python3", "/usr/bin/python3")))):
        done = check.run(python, "-c", LOOK_AT_TORCH, env=env_of_python(check), limit_s=60)
        if done.code == 0:
            about = json.loads(done.out.strip().splitlines()[-1])
            if about.get("torch's GPU"):
                return [python, "-B"], about
            why += f"{python}: PyTorch {about['torch']} has no GPU. "
            continue
        why += f"{python}: {(done.err.strip().splitlines() or [done.why()])[-1]} "
    return None, why or "no python3"


def llmc():
    """Returns the path of llm.c's program, or None."""
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
    seen = check.run(sys.executable, "-B", "-c", LOOK_AT_LIBRARIES, limit_s=30)
    answers = dict(json.loads(line) for line in seen.out.splitlines())
    for name in ("GPU by the driver", "cuDNN", "NCCL"):
        answer = answers.get(name, [seen.why()])
        see(name, None if isinstance(answer, list) else answer, str(answer[0]) if isinstance(answer, list) else "")
    version("nvcc", "nvcc", "--version")
    version("Nsight Compute", "ncu", "--version")
    version("compute-sanitizer", "compute-sanitizer", "--version")
    module = pathlib.Path(check.stretto).resolve().parent / "libstretto_cuda.so"
    if module.exists() and shutil.which("ldd"):
        lines = check.run("ldd", module, limit_s=15).out.splitlines()
        lost = [line.split()[0] for line in lines if "not found" in line]
        see("libraries of libstretto_cuda.so", not lost and "found", f"not found: {' '.join(lost)}")
        for name in ("cublas", "cublasLt", "cudart"):
            lib = next((line.split("=>")[1].split()[0] for line in lines if f"lib{name}.so" in line and "/" in line), None)
            if lib:
                see(f"lib{name}", os.path.realpath(lib))
    else:
        see("libstretto_cuda.so", None, f"not next to {check.stretto}")
    try:
        see("gpu_tests", check.program("gpu_tests"))
    except NoProgram as error:
        see("gpu_tests", None, str(error))
    see("llm.c", llmc(), "neither STRETTO_LLMC nor train_gpt2cu on PATH")
    device = rows[0] if rows else found.get("GPU by the driver")
    check.python, about = python_with_torch(check) if device else (None, "not looked for")
    for name, value in about.items() if check.python else ():
        see(name, value)
    if not check.python:
        see("PyTorch", None, about)
    see("MPS", shutil.which("nvidia-cuda-mps-control"))
    see("processor", f"{os.cpu_count()} cores")
    check.results["machine"] = {"found": found, "missing": missing}
    check.results.update(version=found.get("stretto", "unknown"))
    if device:
        check.results["device"] = device
    else:
        check.no_gpu = "; ".join(text for text in missing if text.startswith("GPU"))
    check.note("machine", bool(device), missing=missing)
