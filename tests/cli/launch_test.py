"""Every rank is a process: --ranks, launchers as their environments look, and the effects of a rank that dies or
hangs."""
import errno
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import subprocess
import time
import unittest

from program import FAIL_IO, LIMITS_MEMORY, STRETTO, ProgramTest, main, slow

LONG = ["--set", "training.train_iters=100000"]


def free_port():
    """Returns a port that is free together with the next one, which torchrun leaves to its processes; both are below
    the ports that the system assigns to outgoing connections."""
    while True:
        port = random.randrange(10000, 30000)
        try:
            with socket.socket() as first, socket.socket() as second:
                first.bind(("0.0.0.0", port))
                second.bind(("0.0.0.0", port + 1))
                return port
        except OSError:
            pass


class Launch(ProgramTest):
    def losses(self, *arguments):
        return [step["loss"] for step in self.json("train", self.tiny, *arguments)["steps"]]

    def children(self, process):
        with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
            return [int(child) for child in file.read().split()]

    def is_running(self, process):
        try:
            with open(f"/proc/{process}/stat") as file:
                return file.read().split()[2] != "Z"
        except FileNotFoundError:
            return False

    def start_ranks(self, ranks, *arguments):
        """Starts the ranks. Returns when they have trained the first step."""
        process = self.start("train", self.tiny, "--ranks", ranks, *LONG, *arguments)
        self.addCleanup(process.kill)
        for line in process.stdout:
            if line.startswith("step "):
                break
        return process, self.children(process)

    def end(self, process):
        begin = time.monotonic()
        out, err = process.communicate(timeout=60)
        return time.monotonic() - begin, out, err

    def launched(self, *environments, arguments=()):
        """Starts a process for each environment. Returns the processes when they have ended."""
        port = free_port()
        processes = []
        for environment in environments:
            self.environment = dict(os.environ, HOME=str(self.folder), MASTER_ADDR="localhost", MASTER_PORT=str(port), **environment)
            processes.append(self.start("train", self.tiny, *arguments))
        for process in processes:
            process.out, process.err = process.communicate(timeout=120)
        return processes

    def test_processes_train_what_threads_do(self):
        for layout in (["parallel.data_parallel_size=3"], ["parallel.tensor_model_parallel_size=3", "parallel.data_parallel_size=1"],
                       ["parallel.pipeline_model_parallel_size=2", "parallel.data_parallel_size=2"]):
            keys = [part for key in layout for part in ("--set", key)]
            ranks = 4 if "pipeline" in layout[0] else 3
            self.assertEqual(self.losses(*keys, "--ranks", ranks), self.losses(*keys))

    def test_the_number_of_processes_decides_data_parallelism(self):
        out = self.ok("train", self.tiny, "--ranks", 4).out
        self.assertIn("note: data_parallel_size is 4 and not 2: there are 4 processes", out)
        self.assertIn("4 ranks", out)
        self.fails(2, "train", self.tiny, "--ranks", 5, "--set", "parallel.tensor_model_parallel_size=3",
                   says=["5 processes were started", "multiple", "= 3"])
        self.fails(2, "train", self.tiny, "--ranks", 5, says=["global_batch_size", "5"])
        self.fails(2, "train", self.tiny, "--ranks", 2, "--set", "training.data=nowhere.txt", says=["nowhere.txt"])
        self.fails(2, "train", self.tiny, "--ranks", 0, says=["--ranks"])
        self.assertEqual(len(self.losses("--ranks", 1)), 6)

    def test_a_scenario_that_only_the_processes_make_possible(self):
        out = self.ok("train", self.tiny, "--ranks", 3, "--set", "training.global_batch_size=15").out
        self.assertIn("note: data_parallel_size is 3: there are 3 processes", out)
        self.fails(2, "train", self.tiny, "--ranks", 3, "--set", "training.global_batch_size=16", says=["global_batch_size"])

    def test_ranks_where_a_launcher_has_started_this(self):
        self.environment.update(SLURM_PROCID="0", SLURM_STEP_NUM_TASKS="1", SLURM_STEP_NODELIST="localhost")  # a shell
        self.assertIn("2 ranks", self.ok("train", self.tiny, "--ranks", 2).out)
        self.environment.update(RANK="0", WORLD_SIZE="2", MASTER_ADDR="localhost")
        self.fails(2, "train", self.tiny, "--ranks", 2, says=["--ranks", "torchrun has started 2 processes already"])

    def test_standard_streams_that_are_closed(self):
        for closed in ((0,), (0, 1), (0, 1, 2)):
            result = self.folder / "result.json"
            result.unlink(missing_ok=True)
            process = self.start("train", self.tiny, "--ranks", 2, "--json", result, preexec_fn=lambda: [os.close(c) for c in closed])
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, 1 if 1 in closed else 0)
            self.assertEqual(len(json.loads(result.read_text())["steps"]), 6)

    def test_where_the_end_of_children_is_ignored(self):
        process = self.start("train", self.tiny, "--ranks", 2, restore_signals=False,
                             preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.addCleanup(process.kill)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)

    def test_checkpoints_that_not_all_see_are_wrong_input_on_every_rank(self):
        port = free_port()
        folders = [self.folder / f"machine{rank}" for rank in range(2)]
        settings = ["--set", "training.checkpoint_dir=ck", "--set", "training.lr_warmup_iters=1", "--set", "training.lr_decay_iters=9"]

        def run(code, says):
            processes = []
            for rank in range(2):
                environment = dict(self.environment, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=str(port))
                processes.append(subprocess.Popen(
                    [STRETTO, "train", "tiny.toml", *settings, "--set", "training.train_iters=4"],
                    cwd=folders[rank], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            for process in processes:  # the port is reused at once
                _, err = process.communicate(timeout=60)
                self.assertEqual((process.returncode, len(err.splitlines())), (code, 1), err)
                self.assertIn(says, err)

        for folder in folders:
            folder.mkdir()
            for name in ("tiny.toml", "text.txt"):
                shutil.copy(self.folder / name, folder)
        run(2, "expected one that all processes see; ck/stretto.lock, which rank 0 has made, is not there")
        # The folder has a lock file of an earlier run.
        (folders[1] / "ck").mkdir()
        (folders[1] / "ck/stretto.lock").touch()
        run(2, "rank 1 has written ck/step-00000004-rank-00001-of-00002.safetensors, which rank 0 does not see")
        self.assertEqual(list((folders[0] / "ck").glob("step-00000004.*")), [])
        for folder, steps in zip(folders, (2, 3)):
            process = subprocess.run([STRETTO, "train", "tiny.toml", *settings, "--set", f"training.train_iters={steps}"], cwd=folder,
                                     env=self.environment, capture_output=True, text=True)
            self.assertEqual(process.returncode, 0, process.stderr)
        run(2, "rank 0 found that of step 2 and rank 1 that of step 3")

    def test_torchrun_and_mpi_environments(self):
        reference = self.losses()
        for ranks in ([{"RANK": str(r), "WORLD_SIZE": "2", "LOCAL_RANK": str(r)} for r in range(2)],
                      [{"PMI_RANK": str(r), "PMI_SIZE": "2"} for r in range(2)],
                      [{"SLURM_PROCID": str(r), "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": str(r)} for r in range(2)]):
            first, second = self.launched(*ranks)
            self.assertEqual(first.returncode, 0, first.err)
            self.assertEqual(second.returncode, 0, second.err)
            self.assertEqual(second.out, "")  # rank 0 reports
            shown = [float(line.split("loss")[1].split()[0]) for line in first.out.splitlines() if line.startswith("step ")]
            self.assertEqual(shown, [round(loss, 5) for loss in reference])

    def test_processes_that_were_given_different_things(self):
        ranks = [{"RANK": str(r), "WORLD_SIZE": "2"} for r in range(2)]
        port = free_port()
        processes = []
        for rank in range(2):
            self.environment = dict(os.environ, MASTER_ADDR="localhost", MASTER_PORT=str(port), **ranks[rank])
            processes.append(self.start("train", self.tiny, "--set", f"training.train_iters={3 + rank}"))
        for process in processes:
            _, err = process.communicate(timeout=60)
            self.assertNotEqual(process.returncode, 0)
            self.assertIn("rank 1 has another scenario, backend or version of stretto than rank 0", err)

    @unittest.skipUnless(shutil.which("mpirun"), "Open MPI is not installed")
    def test_mpirun(self):
        process = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", STRETTO, "train", self.tiny],
                                 cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=120)
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertEqual(process.stdout.count("step "), 7)  # and a line with the median

    @unittest.skipUnless(shutil.which("torchrun"), "PyTorch is not installed")
    @slow
    def test_torchrun(self):
        """The two options that name the nonexistent rank 9 are for Debian 12 (docs/launch.md)."""
        port = free_port()
        command = ["torchrun", "--no_python", "--redirects", "9:1", "--tee", "9:1", "--nproc_per_node", "2", "--master_port", str(port),
                   STRETTO, "train", self.tiny]
        options = {"cwd": self.folder, "env": self.environment, "stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        reference = self.losses()
        process = subprocess.Popen(command, **options)
        out, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0, err)
        shown = [float(line.split("loss")[1].split()[0]) for line in out.splitlines() if line.startswith("step ")]
        self.assertEqual(shown, [round(loss, 5) for loss in reference])

        process = subprocess.Popen(command + LONG, **options)
        self.addCleanup(process.kill)
        next(line for line in process.stdout if line.startswith("step "))
        ranks = [child for child in self.children(process) if STRETTO.encode() in pathlib.Path(f"/proc/{child}/cmdline").read_bytes()]
        self.assertEqual(len(ranks), 2)
        os.kill(ranks[1], signal.SIGKILL)
        _, err = process.communicate(timeout=300)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("rank 1", err)
        for rank in ranks:
            self.assertFalse(self.is_running(rank))

    def test_a_rank_that_is_killed_ends_all_at_once(self):
        process, ranks = self.start_ranks(4)
        self.assertEqual(len(ranks), 4)
        os.kill(ranks[2], signal.SIGKILL)
        took, _, err = self.end(process)
        self.assertEqual(process.returncode, 1)
        self.assertIn("rank 2 was killed by signal 9", err)
        print(f"one of 4 killed: all ended after {took:.3f} s")
        self.assertLess(took, 5)
        for rank in ranks:
            self.assertFalse(self.is_running(rank))

    @slow
    def test_a_rank_that_hangs_trips_the_timeout(self):
        for stopped in (1, 0):  # within a step or between two
            process, ranks = self.start_ranks(3, "--set", "training.timeout_s=3")
            os.kill(ranks[stopped], signal.SIGSTOP)
            took, _, err = self.end(process)
            self.assertEqual(process.returncode, 1)
            # Three checks run concurrently, and on a busy machine any of them may be the first: heartbeats, a rank that
            # waits in a step (it names the rank that it waits for), and the parent.
            self.assertRegex(err, f"^stretto: (rank {stopped} has shown no sign of life for 2.25 s|.* waited 3.* for rank.*"
                                  f"|rank {stopped} has been stopped \\(SIGSTOP\\) for 3 s)\n$")
            print(f"rank {stopped} of 3 stopped, timeout_s 3: all ended after {took:.3f} s")
            for rank in ranks:
                self.assertFalse(self.is_running(rank))

    @slow
    def test_ranks_that_are_stopped_together_are_named(self):
        for stopped, says in (((0, 1, 2), "ranks 0, 1, 2 have been stopped (SIGSTOP) for 2 s"), ((0, 1), "rank")):
            process, ranks = self.start_ranks(3, "--set", "training.timeout_s=2")
            for rank in stopped:
                os.kill(ranks[rank], signal.SIGSTOP)
            took, _, err = self.end(process)
            self.assertEqual((process.returncode, len(err.splitlines())), (1, 1), err)
            self.assertIn(says, err)
            print(f"ranks {stopped} of 3 stopped, timeout_s 2: all ended after {took:.3f} s: {err.strip()}")

    def test_sigterm_ends_ranks_that_are_stopped(self):
        process, ranks = self.start_ranks(2)
        for rank in ranks:
            os.kill(rank, signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        took, _, err = self.end(process)
        self.assertEqual((process.returncode, len(err.splitlines())), (1, 1), err)
        self.assertLess(took, 20)

    def test_too_few_descriptors_or_too_little_memory_is_said(self):
        def limit(what, most):
            return lambda: resource.setrlimit(what, (most, most))

        self.fails(1, "train", self.tiny, "--ranks", 6, preexec_fn=limit(resource.RLIMIT_NOFILE, 9), says=["Too many open files"])
        for most in (90 << 20, 400 << 20) if LIMITS_MEMORY else ():  # OpenBLAS would retry forever
            self.fails(1, "train", self.tiny, preexec_fn=limit(resource.RLIMIT_AS, most), says=["OpenBLAS needs 128 MiB"])

    def test_strangers_do_not_keep_a_job_from_beginning(self):
        port = free_port()
        strangers = []
        self.addCleanup(lambda: [stranger.close() for stranger in strangers])

        def start(rank, token):
            self.environment = dict(os.environ, HOME=str(self.folder), RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="localhost",
                                    MASTER_PORT=str(port), STRETTO_TOKEN=token)
            process = self.start("train", self.tiny)
            self.addCleanup(process.kill)
            return process

        first = start(0, "secret")
        while len(strangers) < 20:
            try:
                strangers.append(socket.create_connection(("localhost", port + 1), timeout=5))
            except OSError:
                self.assertIsNone(first.poll())
                time.sleep(0.02)
        for i, stranger in enumerate(strangers[:10]):
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n"[: i + 1])
        wrong = start(1, "guessed")
        _, err = wrong.communicate(timeout=60)
        self.assertEqual((wrong.returncode, len(err.splitlines())), (1, 1), err)
        self.assertIn("rank 1 has another token", err)
        begin = time.monotonic()
        second = start(1, "secret")
        for process in (first, second):
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, err)
        print(f"20 silent connections: joined and trained in {time.monotonic() - begin:.3f} s")

    def test_ranks_that_all_stop_and_go_on_are_well(self):
        process, ranks = self.start_ranks(3, "--set", "training.timeout_s=8")  # heartbeats count for 6 s
        for rank in ranks:
            os.kill(rank, signal.SIGSTOP)
        time.sleep(6.4)
        for rank in ranks:
            os.kill(rank, signal.SIGCONT)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, _, err = self.end(process)
        self.assertNotIn("sign of life", err)  # a step of more than 8 s fails too, on a busy machine

    def test_who_stops_reading_is_not_told(self):
        process, ranks = self.start_ranks(2)
        process.stdout.close()
        self.assertEqual(process.stderr.read(), "")
        self.assertEqual(process.wait(60), 1)
        for rank in ranks:
            self.assertFalse(self.is_running(rank))

    def test_ranks_end_with_the_process_that_started_them(self):
        process, ranks = self.start_ranks(2)
        process.kill()
        process.communicate()
        for _ in range(100):
            if not any(self.is_running(rank) for rank in ranks):
                return
            time.sleep(0.1)
        self.fail("ranks live on")

    def test_interrupted_and_resumed_by_another_number_of_processes(self):
        whole = self.losses("--set", "training.train_iters=40")
        process = self.start("train", self.tiny, "--ranks", 3, "--set", "training.train_iters=40", "--set", "training.checkpoint_dir=ck")
        for line in process.stdout:
            if line.startswith("step     3/"):
                break
        process.send_signal(signal.SIGINT)
        _, out, err = self.end(process)
        if process.returncode == 0:
            self.skipTest("it was too quick")
        self.assertEqual(process.returncode, 1, err)
        self.assertEqual(err.count("interrupted"), 1)
        rest = self.json("train", self.tiny, "--ranks", 2, "--set", "training.train_iters=40", "--set", "training.checkpoint_dir=ck")
        self.assertGreaterEqual(rest["resumed_from"], 3)
        for step in rest["steps"]:
            self.assertAlmostEqual(step["loss"], whole[step["step"]], delta=1e-4 * step["loss"])

    def tensors(self, path):
        """Returns the metadata, and name → dtype, shape and bytes, from a safetensors file."""
        data = path.read_bytes()
        end = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:end])
        metadata = header.pop("__metadata__")
        return metadata, {name: (t["dtype"], t["shape"], data[end + t["data_offsets"][0]:end + t["data_offsets"][1]]) for name, t in header.items()}

    def whole(self, manifest):
        """Returns the tensors of a checkpoint in shards, assembled as docs/checkpoint.md specifies."""
        metadata, none = self.tensors(manifest)
        self.assertEqual(none, {})
        count, whole = int(metadata["shards"]), {}
        for key, value in metadata.items():
            if key.startswith("tensor "):
                dtype, rows, cols = value.split(":")[0].split()
                whole[key[len("tensor "):]] = (dtype, [int(rows), int(cols)], bytearray(4 * int(rows) * int(cols)))
        filled = {name: 0 for name in whole}
        for shard in range(count):
            of_shard, parts = self.tensors(manifest.parent / f"{manifest.stem}-rank-{shard:05}-of-{count:05}.safetensors")
            self.assertEqual(of_shard["checksum"], metadata["shard_checksums"].split()[shard])
            for name, (_, shape, data) in parts.items():
                tensor, _, where = name.partition("[")
                self.assertIn(str(shard), metadata["tensor " + tensor].split(":")[1].split())
                row, col = [int(span.split(":")[0]) for span in where[:-1].split(",")] if where else (0, 0)
                cols, to = whole[tensor][1][1], whole[tensor][2]
                for i in range(shape[0]):
                    at = 4 * ((row + i) * cols + col)
                    to[at:at + 4 * shape[1]] = data[4 * i * shape[1]:4 * (i + 1) * shape[1]]
                filled[tensor] += len(data)
        self.assertEqual(filled, {name: len(data) for name, (_, _, data) in whole.items()})
        return {name: (dtype, shape, bytes(data)) for name, (dtype, shape, data) in whole.items()}

    def test_a_checkpoint_of_processes_is_that_of_threads(self):
        name = "step-00000006.safetensors"
        for layout in ([], ["--set", "parallel.tensor_model_parallel_size=3", "--set", "parallel.data_parallel_size=1"]):
            ranks = ["--ranks", 3 if layout else 2]
            self.losses(*layout, "--set", "training.checkpoint_dir=threads")
            self.losses(*layout, "--set", "training.checkpoint_dir=processes", *ranks)
            self.assertEqual(self.whole(self.folder / "processes" / name), self.tensors(self.folder / "threads" / name)[1])
            # Neither memory nor disk has any element twice: the shards have about equal sizes.
            sizes = [path.stat().st_size for path in (self.folder / "processes").glob("step-00000006-rank-*")]
            self.assertLess(max(sizes), 1.2 * min(sizes))
            for folder in ("threads", "processes"):
                self.ok("export", f"{folder}/{name}", "-o", f"{folder}.safetensors")
            self.assertEqual(*[(self.folder / f"{folder}.safetensors").read_bytes() for folder in ("threads", "processes")])
            for folder in ("threads", "processes"):
                shutil.rmtree(self.folder / folder)

    def test_processes_and_threads_go_on_with_each_others_checkpoints(self):
        self.losses("--set", "training.checkpoint_dir=undisturbed")
        other = ["--set", "overlap.bucket_size=300"]  # the optimizer's shards differ
        for steps, how in ((2, ["--ranks", 2]), (3, []), (4, [*other, "--ranks", 2]), (5, other), (6, ["--ranks", 2])):
            self.losses("--set", "training.checkpoint_dir=mixed", "--set", "training.lr_decay_iters=6", "--set",
                        f"training.train_iters={steps}", *how)
        name = "step-00000006.safetensors"
        self.assertEqual(self.whole(self.folder / "mixed" / name), self.tensors(self.folder / "undisturbed" / name)[1])

    @unittest.skipUnless(FAIL_IO, "needs the library that makes calls fail")
    def test_a_full_disk_under_one_rank_ends_all_and_leaves_the_checkpoint_before(self):
        train = ["train", self.tiny, "--set", "training.checkpoint_dir=ck", "--set", "training.lr_decay_iters=9", "--ranks", 3]
        self.ok(*train, "--set", "training.train_iters=2")
        before = {path.name: path.read_bytes() for path in (self.folder / "ck").glob("step-*")}
        self.assertEqual(len(before), 4)
        for call, part in (("write", "step-00000004-rank-00001"), ("fsync", "step-00000004-rank-00002"), ("write", "step-00000004-rank-00000"),
                           ("write", "step-00000004.safetensors")):
            self.fails(1, *train, "--set", "training.train_iters=4", says=[part, os.strerror(errno.ENOSPC)],
                       environment=self.environment_that_fails(call, part, errno.ENOSPC))
            after = {path.name: path.read_bytes() for path in (self.folder / "ck").glob("step-*")}
            # If a manifest cannot be written its shards exist, and the next save writes them again.
            if "rank" in part:
                self.assertEqual(after, before)
            self.assertEqual({name: data for name, data in after.items() if name in before}, before)
            self.assertNotIn("step-00000004.safetensors", after)
        self.assertIn("resumed from", self.ok(*train, "--set", "training.train_iters=4").out)

    def cores(self, *arguments, most=None):
        """Returns the set of cores of each rank, the union over its threads after the first step; and the lines about
        cores that rank 0 prints."""
        process = self.start("train", self.tiny, "--ranks", 2, *LONG, *arguments,
                             preexec_fn=(lambda: os.sched_setaffinity(0, most)) if most else None)
        self.addCleanup(process.kill)
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("step "):
                break
        sets = []
        for rank in self.children(process):
            threads = {frozenset(os.sched_getaffinity(int(thread))) for thread in os.listdir(f"/proc/{rank}/task")}
            sets.append(frozenset.union(*threads))
        process.send_signal(signal.SIGINT)
        self.end(process)
        return sets, [line for line in lines if "cores of their own" in line]

    @unittest.skipUnless(len(os.sched_getaffinity(0)) >= 2, "needs two cores")
    def test_processes_have_cores_of_their_own(self):
        everywhere = os.sched_getaffinity(0)
        (first, second), said = self.cores()
        self.assertEqual(first & second, set())
        self.assertLessEqual(first | second, everywhere)
        self.assertRegex(said[0], r"^note: cores of their own: rank 0 on [0-9,-]+, rank 1 on [0-9,-]+ \(docs/launch.md\)\n$")
        # Processors that confine both processes are divided; where that is one core, or they need more, they share.
        few = set(sorted(everywhere)[:2])
        (first, second), said = self.cores(most=few)
        self.assertEqual((first | second, first & second, len(said)), (few, set(), 1))
        one = {min(everywhere)}
        self.assertEqual(self.cores(most=one), ([one, one], []))
        for how in ("cluster.bind_cores_to_rank=false", f"cluster.cores_per_device={len(everywhere)}"):
            sets, said = self.cores("--set", how)
            self.assertEqual((frozenset.union(*sets), said), (everywhere, []))
        value = self.json("train", self.tiny, "--ranks", 2)
        self.assertEqual(len(value["cpu_affinity"]), 2)
        self.assertNotEqual(*value["cpu_affinity"])
        for alone in ([], ["--ranks", 1], ["--ranks", 2, "--set", "cluster.bind_cores_to_rank=false"]):
            self.assertIsNone(self.json("train", self.tiny, *alone)["cpu_affinity"])
        # A launcher has bound the processes.
        first, second = sorted(everywhere)[:2]
        port = free_port()
        processes = []
        for rank, core in ((0, second), (1, first)):
            self.environment = dict(os.environ, HOME=str(self.folder), MASTER_ADDR="localhost", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
            processes.append(self.start("train", self.tiny, preexec_fn=lambda core=core: os.sched_setaffinity(0, {core})))
        for process in processes:
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, err)
            self.assertNotIn("cores of their own", out)

    # AddressSanitizer keeps freed memory, so a peak is meaningless.
    @unittest.skipUnless(LIMITS_MEMORY, "needs the allocator of the system")
    def test_saving_takes_memory_for_a_shard_and_not_for_the_model(self):
        # Parameters and the optimizer's state are 12 bytes for each of 6.3 million parameters: 76 MB, 19 MB a rank.
        wide = [part for key in ("model.hidden_size=256", "model.num_layers=8", "model.num_attention_heads=4", "training.global_batch_size=4",
                                 "parallel.data_parallel_size=4", "overlap.bucket_size=1000000", "training.train_iters=100000")
                for part in ("--set", key)]

        def peaks(*more):
            process, ranks = self.start_ranks(4, *wide, *more)
            if more:
                for line in process.stdout:
                    if line.startswith("checkpoint "):
                        break
            status = [pathlib.Path(f"/proc/{rank}/status").read_text() for rank in ranks]
            process.kill()
            self.end(process)
            return [int(text.split("VmHWM:")[1].split()[0]) / 1024 for text in status]

        without, saving = peaks(), peaks("--set", "training.checkpoint_dir=ck", "--set", "training.checkpoint_interval=2")
        more = [b - a for a, b in zip(without, saving)]
        print(f"peak MiB of 4 ranks: {without} without checkpoints, {saving} with")
        self.assertLess(max(more), 10)  # the whole model has 73

    def test_a_loss_that_is_no_number_is_said_once(self):
        self.fails(1, "train", self.tiny, "--ranks", 3, "--set", "training.lr=1000", "--set", "training.lr_warmup_iters=0",
                   "--set", "training.init_method_std=100", "--set", "training.train_iters=40", says=["not finite"])


if __name__ == "__main__":
    main()
