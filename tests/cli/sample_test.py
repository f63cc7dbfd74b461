"""`stretto sample`: text of checkpoints and of folders of Hugging Face's."""
import json
import signal

from program import ProgramTest, main


class Sample(ProgramTest):
    def setUp(self):
        super().setUp()
        self.trained = ["--set", "training.checkpoint_dir=run"]

    def sample(self, source, *arguments):
        return self.json("sample", source, *arguments)

    def test_text_of_a_checkpoint(self):
        """A model that has learnt one sentence says it; a seed gives one text, in any layout of the scenario."""
        model = ["--set", "model.hidden_size=24", "--set", "model.seq_length=44", "--set", "training.lr=2e-2", "--set", "training.train_iters=100"]
        self.ok("train", self.tiny, *self.trained, *model, "--log-interval", "50")
        said = self.ok("sample", self.tiny, *self.trained, *model, "--prompt", "the quick", "--tokens", "30", "--temperature", "0").out
        self.assertTrue(said.startswith("the quick brown fox jumps over the"), said)
        # A text that is longer than the model sees is continued from its end.
        text = "lazy dog. the quick brown fox jumps over the lazy dog. "
        long, end = (self.sample(self.tiny, *self.trained, *model, "--prompt", prompt, "--tokens", "5", "--temperature", "0") for prompt in (text, text[-44:]))
        self.assertEqual(long["tokens"][-5:], end["tokens"][-5:])
        one = self.sample(self.tiny, *self.trained, *model, "--prompt", "the", "--seed", "7")
        self.assertEqual((one["step"], one["prompt_tokens"], len(one["tokens"])), (100, 3, 103))
        self.assertEqual(bytes(one["tokens"][3:]).decode("latin-1"), bytes(one["tokens"][3:]).decode("utf-8", "replace"), "all of it is ASCII")
        layout = ["--set", "parallel.data_parallel_size=1", "--set", "parallel.tensor_model_parallel_size=3"]
        again = self.sample(self.tiny, *self.trained, *model, *layout, "--prompt", "the", "--seed", "7")
        self.assertEqual(again, one)
        self.assertNotEqual(self.sample(self.tiny, *self.trained, *model, "--prompt", "the", "--seed", "8")["text"], one["text"])
        best = self.sample(self.tiny, *self.trained, *model, "--prompt", "the", "--top-k", "1")
        self.assertEqual(best["tokens"], self.sample(self.tiny, *self.trained, *model, "--prompt", "the", "--temperature", "0")["tokens"])
        self.assert_as_documented("sample", one)

    def folder_with_tokenizer(self):
        """A folder as `export` makes it, whose tokenizer has the bytes, in an order of its own, and two words."""
        shape = ["--set", "model.vocab_size=300", "--set", "model.seq_length=16"]
        self.ok("export", self.tiny, "-o", "folder", *shape)
        letters = [chr(b) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174 else None for b in range(256)]
        spare = iter(range(256, 600))
        letters = [letter or chr(next(spare)) for letter in letters]
        vocabulary = {letter: 299 - byte for byte, letter in enumerate(letters)}
        vocabulary |= {"fo": 0, "fox": 1}
        self.tokenizer = {"added_tokens": [{"id": 2, "content": "<|end|>", "special": True}], "normalizer": None,
                          "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                          "post_processor": None, "decoder": {"type": "ByteLevel"},
                          "model": {"type": "BPE", "vocab": vocabulary, "merges": ["f o", "fo x"]}}
        self.write("folder/tokenizer.json", json.dumps(self.tokenizer))

    def test_text_of_a_folder(self):
        self.folder_with_tokenizer()
        one = self.sample("folder", "--prompt", "fox<|end|>a", "--tokens", "40")
        self.assertEqual(one["tokens"][:3], [1, 2, 299 - ord("a")])
        self.assertLessEqual(len(one["tokens"]), 43)
        # A scenario with these weights, and a tokenizer that is named, give the text too.
        self.write("s.toml", '[model]\nhf_config = "folder/config.json"\n[training]\nload = "folder"\n')
        self.assertEqual(self.sample("s.toml", "--prompt", "fox<|end|>a", "--tokens", "40", "--tokenizer", "folder/tokenizer.json"), one)
        config = json.loads((self.folder / "folder/config.json").read_text())
        config["eos_token_id"] = one["tokens"][5]
        self.write("folder/config.json", json.dumps(config))
        ended = self.sample("folder", "--prompt", "fox<|end|>a", "--tokens", "40")["tokens"]
        self.assertEqual(ended, one["tokens"][:one["tokens"].index(one["tokens"][5], 3) + 1])

    def test_errors(self):
        self.fails(2, "sample", self.tiny, says=["expected a checkpoint_dir with checkpoints, or load with weights"])
        self.fails(2, "sample", "absent.toml", says=["absent.toml"])
        self.write("model.gguf", b"GGUF\x03\0\0\0")
        self.fails(2, "sample", "model.gguf", says=["model.gguf", "a GGUF file (llama.cpp)", "safetensors"])
        (self.folder / "biases").mkdir()
        self.write("biases/config.json", json.dumps({"model_type": "qwen2", "clip_qkv": 8, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
                                                     "num_key_value_heads": 1, "intermediate_size": 64, "vocab_size": 300, "max_position_embeddings": 16}))
        self.fails(2, "sample", "biases", says=["biases", "a part is left out"])
        self.folder_with_tokenizer()
        self.fails(2, "sample", "folder", "--prompt", "", says=["--prompt: expected at least one token"])
        self.fails(2, "sample", "folder", "--temperature", "-1", says=["--temperature"])
        self.fails(2, "sample", "folder", "--json", "folder/tokenizer.json", says=["folder/tokenizer.json"])
        self.fails(2, "sample", "folder", "--set", "model.vocab_size=299", says=["at most vocab_size = 299"])
        self.fails(2, "sample", "folder", "--set", "model.vocab_size=400", says=["shape"])
        self.tokenizer["model"]["vocab"]["far"] = 300
        self.write("folder/tokenizer.json", json.dumps(self.tokenizer))
        self.fails(2, "sample", "folder", says=["folder/tokenizer.json", "at most vocab_size = 300 tokens, got 301"])
        self.tokenizer["model"]["type"] = "Unigram"
        self.write("folder/tokenizer.json", json.dumps(self.tokenizer))
        self.fails(2, "sample", "folder", says=["folder/tokenizer.json: model.type: expected BPE"])
        (self.folder / "folder/tokenizer.json").unlink()
        self.fails(2, "sample", "folder", says=["folder/tokenizer.json"])

    def test_ctrl_c_keeps_the_text(self):
        self.folder_with_tokenizer()
        process = self.start("sample", "folder", "--prompt", "fox", "--tokens", "1000000", "--json", "out.json")
        self.wait_until_it_catches(process, signal.SIGINT)
        process.stdout.read(20)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, "interrupted" in err), (1, True), err)
        self.assertGreater(len(json.loads((self.folder / "out.json").read_text())["tokens"]), 1)


if __name__ == "__main__":
    main()
