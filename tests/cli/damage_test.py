"""A run never restarts from the beginning without a message, whatever the damage to its checkpoints. It either resumes
from the previous checkpoint, says so and ends with the bytes of the undisturbed run, or it ends at once with one line
and changes no file. STRETTO_DAMAGES sets the number of rounds; scripts/soak raises it. A failure prints the seed;
STRETTO_DAMAGE_SEED repeats it."""
import errno
import os
import random
import shutil
import time

from program import FAIL_IO, IS_FAST_SUITE, ProgramTest, main

DAMAGES = int(os.environ.get("STRETTO_DAMAGES", 5 if IS_FAST_SUITE else 40))
SEED = int(os.environ.get("STRETTO_DAMAGE_SEED", time.time_ns() % 1_000_000))
OLDER, NEWEST = "step-00000003.safetensors", "step-00000006.safetensors"


def truncated(data, chance):
    return data[:chance.randrange(len(data))]


def flipped(data, chance):
    data = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 8])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def block(data, chance, size):
    """Damages one block as a disk may damage it: the block becomes zeros, or another file's old bytes."""
    begin = chance.randrange(0, len(data), size)
    end = min(begin + size, len(data))
    return data[:begin] + chance.choice([bytes(end - begin), chance.randbytes(end - begin)]) + data[end:]


CONTENTS = [lambda data, chance: b"", truncated, truncated, flipped, flipped, flipped, lambda data, chance: data + b"\0",
            lambda data, chance: block(data, chance, 512), lambda data, chance: block(data, chance, 4096),
            lambda data, chance: bytes(len(data)), lambda data, chance: chance.randbytes(len(data))]


class Damage(ProgramTest):
    RANKS = []

    def train(self, folder, steps, *more):
        return ["train", self.tiny, "--set", f"training.train_iters={steps}", "--set", "training.lr_decay_iters=9", "--set",
                "training.checkpoint_interval=3", "--set", f"training.checkpoint_dir={folder}",
                *(self.RANKS or ["--set", "parallel.data_parallel_size=1"]), *more]

    def files(self, folder):
        return {path.name: path.read_bytes() if path.is_file() else None
                for path in (self.folder / folder).iterdir() if path.name != "stretto.lock"}

    def of_step(self, files, name):
        """Returns the checkpoint's file, or its manifest and shards."""
        return {key: value for key, value in files.items() if key.startswith(name.split(".")[0])}

    def setUp(self):
        super().setUp()
        self.ok(*self.train("whole", 6))
        self.whole = self.files("whole")
        self.last = max(self.of_step(self.whole, NEWEST), key=lambda name: (len(name), name))
        shutil.copytree(self.folder / "whole", self.folder / "end")
        self.ok(*self.train("end", 9))
        self.end = self.of_step(self.files("end"), "step-00000009.safetensors")
        self.ok(*self.train("other", 6, "--set", "training.seed=7"))

    def check(self, folder, failing=None):
        """Checks that the run ends as the undamaged files require."""
        before = self.files(folder)
        is_whole = {name: self.of_step(before, name) == self.of_step(self.whole, name) for name in (OLDER, NEWEST)}
        environment = self.environment_that_fails(*failing) if failing else None
        process = self.run_program(*self.train(folder, 9), environment=environment)
        if failing or None in before.values() or not any(is_whole.values()) or self.of_step(before, NEWEST) == self.other:
            self.assertIn(process.returncode, (1, 2), process.out)
            self.assertEqual(len(process.err.splitlines()), 1, process.err)
            self.assertIn(folder, process.err)
            self.assertEqual(self.files(folder), before)
            return process
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn(f"resumed from {self.folder / folder}/" + (NEWEST if is_whole[NEWEST] else OLDER), process.out)
        said = f"warning: checkpoint skipped: {self.folder / folder}/{NEWEST.split('.')[0]}"
        self.assertEqual(said in process.out, not is_whole[NEWEST])
        after = self.files(folder)
        self.assertEqual(self.of_step(after, "step-00000009.safetensors"), self.end)
        self.assertEqual(self.of_step(after, NEWEST), self.of_step(self.whole, NEWEST))  # the kept checkpoint is
                                                                                         # complete
        return process

    def damage(self, folder, chance):
        """Damages a checkpoint. Returns the call that must fail during reading, if this damage is a read error."""
        path = self.folder / folder
        steps = chance.choice([[NEWEST], [NEWEST], [OLDER], [NEWEST, OLDER]])
        victims = [chance.choice(sorted(self.of_step(self.whole, step))) for step in steps]
        newest = chance.choice(sorted(self.of_step(self.whole, NEWEST)))
        older = newest.replace("00000006", "00000003")
        kind = chance.randrange(len(CONTENTS) + 6)
        if kind < len(CONTENTS):
            for name in victims:
                (path / name).write_bytes(CONTENTS[kind](self.whole[name], chance))
            return None
        kind -= len(CONTENTS)
        if kind == 0:  # swapped
            (path / newest).write_bytes(self.whole[older])
            (path / older).write_bytes(self.whole[newest])
        elif kind == 1:  # a checkpoint of the wrong step
            (path / newest).write_bytes(self.whole[older])
        elif kind == 2:
            for name, data in self.other.items():
                (path / name).write_bytes(data)
        elif kind == 3:
            (path / newest).unlink()
            (path / newest).mkdir()
        elif kind == 4:
            (path / NEWEST).unlink()
            (path / NEWEST).symlink_to("nowhere")
            (path / OLDER).unlink()
            (path / OLDER).mkdir()
        elif FAIL_IO:
            call = chance.choice(["open", "pread"])
            return call, newest, chance.choice([errno.EIO, errno.EACCES, errno.ENOMEM, errno.ESTALE, errno.EMFILE])
        return None

    def test_damage_is_never_silent(self):
        self.other = self.of_step(self.files("other"), NEWEST)
        outcomes = {}
        for number in range(DAMAGES):
            chance = random.Random(SEED + number)
            folder = f"d{number}"
            shutil.copytree(self.folder / "whole", self.folder / folder, ignore=shutil.ignore_patterns("*.lock"))
            with self.subTest(seed=SEED + number):
                code = self.check(folder, self.damage(folder, chance)).returncode
                outcomes[code] = outcomes.get(code, 0) + 1
            shutil.rmtree(self.folder / folder)
        print(f"{DAMAGES} damages, by exit code: {outcomes}, seed {SEED}")

    def test_nothing_that_loads_says_how_to_begin_anew(self):
        shutil.copytree(self.folder / "whole", self.folder / "ck")
        for name in (OLDER, NEWEST):
            (self.folder / "ck" / name).write_bytes(b"")
        self.fails(2, *self.train("ck", 9), says=[NEWEST, "all 2 checkpoints are damaged", "begin anew", "checkpoint_dir"])
        if not self.RANKS:
            self.fails(2, *self.train("ck", 9, "--ranks", "1"), says=["all 2 checkpoints are damaged"])
        (self.folder / "ck" / OLDER).unlink()
        # Text from a damaged file has no effect on a terminal.
        for header, shown in ((b'{"\x1b[2J\xff\xe5":3}  ', "malformed header"), (b'{"\\u001b[2J":{}}  ', "\\x1b[2J")):
            (self.folder / "ck" / NEWEST).write_bytes(len(header).to_bytes(8, "little") + header)
            self.assertNotIn("\x1b", self.fails(2, *self.train("ck", 9), says=[shown]).err)
        self.fails(2, *self.train("ck", 9), says=["the only checkpoint is damaged"])
        (self.folder / "ck" / NEWEST).unlink()
        self.assertNotIn("resumed", self.ok(*self.train("ck", 3)).out)

    def test_what_the_disk_cannot_read_is_not_damage(self):
        if not FAIL_IO:
            self.skipTest("needs the library that makes calls fail")
        shutil.copytree(self.folder / "whole", self.folder / "ck")
        before = self.files("ck")
        # These errors of a shard count too.
        for code, error, call, name in ((1, errno.EIO, "pread", NEWEST), (2, errno.EACCES, "open", NEWEST),
                                        (1, errno.EMFILE, "open", NEWEST), (1, errno.EIO, "pread", self.last),
                                        (1 if self.RANKS else 2, errno.EACCES, "open", self.last)):
            self.fails(code, *self.train("ck", 9), says=[name, os.strerror(error)],
                       environment=self.environment_that_fails(call, name, error))
            self.assertEqual(self.files("ck"), before)
        # A failure to write does not end the training state either: existing checkpoints stay.
        for call, error in (("write", errno.ENOSPC), ("write", errno.EIO), ("fsync", errno.EIO)):
            name = self.last.replace("00000006", "00000009")
            self.fails(1, *self.train("ck", 9), says=[name, os.strerror(error)],
                       environment=self.environment_that_fails(call, name, error))
            self.assertEqual(self.files("ck"), before)
        self.fails(1, *self.train("ck", 9), says=["text.txt", os.strerror(errno.EIO)],
                   environment=self.environment_that_fails("pread", "text.txt", errno.EIO))


class DamageOfShards(Damage):
    RANKS = ["--ranks", "3"]

    def test_a_missing_shard_is_damage(self):
        for name in [self.last, NEWEST.replace(".", "-rank-00000-of-00003.")]:
            shutil.copytree(self.folder / "whole", self.folder / name)
            (self.folder / name / name).unlink()
            self.assertIn(f"warning: checkpoint skipped: {self.folder / name}/{name}: is missing",
                          self.ok(*self.train(name, 9)).out)
            self.assertEqual(self.of_step(self.files(name), "step-00000009.safetensors"), self.end)


if __name__ == "__main__":
    main()
