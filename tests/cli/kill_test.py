"""kill -9 at random moments, again and again, changes nothing: the run that is started again until it is done ends with
the bytes of the run that nobody disturbed. STRETTO_KILL_ROUNDS and STRETTO_KILLS (a round) make it longer; scripts/soak
does that. A failure prints the seed; STRETTO_KILL_SEED repeats it."""
import os
import random
import time

from program import ProgramTest, main

ROUNDS = int(os.environ.get("STRETTO_KILL_ROUNDS", 1))
KILLS = int(os.environ.get("STRETTO_KILLS", 3))
SEED = int(os.environ.get("STRETTO_KILL_SEED", time.time_ns() % 1_000_000))


class Kill(ProgramTest):
    def train(self, folder, *more):
        return ["train", self.tiny, "--set", "training.train_iters=300", "--set", "training.checkpoint_interval=2", "--set",
                f"training.checkpoint_dir={folder}", *more]

    def final(self, folder):
        return (self.folder / folder / "step-00000300.safetensors").read_bytes()

    def test_killed_runs_end_as_undisturbed_ones(self):
        begin = time.monotonic()
        loss = self.json(*self.train("undisturbed"))["steps"][-1]["loss"]
        duration = time.monotonic() - begin
        for round in range(ROUNDS):
            chance = random.Random(SEED + round)
            folder, killed = f"round{round}", 0
            while killed < KILLS:
                process = self.start(*self.train(folder))
                time.sleep(chance.uniform(0, duration / KILLS))
                process.kill()
                _, err = process.communicate()
                killed += 1
                self.assertIn(process.returncode, (-9, 0), err)
            with self.subTest(seed=SEED + round):
                end = self.json(*self.train(folder))["steps"]
                self.assertEqual(self.final(folder), self.final("undisturbed"))
                if end:  # the killed runs may have finished
                    self.assertEqual(end[-1]["loss"], loss)
                self.assertEqual([name for name in os.listdir(self.folder / folder) if name.endswith(".tmp")], [])
        print(f"{ROUNDS} rounds of {KILLS} kills, seed {SEED}")


if __name__ == "__main__":
    main()
