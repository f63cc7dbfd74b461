"""Measures ranks in separate processes, connected by NCCL on one GPU, and the effects of a failure or of too little
memory."""
import os
import pathlib
import signal
import subprocess
import threading
import time

from gpu_check.check import ROOT, Step, kill_group
from gpu_check.training import gpt2, settings_as_words, small, train, worst_difference

LIMIT_S = 270
KNOWN_WITHIN_S = 10  # time after a rank's death in which all others must have ended with an error that names it

TWO_AXES = ["parallel.data_parallel_size=2", "parallel.tensor_model_parallel_size=2", "parallel.sequence_parallel=true",
            "overlap.overlap_grad_reduce=true", "overlap.overlap_param_gather=true", "overlap.tp_comm_overlap=true"]
RUNS = [  # name, ranks, settings and mode
    ("overlap_param_gather", 2, ["parallel.data_parallel_size=2"], ["--mode", "overlap_param_gather"]),
    ("tp_comm_overlap", 2, ["parallel.tensor_model_parallel_size=2", "parallel.sequence_parallel=true"], ["--mode", "tp_comm_overlap"]),
    ("overlap_p2p_comm", 2, ["parallel.pipeline_model_parallel_size=2"], ["--mode", "overlap_p2p_comm"]),
    ("cp_comm_overlap", 2, ["parallel.context_parallel_size=2"], ["--mode", "cp_comm_overlap"]),
    ("overlap_param_gather", 4, ["parallel.data_parallel_size=4"], ["--mode", "overlap_param_gather"]),
    # Communicators of two axes, whose kernels wait concurrently in one graph.
    ("dp and tp", 4, TWO_AXES, []),
]


def backend_of_processes(check):
    return "host" if check.tiny else "cuda"  # each process has an emulated device of its own


def nccl(check):
    scenario, base = small(check)
    hung = passed = 0
    for what, ranks, settings, mode in RUNS:
        settings = [*base, *settings]
        name = f"NCCL, {what} at {ranks} processes"
        shared, why = train(check, scenario, settings, *mode, limit_s=40)
        patient = [*settings, "training.timeout_s=20"]
        apart, why_apart = train(check, scenario, patient, *mode, "--ranks", ranks, backend=backend_of_processes(check), limit_s=60)
        if not apart and "capturing" in why_apart:
            check.note(f"NCCL in graphs, {what} at {ranks} processes", False, why=why_apart)
            apart, why_apart = train(check, scenario, [*patient, "training.enable_cuda_graph=false"], *mode, "--ranks", ranks, limit_s=60)
        if not shared or not apart:
            check.note(name, False, why=why or why_apart)
            hung += any(text in why_apart for text in ("within 20 s", "after 20 s", "stopped after"))
            if hung == 2:
                return  # two ranks on one device may wait for each other, by NVIDIA's own documentation
            continue
        difference = worst_difference(shared, apart)
        passed += bool(check.note(name, difference < 1e-3, loss_difference=difference, notes=apart["notes"]))
    if passed == len(RUNS):
        check.headline("nccl", f"{passed} layouts")


def children(parent):
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = int(stat.parent.name), stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(rest[1]) == parent:
            found.append(pid)
    return sorted(found)


def failing_rank(check, what, how, within_s, *more):
    """Sends a signal to one of four processes. The other processes must end with an error that names it."""
    scenario, base = small(check)
    name = f"NCCL, one of 4 processes {what}"
    words = settings_as_words([*base, "parallel.data_parallel_size=4", "training.train_iters=100000", *more])
    process = check.start([check.stretto, "train", scenario, "--backend", backend_of_processes(check), "--ranks", 4, *words], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)

    def kill_all():  # a stopped rank receives no other signal, and keeps the pipes open
        for one in [*children(process.pid), process.pid]:
            try:
                os.kill(one, signal.SIGKILL)
            except ProcessLookupError:
                pass

    give_up = threading.Timer(max(1, check.left_s() - 1), kill_all)
    give_up.start()
    # From the third step on all steps are graphs.
    trains = any(line.startswith("step     3/") for line in process.stdout)
    begin = time.time()
    if trains:
        os.kill(children(process.pid)[2], how)
    _, err = process.communicate()
    give_up.cancel()
    kill_group(process)
    check.running.discard(process)
    took_s = round(time.time() - begin, 1)
    ok = trains and process.returncode == 1 and took_s < within_s and "rank 2" in err
    check.note(name, ok, took_s=took_s, says=err.strip()[-300:])
    if ok:
        check.headline(f"rank {what}, known after s", took_s)


def killed_rank(check):
    failing_rank(check, "killed", signal.SIGKILL, KNOWN_WITHIN_S)


def hung_rank(check):
    # It counts as hung after timeout_s; the others must notice within as long as after a death.
    failing_rank(check, "stopped", signal.SIGSTOP, 5 + KNOWN_WITHIN_S, "training.timeout_s=5")


def out_of_memory(check):
    scenario, settings = gpt2(check, "1558m", 1024)
    enough = ["model.hidden_size=30000", "model.num_attention_heads=3"] if check.tiny else []
    result, why = train(check, scenario, [*settings, *enough], limit_s=30)
    if check.note("memory that does not suffice is said", not result and "out of memory" in why and "largest buffers" in why, says=why):
        check.headline("out_of_memory", "said beforehand")


STEPS = [
    Step(killed_rank, 50, ("rank killed, known after s",)),
    Step(nccl, 150, ("nccl",)),
    Step(hung_rank, 50, ("rank stopped, known after s",)),
    Step(out_of_memory, 20, ("out_of_memory",)),
]
