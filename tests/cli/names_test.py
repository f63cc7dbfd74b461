"""Questions in names: a model on a number of GPUs without a scenario file, and the lists of names that there are."""
import json

from program import ROOT, ProgramTest, main


class Names(ProgramTest):
    def test_a_model_and_a_number_of_gpus_are_a_question(self):
        value = self.json("simulate", "Llama-3.1-8B", "--gpus", "64")
        self.assertEqual(value["ranks"], 64)
        assumed = value["assumed"]
        self.assertIn("llama3_8b_pretrain_64gpu_h100_bf16", assumed["start"])
        for one in assumed["settings"]:
            self.assertEqual(set(one), {"key", "value", "because", "source"})
        self.assertIn("platform", [one["key"] for one in assumed["settings"]])
        text = self.ok("simulate", "llama3-8b", "--gpus", "64", "--assumed", "--set", "training.micro_batch_size=2").out
        self.assertIn("assumed: training.global_batch_size = 1024, because recipe", text)
        self.assertNotIn("assumed: training.micro_batch_size", text)

    def test_other_readings_widen_the_answer(self):
        value = self.json("simulate", "qwen3-30b-a3b", "--gpus", "16")["assumed"]
        self.assertEqual([one["reading"] for one in value["readings"]], ["natural routing"])
        self.assertLessEqual(value["least_ms"], value["readings"][0]["step_ms"])
        self.assertGreaterEqual(value["most_ms"], value["readings"][0]["step_ms"])

    def test_names_that_are_not_known(self):
        self.fails(2, "simulate", "deepseek-v4", "--gpus", "64", says=["did you mean \"deepseek-v3\"?"])
        self.fails(2, "simulate", "Llama-3.1-8B", says=["expected --gpus N"])
        self.fails(2, "simulate", "deepseek-v3", "--gpus", "1000", says=["is for multiples of 512 GPUs; the nearest are 512 and 1024"])
        self.fails(2, "simulate", "llama3-8b", "--gpus", "8", "--profile", "nemo-dgxc@20.01", says=["one of the releases 23.11"])

    def test_what_ships_has_a_name_in_words(self):
        words = json.loads((ROOT / "scenarios/words.json").read_text())
        for kind in ("models", "platforms", "profiles"):
            shipped = {path.stem for path in (ROOT / "scenarios" / kind).glob("*.toml")}
            self.assertEqual(shipped - set(words[kind]), set(), kind)
        rows = [(one["name"], one["meaning"]) for one in words["terms"]]
        self.assertEqual([tuple(row[2:-2].split(" | ")) for row in (ROOT / "docs/words.md").read_text().splitlines() if row.startswith("| ")][1:], rows)

    def test_lists(self):
        for what, name in (("models", "deepseek-v3"), ("platforms", "h100-sxm"), ("profiles", "nemo-dgxc"),
                           ("recipes", "deepseek_v3_pretrain_1024gpu_h100_bf16")):
            self.assertIn(name, self.ok("list", what).out)
            value = self.json("list", what)
            self.assertEqual(value["what"], what)
            row = next(row for row in value["rows"] if row["name"] == name)
            self.assertGreater(len(row), 1)
        self.assertIn("Pipeline bubble\n  Time in which a GPU waits", self.ok("list", "words").out)
        self.fails(2, "list", "model", says=["expected one of"])


if __name__ == "__main__":
    main()
