"""Training through the program: odd layouts, Ctrl-C, resuming, a full disk."""
import json
import os
import re
import resource
import shutil
import signal

from program import IS_FAST_SUITE, ProgramTest, main


class Train(ProgramTest):
    def losses(self, *arguments):
        return {step["step"]: step["loss"] for step in self.json("train", self.tiny, *arguments)["steps"]}

    def checkpoint(self, folder):
        return max((self.folder / folder).glob("step-*.safetensors")).read_bytes()

    def test_every_layout_trains_the_same(self):
        batch = ["--set", "training.global_batch_size=84"]
        reference = self.losses("--set", "parallel.data_parallel_size=1", *batch)
        for ranks in (3, 7):
            losses = self.losses("--set", f"parallel.data_parallel_size={ranks}", *batch)
            for step, loss in reference.items():
                self.assertAlmostEqual(losses[step], loss, delta=1e-4 * loss)

    def test_one_rank_says_which_knobs_are_idle(self):
        out = self.ok("train", self.tiny, "--set", "parallel.data_parallel_size=1").out
        self.assertIn("note: overlap_grad_reduce is off", out)

    def test_log_interval(self):
        for ranks in ([], ["--ranks", "2"]):
            out = self.ok("train", self.tiny, "--log-interval", "4", *ranks).out
            self.assertEqual(re.findall(r"^step +(\d+)/6  loss", out, re.M), ["4", "6"])
        for wrong in ("0", "x"):
            self.fails(2, "train", self.tiny, "--log-interval", wrong, says=["--log-interval"])

    VALIDATION = ["--set", "training.validation_data=held-*.txt", "--set", "training.eval_iters=2"]

    def test_validation_changes_nothing(self):
        """Losses on validation data come at their steps and at the end, and the training goes on as without them."""
        self.write("held-1.txt", "how vexingly quick daft zebras jump. " * 20)
        self.write("held-2.txt", "sphinx of black quartz, judge my vow. " * 20)
        self.losses("--set", "training.checkpoint_dir=without")
        value = self.json("train", self.tiny, *self.VALIDATION, "--set", "training.eval_interval=4", "--set", "training.checkpoint_dir=with")
        self.assertEqual(self.checkpoint("with"), self.checkpoint("without"))
        self.assertEqual([e["step"] for e in value["evaluations"]], [4, 6])
        last = value["evaluations"][-1]["loss"]
        for more in ([], ["--ranks", "2"], ["--set", "parallel.data_parallel_size=1"]):
            found = self.json("evaluate", self.tiny, *self.VALIDATION, "--set", "training.checkpoint_dir=with", *more)
            self.assertEqual(found["step"], 6)
            self.assertAlmostEqual(found["loss"], last, delta=1e-5 * last)
        out = self.ok("evaluate", self.tiny, *self.VALIDATION, "--set", "training.checkpoint_dir=with").out
        self.assertIn(f"validation loss {last:.5f} (perplexity", out)
        self.fails(2, "evaluate", self.tiny, *self.VALIDATION, says=["expected a checkpoint_dir with checkpoints, or load"])
        self.fails(2, "train", self.tiny, *self.VALIDATION, "--set", "model.hidden_dropout=0.1", says=["validation_data", "dropout"])
        self.fails(2, "train", self.tiny, "--set", "training.eval_iters=2", says=["expected validation_data as well"])
        self.fails(2, "train", self.tiny, "--set", "training.validation_data=absent-*.txt", says=["absent-*.txt", "no file"])

    def test_steps_with_a_large_gradient_are_taken_back(self):
        self.write("held-1.txt", "how vexingly quick daft zebras jump. " * 20)
        for ranks in ([], ["--ranks", "2"]):
            value = self.json("train", self.tiny, *self.VALIDATION, "--set", "training.eval_interval=1", "--set", "training.grad_norm_skip_threshold=1e-6", *ranks)
            self.assertTrue(all(step["skipped"] for step in value["steps"]))
            self.assertEqual(len({e["loss"] for e in value["evaluations"]}), 1)
        out = self.ok("train", self.tiny, "--set", "training.grad_norm_skip_threshold=1e-6").out
        self.assertEqual(out.count("is above grad_norm_skip_threshold"), 6)

    def test_logs_go_on_where_a_run_resumes(self):
        base = ["train", self.tiny, "--set", "training.lr_decay_iters=6", "--set", "training.checkpoint_dir=ck"]
        for iters in ("4", "6"):
            for log in ("log.csv", "log.jsonl"):
                shutil.rmtree(self.folder / "ck", ignore_errors=True) if iters == "4" else None
                self.ok(*base, "--set", f"training.train_iters={iters}", "--log", log, "--tensorboard", "board")
                if iters == "6" and log == "log.csv":  # trained to the end: go back
                    shutil.rmtree(self.folder / "ck")
                    self.ok(*base, "--set", "training.train_iters=4")
        lines = (self.folder / "log.csv").read_text().splitlines()
        self.assertEqual(lines[0], "step,wall_s,loss,gradient_norm,lr,step_ms,tokens_per_s,skipped,validation_loss")
        self.assertEqual([line.split(",")[0] for line in lines[1:]], list("123456"))
        steps = [json.loads(line) for line in (self.folder / "log.jsonl").read_text().splitlines()]
        self.assertEqual([step["step"] for step in steps], [1, 2, 3, 4, 5, 6])
        self.assertEqual([float(line.split(",")[2]) for line in lines[1:]], [step["loss"] for step in steps])
        self.assertTrue(all(file.name.startswith("events.out.tfevents.") for file in (self.folder / "board").iterdir()))

    def test_retained_checkpoints_stay(self):
        self.ok("train", self.tiny, "--set", "training.checkpoint_dir=ck", "--set", "training.checkpoint_interval=1", "--set", "training.save_retain_interval=2")
        steps = [int(file.name[5:13]) for file in sorted((self.folder / "ck").glob("step-*.safetensors"))]
        self.assertEqual(steps, [2, 4, 5, 6])
        self.fails(2, "train", self.tiny, "--set", "training.save_retain_interval=2", says=["save_retain_interval", "checkpoint_interval"])

    def test_learning_rates(self):
        def rates(*keys):
            words = [word for key in ("lr=1", "min_lr=0.5", "lr_warmup_iters=0", "train_iters=5", *keys) for word in ("--set", "training." + key)]
            return [round(step["lr"], 6) for step in self.json("train", self.tiny, *words)["steps"]]
        self.assertEqual(rates("lr_decay_style=linear"), [1, 0.9, 0.8, 0.7, 0.6])
        self.assertEqual(rates("lr_decay_style=constant"), [1] * 5)
        self.assertEqual(rates("lr_decay_style=WSD", "lr_wsd_decay_iters=2", "lr_wsd_decay_style=linear"), [1, 1, 1, 1, 0.75])
        self.assertEqual(rates("lr_decay_style=WSD", "lr_wsd_decay_iters=4")[2:4], [round(0.5 + 0.5 * (2 * 0.5**r - 1), 6) for r in (0.25, 0.5)])
        self.fails(2, "train", self.tiny, "--set", "training.lr_decay_style=WSD", says=["lr_wsd_decay_iters"])
        self.fails(2, "train", self.tiny, "--set", "training.lr_wsd_decay_iters=2", says=['lr_decay_style = "WSD"'])

    def test_mode(self):
        """--mode replaces the scenario's overlap knobs with those of a mode, also with ranks in separate processes."""
        for ranks in ([], ["--ranks", "2"]):
            for mode, schedule in (("plain", "plain"), ("overlap_grad_reduce", "overlap_grad_reduce"), (None, "overlap_param_gather")):
                words = ["--mode", mode] if mode else []
                self.assertIn(f"schedule {schedule},", self.ok("train", self.tiny, *words, *ranks).out)
        self.fails(2, "train", self.tiny, "--mode", "overlap_gradreduce", says=["expected one of plain", 'did you mean "overlap_grad_reduce"?'])

    def test_resumed_is_the_same_as_uninterrupted(self):
        whole = self.losses("--set", "training.checkpoint_dir=whole")
        # The learning rate of a step depends on the length of the decay, which a shorter run must not change.
        first = self.losses("--set", "training.checkpoint_dir=parts", "--set", "training.train_iters=4", "--set", "training.lr_decay_iters=6")
        value = self.json("train", self.tiny, "--set", "training.checkpoint_dir=parts")
        self.assertEqual(value["resumed_from"], 4)
        rest = {step["step"]: step["loss"] for step in value["steps"]}
        self.assertEqual({**first, **rest}, whole)
        self.assertEqual(self.checkpoint("parts"), self.checkpoint("whole"))
        # Nothing is left to do, and the program reports that.
        self.assertEqual(self.json("train", self.tiny, "--set", "training.checkpoint_dir=parts")["steps"], [])
        for ranks in ([], ["--ranks", "2"]):
            out = self.ok("train", self.tiny, "--set", "training.checkpoint_dir=parts", *ranks).out
            self.assertIn("training is done: the checkpoint is of step 6 and train_iters is 6; raise [training] train_iters", out)

    def test_what_changed_since_the_checkpoint_is_noted(self):
        folder = ["--set", "training.checkpoint_dir=ck", "--set", "training.lr_decay_iters=6"]
        self.losses(*folder, "--set", "training.train_iters=2")
        note = "note: not as the checkpoint was trained: "
        self.assertNotIn(note, self.ok("train", self.tiny, *folder, "--set", "training.train_iters=3").out)
        self.write("other.txt", "pack my box with five dozen liquor jugs. " * 40)
        for ranks in ([], ["--ranks", "2"]):
            out = self.ok("train", self.tiny, "--set", "training.checkpoint_dir=ck", "--set", "training.train_iters=3", *ranks).out
            self.assertIn(note + "lr_decay_iters = 3 (was 6)\n", out)
            out = self.ok("train", self.tiny, *folder, *ranks, "--set", "training.train_iters=3", "--set", "training.data=other.txt",
                          "--set", "training.lr=0.5", "--set", "training.clip_grad=2").out
            self.assertRegex(out, note + r"clip_grad = 2 \(was 1\), data = 1640 tokens, \w+ \(was 1800 tokens, \w+\), lr = 0.5 \(was 0.01\), min_lr = 0.05 \(was 0.001\)\n")

    def test_a_directory_is_of_one_run(self):
        folder = ["--set", "training.checkpoint_dir=ck", "--set", "training.train_iters=100000"]
        for ranks in ([], ["--ranks", "2"]):
            first = self.start("train", self.tiny, *folder, *ranks)
            for line in first.stdout:
                if line.startswith("step "):
                    break
            writer = (self.folder / "ck/stretto.lock").read_text().split()[1]
            if not ranks:
                self.assertEqual(writer, str(first.pid))
            self.fails(1, "train", self.tiny, *folder, *ranks, says=["ck: in use by process " + writer + " on ", " since ", "checkpoint_dir"])
            first.kill()
            first.communicate()
            self.ok("train", self.tiny, "--set", "training.checkpoint_dir=ck")

    def test_data_that_is_cut_short_ends_the_run(self):
        # A window is 8 tokens; the remainder is one token.
        for ranks in ([], ["--ranks", "2"]):
            self.write("data.txt", "the quick brown fox jumps over the lazy dog. " * 4000)
            process = self.start("train", self.tiny, "--set", "training.data=data.txt", "--set", "training.train_iters=100000", *ranks)
            for line in process.stdout:
                if line.startswith("step "):
                    break
            os.truncate(self.folder / "data.txt", 8)
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 1, err)
            self.assertEqual(len(err.splitlines()), 1, err)
            self.assertIn("data.txt: was cut short while it is in use: it had 180000 bytes", err)

    def test_resumed_in_another_layout(self):
        whole = self.losses()
        self.losses("--set", "training.checkpoint_dir=ck", "--set", "training.train_iters=3", "--set", "training.lr_decay_iters=6")
        written = self.checkpoint("ck")
        for dp, tp in ((3, 1), (2, 3), (1, 3)):
            folder = f"dp{dp}tp{tp}"
            os.mkdir(self.folder / folder)
            (self.folder / folder / "step-00000003.safetensors").write_bytes(written)
            rest = self.losses("--set", f"training.checkpoint_dir={folder}", "--set", f"parallel.data_parallel_size={dp}",
                               "--set", f"parallel.tensor_model_parallel_size={tp}")
            self.assertEqual(list(rest), [3, 4, 5])
            for step, loss in rest.items():
                self.assertAlmostEqual(loss, whole[step], delta=1e-4 * loss)

    def test_training_begins_with_given_weights(self):
        # Weights that do not change make every step's loss comparable.
        still = ["--set", "training.lr=0"]
        whole = self.losses(*still, "--set", "training.checkpoint_dir=ck")
        self.ok("export", "ck/step-00000006.safetensors", "-o", "theirs.safetensors")
        other = ["--set", "training.init_method_std=0.5"]
        self.assertNotAlmostEqual(self.losses(*still, *other)[0], whole[0], delta=1e-3)
        settings = (("parallel.tensor_model_parallel_size=3", 1e-5), ("parallel.pipeline_model_parallel_size=2", 1e-5),
                    ("training.precision=bf16", 1e-3))
        for weights in ("ck/step-00000006.safetensors", "theirs.safetensors"):
            load = ["--set", f"training.load={weights}", *still, *other]
            self.assertEqual(self.losses(*load), whole)
            for setting, tolerance in settings[:1] if IS_FAST_SUITE else settings:
                losses = self.losses(*load, "--set", setting)
                for step, loss in whole.items():
                    self.assertAlmostEqual(losses[step], loss, delta=tolerance * loss)
            self.assertIn(f"{weights} (names of ", self.ok("train", self.tiny, *load).out)
        # A checkpoint of the run takes precedence.
        out = self.ok("train", self.tiny, *load, "--set", "training.checkpoint_dir=ck").out
        self.assertIn("resumed from", out)
        self.assertNotIn("weights from", out)

    def test_weights_that_do_not_fit(self):
        self.losses("--set", "training.checkpoint_dir=ck")
        load = ["--set", "training.load=ck/step-00000006.safetensors"]
        self.fails(2, "train", self.tiny, "--set", "training.load=none", says=["none", "No such file"])
        self.fails(2, "train", self.tiny, *load, "--set", "model.num_layers=3", says=["h.2.ln_1.weight", "[12]"])
        self.fails(2, "train", self.tiny, *load, "--set", "model.vocab_size=300", says=["wte.weight", "[300, 12]", "[256, 12]"])
        out = self.ok("train", self.tiny, *load, "--set", "model.num_layers=1").out
        self.assertIn("no place for 12 tensors", out)
        self.fails(2, "export", "text.txt", "-o", "x", says=["text.txt"])
        self.fails(2, "export", "ck/step-00000006.safetensors", "-o", "none/x", says=["none/x", "No such file"])

    def test_another_model_does_not_resume(self):
        self.losses("--set", "training.checkpoint_dir=ck")
        self.fails(2, "train", self.tiny, "--set", "training.checkpoint_dir=ck", "--set", "model.num_layers=3",
                   says=["step-00000006.safetensors", "num_layers = 2", "the scenario has 3"])

    def test_interrupt_writes_a_checkpoint_and_resumes(self):
        many = ["--set", "training.train_iters=300"]
        whole = self.json("train", self.tiny, *many)
        for interrupt in (signal.SIGTERM,) if IS_FAST_SUITE else (signal.SIGINT, signal.SIGTERM):
            folder = f"training.checkpoint_dir=ck{int(interrupt)}"
            process = self.start("train", self.tiny, *many, "--set", folder)
            for line in process.stdout:
                if line.startswith("step    20/"):
                    break
            process.send_signal(interrupt)
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 1, err)
            self.assertEqual(len(err.splitlines()), 1, err)
            self.assertIn("interrupted", err)
            stopped = self.json("train", self.tiny, *many, "--set", folder)
            self.assertGreaterEqual(stopped["resumed_from"], 20)
            self.assertEqual(stopped["steps"][-1]["loss"], whole["steps"][-1]["loss"])

    def test_interrupt_promises_no_checkpoint_where_there_is_none(self):
        for ranks in ([], ["--ranks", "2"]):
            process = self.start("train", self.tiny, "--set", "training.train_iters=100000", *ranks)
            for line in process.stdout:
                if line.startswith("step "):
                    break
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 1, err)
            self.assertEqual(err, "stretto: interrupted before train_iters; without [training] checkpoint_dir nothing of it is kept\n")

    def test_a_full_disk_leaves_the_checkpoint_before(self):
        folder = ["--set", "training.checkpoint_dir=ck", "--set", "training.lr_decay_iters=6"]
        self.losses(*folder, "--set", "training.train_iters=2")
        before = self.checkpoint("ck")
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        self.fails(1, "train", self.tiny, *folder, "--set", "training.checkpoint_interval=1", preexec_fn=limit,
                   says=["step-00000003.safetensors", "File too large"])
        self.assertEqual(sorted(os.listdir(self.folder / "ck")), ["step-00000002.safetensors", "stretto.lock"])
        self.assertEqual(self.checkpoint("ck"), before)
        self.assertEqual(list(self.losses(*folder)), [2, 3, 4, 5])

    def test_a_loss_that_is_no_number_ends_the_run_and_spares_checkpoints(self):
        wild = ["--set", "training.lr=1000", "--set", "training.clip_grad=0", "--set", "training.lr_warmup_iters=0",
                "--set", "training.train_iters=50", "--set", "training.checkpoint_dir=ck", "--set", "training.checkpoint_interval=1"]
        self.fails(1, "train", self.tiny, *wild, says=["not finite", "lower lr"])
        again = self.fails(1, "train", self.tiny, *wild, says=["not finite"])
        self.assertIn("resumed from", again.out)

    def test_an_unusable_checkpoint_dir_is_found_before_training(self):
        self.write("file", "")
        process = self.fails(2, "train", self.tiny, "--set", "training.checkpoint_dir=file/ck", says=["file/ck", "create"])
        self.assertNotIn("step ", process.out)

    def test_a_damaged_checkpoint_is_skipped_and_named(self):
        folder = ["--set", "training.checkpoint_dir=ck", "--set", "training.checkpoint_interval=3"]
        whole = self.losses(*folder)
        newest = self.folder / "ck/step-00000006.safetensors"
        content = bytearray(newest.read_bytes())
        content[-1] ^= 1
        newest.write_bytes(content)
        process = self.ok("train", self.tiny, *folder, "--json", "again.json")
        self.assertIn("warning: ", process.out)
        self.assertIn("step-00000006.safetensors", process.out)
        again = json.loads((self.folder / "again.json").read_text())
        self.assertEqual(again["resumed_from"], 3)
        self.assertEqual(again["steps"][-1]["loss"], whole[5])


if __name__ == "__main__":
    main()
