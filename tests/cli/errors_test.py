"""Every user error gives one line on standard error with its place and the expected value, and exit code 2."""
import os
import socket

from program import PLATFORM, ProgramTest, main


class Usage(ProgramTest):
    def test_no_command_prints_help(self):
        process = self.run_program()
        self.assertEqual(process.returncode, 2)
        self.assertIn("compare", process.out)

    def test_help_is_not_an_error(self):
        for command in ([], ["simulate"], ["train"], ["compare"], ["calibrate"], ["show"]):
            self.assertIn("--help", self.ok(*command, "--help").out)

    def test_unknown_command_and_option(self):
        self.fails(2, "simulat", self.tiny, says=['"simulat"', 'did you mean "simulate"?'])
        self.fails(2, "show", self.tiny, "--jsn", "-", says=["--jsn", 'did you mean "--json"?'])
        self.fails(2, "show", says=["SCENARIO"])
        # An unknown option is reported before a missing argument that it may explain.
        self.fails(2, "simulate", "--platfrom", "h100-sxm", says=['"--platfrom"', 'did you mean "--platform"?'])
        self.fails(2, "simulate", "--jsn", says=['did you mean "--json"?'])

    def test_values_of_options(self):
        self.fails(2, "train", self.tiny, "--backend", "cdua", says=["expected one of", 'got "cdua"; did you mean "cuda"?'])
        self.fails(2, "train", self.tiny, "--ranks", "0", says=["--ranks: expected 1 to 4096", 'got "0"'])

    def test_set_takes_one_value(self):
        self.assertIn("verified", self.ok("show", "--set", "training.lr=0.5", self.tiny).out)

    def test_engine_must_be_known(self):
        self.fails(2, "simulate", self.tiny, "--platform", PLATFORM, "--engine", "simgrit", says=["simgrit", "simgrid"])
        self.fails(2, "simulate", self.tiny, "--platform", PLATFORM, "--backbone-GBps", "1", says=["--engine simgrid"])
        self.fails(2, "simulate", self.tiny, "--platform", PLATFORM, "--backbone-GBps", "-1", says=["--backbone-GBps"])
        self.fails(2, "simulate", self.tiny, "--platform", PLATFORM, "--engine", "simgrid", "--limits", says=["--limits", "fluid"])


    def test_nothing_of_the_environment_reaches_the_terminal(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environment = dict(self.environment, RANK="0", WORLD_SIZE="2", MASTER_ADDR="\x1b[31m\u202ehost", MASTER_PORT=str(port))
        process = self.start("train", self.tiny, environment=environment)
        said = process.stderr.readline()  # a note that it waits for other processes
        process.kill()
        process.communicate()
        self.assertIn("\\x1b[31m\\u202ehost", said)

    def test_a_full_standard_output_is_not_success(self):
        for command in (["--version"], ["show", self.tiny], ["show", self.tiny, "--gates"], ["show", self.tiny, "--json", "-"]):
            with open("/dev/full", "w") as full:
                process = self.run_program(*command, stdout=full)
            self.assertEqual((process.returncode, process.err), (1, "stretto: standard output: cannot be written\n"), command)


class Files(ProgramTest):
    def test_scenario_that_is_no_file(self):
        for command in ("show", "train", "compare", "simulate", "sweep", "diagnose run.json"):
            self.fails(2, *command.split(), "absent.toml", says=["absent.toml", "No such file"])
            self.fails(2, *command.split(), ".", says=["directory"])

    def test_empty_and_binary_scenarios(self):
        self.fails(2, "show", self.write("empty.toml", ""), says=["empty.toml", "[model]", "empty"])
        self.fails(2, "show", self.write("zeros.toml", b"\0" * 100), says=["zeros.toml"])
        self.fails(2, "show", self.write("noise.toml", bytes(range(256)) * 8), says=["noise.toml"])
        self.fails(2, "show", self.write("huge.toml", b"# " + b"x" * (1 << 21)), says=["huge.toml"])

    def test_no_platform_says_how_to_get_one(self):
        for command in ("simulate", "compare"):
            self.fails(2, command, self.tiny, says=["stretto/host.toml", "stretto calibrate", "--platform"])
        self.fails(2, "simulate", self.tiny, "--platform", "absent.toml", says=["absent.toml"])
        self.fails(2, "simulate", self.tiny, "--platform", self.write("p.toml", ""), says=["p.toml", "expected"])
        self.fails(2, "simulate", self.tiny, "--platform", self.tiny, says=["tiny.toml", "expected"])

    def test_platform_of_the_other_backend(self):
        self.fails(2, "compare", self.tiny, "--backend", "cuda", says=["stretto/cuda.toml", "stretto calibrate --backend cuda"])
        self.fails(2, "compare", self.tiny, "--backend", "cuda", "--platform", PLATFORM,
                   says=["calibrated on a host", "stretto calibrate --backend cuda", "--platform"])
        self.fails(2, "compare", self.tiny, "--backend", "gpu", says=["--backend"])
        self.fails(2, "calibrate", "--backend", "cuda", "--cores", "2", says=["--cores"])

    def test_processes_are_for_gpus(self):
        self.fails(2, "compare", self.tiny, "--platform", PLATFORM, "--ranks", "2", says=["--backend cuda", "threads"])
        self.fails(2, "calibrate", "--ranks", "2", says=["--backend cuda"])
        self.fails(2, "compare", self.tiny, "--backend", "cuda", "--ranks", "2", says=["stretto/cuda.toml"])
        self.fails(2, "simulate", self.tiny, "--platform", PLATFORM, "--set", "cluster.network=nccl",
                   says=["--set cluster.network", "ranks_per_device = 1"])
        self.fails(2, "simulate", self.tiny, "--platform", PLATFORM, "--set", "cluster.network=nccl",
                   "--set", "cluster.ranks_per_device=1", says=["is a host", "network"])

    def test_a_step_that_this_machine_has_no_memory_for(self):
        # One layer whose state is terabytes: nothing of it may be allocated, or the kernel kills the process.
        self.write("large.toml", """platform = "h100-sxm"
            [model]
            num_layers = 1
            hidden_size = 262144
            num_attention_heads = 64
            seq_length = 512
            vocab_size = 512
            [parallel]
            tensor_model_parallel_size = 8
            [training]
            micro_batch_size = 1
            global_batch_size = 1
            data = "text.txt"
            """)
        for command in ("profile", "train"):
            self.fails(2, command, "large.toml", says=["out of memory", "8 ranks on this machine's CPU need", "are free", "stretto simulate"])

    def test_a_platform_of_another_machine_is_said(self):
        done = self.ok("profile", self.tiny, "--set", "platform=h100-sxm", "--set", "compare.repeats=1")
        self.assertIn("platform h100-sxm is a GPU: profile runs this on this machine's CPU", done.out)
        self.assertNotIn("is a GPU", self.ok("profile", self.tiny, "--set", "compare.repeats=1").out)

    def test_data_that_cannot_be_trained_on(self):
        self.fails(2, "train", self.tiny, "--set", "training.data=absent.txt", says=["absent.txt"])
        self.write("zero.bin", b"")
        self.fails(2, "train", self.tiny, "--set", "training.data=zero.bin", says=["zero.bin"])
        self.write("odd.bin", b"abc")
        self.fails(2, "train", self.tiny, "--set", "training.data=odd.bin", says=["odd.bin"])
        self.write("short.txt", b"abc")
        self.fails(2, "train", self.tiny, "--set", "training.data=short.txt", says=["short.txt"])
        self.fails(2, "train", self.tiny, "--set", "training.data=.", says=["directory"])
        self.fails(2, "train", self.tiny, "--set", "training.data=", says=["[training] data"])
        self.fails(2, "train", self.tiny, "--set", "model.vocab_size=40", says=["text.txt", "token", "40"])

    def test_ranks_that_a_layout_cannot_have(self):
        self.fails(2, "compare", self.tiny, "--platform", PLATFORM, "--set", "parallel.tensor_model_parallel_size=3",
                   says=["[compare] ranks", "pipeline_model_parallel_size = 3", "got 1"])

    def test_outputs_that_cannot_be_written(self):
        for command in ("simulate", "compare"):
            for option in ("--json", "--trace", "--html"):
                self.fails(2, command, self.tiny, "--platform", PLATFORM, option, "no/such/folder/x", says=["no/such/folder/x", "No such file"])
                self.fails(2, command, self.tiny, "--platform", PLATFORM, option, ".", says=["directory"])
        self.fails(2, "calibrate", "-o", ".", says=["directory"])
        self.fails(2, "calibrate", "-o", "text.txt/x", says=["text.txt/x"])
        self.fails(2, "train", self.tiny, "--json", "no/such/folder/x", says=["no/such/folder/x"])
        self.ok("simulate", self.tiny, "--platform", PLATFORM, "--trace", "trace.json", "--json", "result.json")
        for option in ("--json", "--html"):
            self.fails(1, "simulate", self.tiny, "--platform", PLATFORM, option, "/dev/full", says=["/dev/full", "No space"])

    def test_checkpoint_directory_that_cannot_be_written(self):
        self.fails(2, "train", self.tiny, "--set", "training.checkpoint_dir=text.txt", says=["text.txt"])
        if os.geteuid() != 0:
            os.mkdir(self.folder / "locked", 0o500)
            self.fails(1, "train", self.tiny, "--set", "training.checkpoint_dir=locked/x", says=["locked", "Permission"])


class Keys(ProgramTest):
    def bad(self, line, text, *says):
        """Appends `text` to a scenario that is valid without it; the error must name the file and the line."""
        path = self.write("bad.toml", "[model]\nnum_layers = 2\nhidden_size = 12\nnum_attention_heads = 3\nseq_length = 7\n"
                          "vocab_size = 256\n" + text)
        return self.fails(2, "show", path, says=[f"bad.toml:{line}:", *says])

    def test_unknown_keys_are_given_the_nearest_spelling(self):
        self.bad(8, "[training]\nmicro_batchsize = 1\n", "[training]", "micro_batchsize", 'did you mean "micro_batch_size"?')
        self.bad(7, "[overlaps]\noverlap_grad_reduce = true\n", "overlaps", 'did you mean "overlap"?')
        self.bad(7, "hiden_size = 1\n", "[model]", "hiden_size", 'did you mean "hidden_size"?')

    def test_a_key_of_another_section_is_named(self):
        self.bad(8, "[training]\ntp_comm_overlap = true\n", "[training] tp_comm_overlap", 'did you mean "overlap.tp_comm_overlap"?')
        self.fails(2, "show", self.tiny, "--set", "training.tp_comm_overlap=true", says=["--set", '"overlap.tp_comm_overlap"'])
        far = self.fails(2, "show", self.tiny, "--set", "training.activation_offload=true", says=["nearest: ", "unknown key"])
        self.assertLess(len(far.err), 250)

    def test_set_takes_keys_away_and_short_names(self):
        path = self.write("selective.toml", "[model]\nnum_layers = 2\nhidden_size = 12\nnum_attention_heads = 3\nseq_length = 7\n"
                          "vocab_size = 256\n[training]\nrecompute_granularity = \"selective\"\nrecompute_modules = [\"mlp\"]\n")
        none = ["--set", "training.recompute_granularity=none"]
        self.ok("show", path, *none)
        self.ok("show", path, "--set", "training.recompute_modules=", *none)
        self.ok("show", path, "--set", "training.recompute_granularity=")
        self.ok("show", path, "--set", "training.cuda_graph_modules=[]")
        self.fails(2, "show", path, *none, "--set", 'training.recompute_modules=["mlp"]', says=["--set training.recompute_modules"])
        self.fails(2, "show", path, "--set", "tp=0", says=["--set parallel.tensor_model_parallel_size"])

    def test_types(self):
        self.bad(8, '[training]\nlr = "fast"\n', "lr", "expected a number", '"fast"')
        self.bad(8, "[training]\ntrain_iters = 1.5\n", "train_iters", "expected an integer", "1.5")
        self.bad(8, "[overlap]\noverlap_grad_reduce = 1\n", "overlap_grad_reduce", "expected", "1")
        self.bad(7, "training = 1\n", "training", "expected")

    def test_numbers_that_are_none(self):
        for value in ("nan", "-inf", "+inf", "1e999", "9223372036854775808"):
            self.bad(8, f"[training]\nlr = {value}\n", "expected")

    def test_ranges(self):
        self.bad(8, "[training]\nmicro_batch_size = 0\n", "micro_batch_size", "expected", "0")
        self.bad(8, "[parallel]\ndata_parallel_size = 99999999999\n", "data_parallel_size", "expected")
        self.bad(10, "[parallel]\ndata_parallel_size = 3\n[training]\nglobal_batch_size = 4\n", "global_batch_size", "multiple", "3")

    def test_gates(self):
        self.bad(8, "[overlap]\noverlap_param_gather = true\n", "overlap_param_gather", "overlap_grad_reduce")

    def test_syntax(self):
        self.bad(7, "= 1\n")
        self.bad(7, "[training\n")
        self.bad(8, "\nvocab_size = 3\n", "vocab_size")

    def test_modes(self):
        self.fails(2, "compare", self.tiny, "--platform", PLATFORM, "--set", 'compare.modes=["plian"]',
                   says=["tiny.toml", "[compare] modes", "plian", 'did you mean "plain"?'])
        self.fails(2, "show", self.tiny, "--set", "model.preset=gpt2-124b", says=["gpt2-124b", "gpt2-124m"])

    def test_overrides(self):
        self.fails(2, "show", self.tiny, "--set", "training.lr", says=["--set", "training.lr", "="])
        self.fails(2, "show", self.tiny, "--set", "training.lrr=1", says=["--set training.lrr", 'did you mean "lr"?'])
        self.fails(2, "show", self.tiny, "--set", "training.lr=fast", says=["--set training.lr", "expected a number"])
        self.fails(2, "show", self.tiny, "--set", "name.x=1", says=["--set name"])
        self.fails(2, "show", self.tiny, "--set", "=", says=["--set"])


if __name__ == "__main__":
    main()
