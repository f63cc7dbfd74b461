"""The size of a step does not grow with the number of ranks, and the program refuses a step that is too large before
it builds the step."""
import os
import subprocess

from program import PLATFORM, STRETTO, ProgramTest, main

DP = 1 << 20
MOST_TIMES = 1.2  # relative to the memory of 64

MODEL = """
platform = "h100-sxm"
profile = "megatron-core-te"
[model]
num_layers = 4
hidden_size = 1024
num_attention_heads = 16
seq_length = 1024
vocab_size = 32000
[training]
precision = "bf16"
[parallel]
pipeline_model_parallel_size = 2
tensor_model_parallel_size = 2
sequence_parallel = true
"""

# 8 billion parameters on a link of 1 kB/s.
LARGE = """
[model]
num_layers = 2
hidden_size = 16384
num_attention_heads = 64
seq_length = 128
vocab_size = 256
[parallel]
data_parallel_size = 2
[cluster]
ranks_per_device = 1
"""


def usage(*arguments):
    """Runs the program, which must succeed. Returns its processor time in seconds and its peak memory in KiB."""
    child = subprocess.Popen([STRETTO, *map(str, arguments)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, arguments
    return used.ru_utime + used.ru_stime, used.ru_maxrss


class Scale(ProgramTest):
    def test_time_and_memory_do_not_grow_with_data_parallelism(self):
        scenario = self.write("many.toml", MODEL)

        def simulate(dp):
            return usage("simulate", scenario, "--set", f"parallel.data_parallel_size={dp}",
                         "--set", f"training.global_batch_size={8 * dp}")
        few_s, few_kB = map(min, zip(*(simulate(64) for _ in range(2))))
        many_s, many_kB = map(min, zip(*(simulate(DP) for _ in range(2))))
        self.assertLess(many_kB, MOST_TIMES * few_kB)
        self.assertLess(many_s, 2 * few_s + 0.1)

    def test_costs_that_a_platform_lacks_are_said_before_a_step_is_built(self):
        self.fails(2, "simulate", self.tiny, "--platform", PLATFORM, "--set", "parallel.context_parallel_size=2",
                   "--set", "model.seq_length=16", says=["has no cost"])


class Backbone(ProgramTest):
    def test_a_backbone_that_is_too_slow_for_any_step_is_refused(self):
        simulate = ["simulate", self.tiny, "--platform", PLATFORM, "--engine", "simgrid", "--set", "cluster.ranks_per_device=1"]
        for rate in ("1e-7", "1e-300", "-1"):
            self.fails(2, *simulate, "--backbone-GBps", rate, says=["--backbone-GBps"])
        slow = self.json(*simulate, "--backbone-GBps", "1e-6")["step_ms"]
        self.assertGreater(slow, 10 * self.json(*simulate, "--backbone-GBps", "1e-4")["step_ms"])
        self.assertGreater(self.json(*simulate, "--backbone-GBps", "1e-4")["step_ms"], self.json(*simulate)["step_ms"])

    def test_a_transfer_that_has_no_time_is_refused(self):
        scenario = self.write("large.toml", LARGE)
        for engine in ("fluid", "simgrid"):
            self.fails(2, "simulate", scenario, "--platform", PLATFORM, "--engine", engine,
                       "--set", "cluster.link_GBps=1e-6", says=["takes more than 2.5 hours"])
        self.fails(2, "simulate", scenario, "--platform", PLATFORM, "--engine", "simgrid", "--backbone-GBps", "1e-6",
                   says=["--backbone-GBps", "more than 100 days"])

    def test_a_backbone_lies_between_nodes(self):
        scenario = self.write("gpus.toml", MODEL)
        arguments = ["simulate", scenario, "--engine", "simgrid", "--backbone-GBps", "1"]
        says = "--backbone-GBps does not act"
        self.assertIn(says, self.ok(*arguments, "--set", "parallel.data_parallel_size=2").out)
        self.assertNotIn(says, self.ok(*arguments, "--set", "parallel.data_parallel_size=4").out)


if __name__ == "__main__":
    main()
