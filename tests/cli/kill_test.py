"""kill -9 at random moments, many times, does not change the result: a run that is restarted until it is done ends
with the bytes of an undisturbed run. Ranks are threads in one test and processes in another; there one process, the
starting process or all processes are killed. STRETTO_KILL_ROUNDS (rounds of each test) and STRETTO_KILLS (kills per
round) make the test longer; scripts/soak does that. A failure prints the seed; STRETTO_KILL_SEED repeats it."""
import fcntl
import os
import random
import signal
import time

from program import ProgramTest, main

ROUNDS = int(os.environ.get("STRETTO_KILL_ROUNDS", 1))
KILLS = int(os.environ.get("STRETTO_KILLS", 3))
SEED = int(os.environ.get("STRETTO_KILL_SEED", time.time_ns() % 1_000_000))
STEPS = 100


def children(process):
    try:
        with open(f"/proc/{process}/task/{process}/children") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []  # it has ended


def kill(process):
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Kill(ProgramTest):
    def train(self, folder, *more):
        return ["train", self.tiny, "--set", f"training.train_iters={STEPS}", "--set", "training.checkpoint_interval=1", "--set",
                f"training.checkpoint_dir={folder}", *more]

    def final(self, folder):
        """Returns the files of the last checkpoint; with several processes these are a manifest and shards."""
        return {path.name: path.read_bytes() for path in (self.folder / folder).glob(f"step-{STEPS:08}*")}

    def wait_for_end(self, folder):
        """Waits for ranks that have lost their parent; they end after their current step."""
        lock = self.folder / folder / "stretto.lock"
        if lock.exists():
            with open(lock) as file:
                fcntl.flock(file, fcntl.LOCK_EX)

    def disturb(self, kind, *ranks):
        begin = time.monotonic()
        loss = self.json(*self.train("undisturbed" + kind, *ranks))["steps"][-1]["loss"]
        duration = time.monotonic() - begin
        resumed = 0
        for round in range(ROUNDS):
            chance = random.Random(SEED + round)
            folder = f"{kind}{round}"
            for _ in range(KILLS):
                process = self.start(*self.train(folder, *ranks))
                time.sleep(chance.uniform(0, 1.5 * duration / KILLS))
                family = children(process.pid)
                victims = chance.choice([[process.pid], [process.pid, *family], family[:1], family[1:]]) if ranks else [process.pid]
                for victim in victims:
                    kill(victim)
                out, err = process.communicate(timeout=60)
                self.assertIn(process.returncode, (-9, 0, 1) if ranks else (-9, 0), err)
                resumed += "resumed from" in out
            self.wait_for_end(folder)
            with self.subTest(seed=SEED + round):
                end = self.json(*self.train(folder, *ranks))["steps"]
                self.assertEqual(self.final(folder), self.final("undisturbed" + kind))
                if end:  # the killed runs may have finished
                    self.assertEqual(end[-1]["loss"], loss)
                self.assertEqual(len(self.final(folder)), 3 if ranks else 1)
                of_step = lambda step: {name.replace(f"{STEPS:08}", f"{step:08}") for name in self.final(folder)}
                found = set(os.listdir(self.folder / folder))
                if not end:  # killed after the last checkpoint was complete, and maybe before an older one was removed
                    found -= of_step(STEPS - 2)
                self.assertEqual(found, {*of_step(STEPS - 1), *of_step(STEPS), "stretto.lock"})
        print(f"{kind}: {ROUNDS} rounds of {KILLS} kills, {resumed} of the killed runs had resumed, seed {SEED}")

    def test_killed_threads_end_as_undisturbed_ones(self):
        self.disturb("threads")

    def test_killed_processes_end_as_undisturbed_ones(self):
        self.disturb("processes", "--ranks", "2")


if __name__ == "__main__":
    main()
