"""A person's way through the page: what one clicks, types, drops and copies, in a headless Chromium.

  tests/page/click_test.py PAGE STRETTO

PAGE is build/page/page.html of scripts/page, STRETTO the program of the same commit.
"""
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile
import unittest

from studio import Studio

PAGE, STRETTO = pathlib.Path(sys.argv[1]).resolve().as_uri(), str(pathlib.Path(sys.argv[2]).resolve())
START = "#scenario=llama3-8b&gpus=16&parallel.pipeline_model_parallel_size=4&parallel.context_parallel_size=1&training.global_batch_size=32"
ROWS = "document.querySelectorAll('[data-variant]').length"
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 8,
          "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
          "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu"}
SCRIPT = ("torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 16 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 "
          "--micro-batch-size 1 --global-batch-size 128 --tensor-model-parallel-size 2 --bf16 --vocab-size 32000 --swiglu\n")
PIN = "&pin=scenario%3Dllama3-8b%26gpus%3D16%26training.micro_batch_size%3D2"


class Page(unittest.TestCase):
    WIDTH = 1440

    @classmethod
    def setUpClass(cls):
        cls.studio = Studio(PAGE, START, width=cls.WIDTH, height=900 if cls.WIDTH > 600 else 844)
        cls.studio.wait("window.stretto?.shown !== undefined")

    @classmethod
    def tearDownClass(cls):
        cls.studio.close()

    def setUp(self):
        self.studio.browser.messages.clear()
        self.studio.go(START)

    def tearDown(self):
        self.assertLessEqual(self.studio.run("document.documentElement.scrollWidth"), self.WIDTH)
        self.assertEqual(self.studio.browser.messages, [], "the console is not quiet")

    def test_the_words_of_the_sentence_are_its_controls(self):
        s = self.studio
        before = s.step_ms()
        s.click("[aria-label^='framework:']")
        s.wait("document.querySelector('[role=dialog] input') !== null")
        s.type("torchtitan")
        s.wait("document.querySelectorAll('[role=option]').length < 8")
        s.click("[role=option][data-key=torchtitan]")
        before = s.other_step(before)
        self.assertIn("profile=torchtitan", s.hash())
        s.click("[aria-label='sequences a step']")
        s.type("64")
        s.press("Enter", 13, "\r")
        before = s.other_step(before)
        self.assertIn("global_batch_size=64", s.hash())
        s.press("ArrowUp", 38)
        s.other_step(before)
        self.assertIn("global_batch_size=128", s.hash())

    def test_a_strip_waits_until_a_number_rests(self):
        asked = self.studio.run("""new Promise((resolve) => {
            const asked = [], post = Worker.prototype.postMessage, field = document.querySelector("[aria-label='sequences a step']");
            Worker.prototype.postMessage = function (message, ...rest) {
                if (message.request) asked.push(JSON.parse(message.request).what);
                if (asked.at(-1) === "strip") setTimeout(() => resolve(asked), 1500);
                return post.call(this, message, ...rest);
            };
            const move = (left) => {
                const before = stretto.shown;
                field.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowUp", bubbles: true }));
                const look = () => stretto.shown === before ? setTimeout(look, 1) : left > 1 && move(left - 1);
                look();
            };
            move(4);
        })""")
        self.assertEqual([asked.count("step"), asked.count("strip")], [4, 1])

    def test_a_layout_step_keeps_the_gpus(self):
        s = self.studio
        before = s.step_ms()
        s.click("[aria-label^='larger tp']")
        s.other_step(before)
        self.assertEqual(s.run("document.getElementById('size-tp').textContent"), "2")
        self.assertEqual(s.run("document.getElementById('size-dp').textContent"), "2")
        self.assertIn("16 GPUs", s.run("document.querySelector('.sum').textContent"))

    def test_a_switch_shows_its_effect_before_and_its_reverse_after(self):
        s = self.studio
        effect = "document.querySelector('[data-key=\"overlap.overlap_grad_reduce\"]').closest('.sw').querySelector('.d').textContent"
        s.run("document.querySelector('#overlap .more .link').click()")
        s.wait(f"{effect}.includes('%') || {effect}.startsWith('0')")
        before = s.step_ms()
        s.click("#overlap [data-key='overlap.overlap_grad_reduce']")
        after = s.other_step(before)
        s.wait("document.getElementById('toast') !== null")
        self.assertIn("→", s.run("document.getElementById('toast').textContent"))
        s.click("#toast button")
        self.assertEqual(s.other_step(after), before)
        closed = s.run("[...document.querySelectorAll('#overlap .sw')].filter((one) => one.querySelector('.why')).length")
        self.assertGreater(closed, 3, "switches that are not possible say why")

    def test_a_lever_is_used_with_a_click(self):
        s = self.studio
        s.wait("document.querySelectorAll('#levers button.lv').length > 1")
        before = s.step_ms()
        s.run("document.querySelector('#levers button.lv').click()")
        self.assertLess(s.other_step(before), before)

    def test_pins_are_compared_on_one_time_axis(self):
        s = self.studio
        s.click("#pin")
        before = s.step_ms()
        s.run("document.querySelector(\"[aria-label='sequences a step']\").dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowUp', bubbles: true }))")
        now = s.other_step(before)
        for _ in range(4):
            s.click("#pin")
        self.assertEqual(s.hash().count("&pin="), 4, "a fifth takes the place of the first")
        s.go(START + PIN)
        s.run("[...document.querySelectorAll('nav button')].find((one) => one.textContent.startsWith('Compare')).click()")
        s.wait(f"{ROWS} === 2 && document.querySelectorAll('[data-variant] canvas').length === 2")
        self.assertGreater(s.run("document.querySelectorAll('.diff tbody tr').length"), 2)
        s.click("[aria-label='unpin variant B']")
        s.wait("location.hash.indexOf('&pin=') < 0")
        self.assertNotEqual(now, before)

    def test_a_pin_can_be_gone_back_to(self):
        s = self.studio
        s.go(START + PIN + "&view=compare")
        s.go(START.replace("#", "#view=compare&") + PIN)
        s.wait(f"{ROWS} === 2 && document.querySelectorAll('[data-variant] canvas').length === 2")  # nothing moves afterwards
        s.click("[data-variant=B] .acts button")
        s.wait("location.hash.startsWith('#scenario=llama3-8b&gpus=16&training.micro_batch_size=2')")

    def drop(self, name, text):
        s = self.studio
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / name
            file.write_text(text)
            before = s.step_ms()
            root = s.browser.call("DOM.getDocument")["root"]["nodeId"]
            node = s.browser.call("DOM.querySelector", nodeId=root, selector="#drop")["nodeId"]
            s.browser.call("DOM.setFileInputFiles", nodeId=node, files=[str(file)])
            s.other_step(before)

    def test_a_dropped_script(self):
        s = self.studio
        self.drop("run.sh", SCRIPT)
        self.assertEqual(s.run("document.getElementById('size-tp').textContent"), "2")
        self.assertIn("--num-layers", s.run("document.querySelector('.took').textContent"))

    def test_a_dropped_config(self):
        s = self.studio
        self.drop("config.json", json.dumps(CONFIG))
        self.assertTrue(s.hash().startswith("#config="))
        self.assertIn("the dropped config.json", s.run("document.querySelector('.ask').textContent"))
        self.assertIsNone(s.run("document.getElementById('problem')"))

    def copy(self, name):
        s = self.studio
        s.run("navigator.clipboard.writeText('')")
        if self.WIDTH > 600:
            s.click("#copy")
            s.wait("document.querySelector('[role=menuitem]') !== null")
            s.run(f"[...document.querySelectorAll('[role=menuitem]')].find((one) => one.textContent === {json.dumps(name)}).click()")
        else:
            s.run(f"[...document.querySelectorAll('.more-of button')].find((one) => one.textContent === {json.dumps('Copy: ' + name)}).click()")
        s.wait("navigator.clipboard.readText().then((text) => text !== '')")
        return s.clipboard()

    def test_copies(self):
        s = self.studio
        for name, part in (("Scenario as TOML", "[model]"), ("Megatron-LM flags", "--pipeline-model-parallel-size 4"), ("Prediction as JSON", '"step_ms"'),
                           ("One sentence", "Llama 3 8B on 16 H100")):
            self.assertIn(part, self.copy(name))
        self.assertEqual(self.copy("Link"), s.run("location.href"))
        words = shlex.split(self.copy("Command").replace("\\\n", " "))
        done = subprocess.run([STRETTO, *words[1:], "--json", "-"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f'"step_ms": {s.run("document.getElementById(`answer-step`).dataset.ms")}', done.stdout)

    def test_the_address_is_the_state_and_back_goes_back(self):
        s = self.studio
        first = s.step_ms()
        s.run("document.querySelector(\"[aria-label='sequences a step']\").dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowUp', bubbles: true }))")
        second = s.other_step(first)
        address = s.hash()
        s.run("history.back()")
        self.assertEqual(s.other_step(second), first)
        s.run("history.forward()")
        self.assertEqual(s.other_step(first), second)
        s.go(address)
        self.assertEqual(s.step_ms(), second)

    def test_experts_have_their_size(self):
        s = self.studio
        self.assertIsNone(s.run("document.getElementById('size-ep')"))
        s.go("#scenario=qwen3-30b-a3b")
        self.assertIsNotNone(s.run("document.getElementById('size-ep').textContent"))

    def test_all_settings_are_found_by_any_name(self):
        s = self.studio
        s.run("[...document.querySelectorAll('.all button')].at(0).click()")
        s.wait("document.querySelectorAll('.setting').length > 200")
        for text, key in (("--tp-comm-overlap", "overlap.tp_comm_overlap"), ("shared expert during", "overlap.moe_shared_expert_overlap"), ("micro batch size", "training.micro_batch_size")):
            s.run("(() => { const one = document.querySelector('.settings input'); one.focus(); one.select(); })()")
            s.type(text)
            s.wait(f"[...document.querySelectorAll('.setting')].slice(0, 3).some((one) => one.dataset.key === {json.dumps(key)})", 10)
        before = s.step_ms()
        s.run("document.getElementById('key-training.micro_batch_size').focus()")
        s.run("document.getElementById('key-training.micro_batch_size').select()")
        s.type("2")
        s.press("Enter", 13, "\r")
        s.other_step(before)
        self.assertIn("micro_batch_size=2", s.hash())
        s.click("[aria-label='undo the change of micro_batch_size']")
        s.wait("!location.hash.includes('micro_batch_size')")

    def test_what_is_not_possible_says_why_and_goes_back(self):
        s = self.studio
        before = s.step_ms()
        s.run("location.hash = location.hash + '&parallel.tensor_model_parallel_size=3'")
        s.wait("document.getElementById('problem') !== null")
        self.assertIn("tensor_model_parallel_size", s.run("document.getElementById('problem').textContent"))
        self.assertEqual(s.step_ms(), before, "the last answer stays")
        s.click("#problem .btn.dark")
        s.wait("document.getElementById('problem') === null")

    def test_what_does_not_fit_says_what_would(self):
        s = self.studio
        s.go("#scenario=llama3-70b&training.micro_batch_size=4&parallel.context_parallel_size=1")
        s.wait("document.querySelector('.answers .chip.bad') !== null")
        self.assertIn("too much", s.run("document.querySelector('.unfit').textContent"))
        s.wait("document.querySelector('.unfit button.lv') !== null")

    def test_search_finds_layouts_and_stops(self):
        s = self.studio
        s.go("#view=search&scenario=llama3-8b&gpus=8&training.global_batch_size=32")
        s.wait("document.querySelectorAll('.dot').length > 2")
        s.wait("document.getElementById('search-start').textContent === 'Search again'")
        self.assertGreater(s.run("document.querySelectorAll('.best tbody tr').length"), 2)
        s.click("#search-start")
        s.wait("document.getElementById('search-start').textContent === 'Stop'")
        s.click("#search-start")
        s.wait("document.getElementById('search-start').textContent === 'Search again'")

    def test_keyboard(self):
        s = self.studio
        s.run("document.querySelector('.ask button').focus()")
        visited = []
        for _ in range(4):
            visited.append(s.run("document.activeElement.getAttribute('aria-label').split(':')[0]"))
            s.press("Tab", 9)
        self.assertEqual(visited, ["model", "number of GPUs", "GPU", "framework"])
        s.run("document.activeElement.blur()")
        s.press("p", 80, "p")
        s.wait("location.hash.includes('&pin=')")
        s.press("k", 75, modifiers=2)
        s.wait("document.querySelector('.palette-input') !== null")
        s.type("h200 sxm 141")
        s.wait("document.querySelector('.found li')?.textContent.includes('H200')")
        before = s.step_ms()
        s.press("Enter", 13, "\r")
        s.other_step(before)
        self.assertIn("platform=h200-sxm", s.hash())
        s.press("g", 71, "g")
        s.press("c", 67, "c")
        s.wait("location.hash.includes('view=compare')")

    def test_axe_finds_nothing_wrong(self):
        s = self.studio
        s.wait("document.querySelectorAll('#levers button.lv').length > 0")
        self.assertEqual(s.violations(), [])
        for view in ("compare", "trace", "learn"):
            s.go(START.replace("#", f"#view={view}&") + PIN)
            s.wait("document.querySelector('main') !== null")
            self.assertEqual(s.violations(), [], view)


class Phone(Page):
    """All of it on a screen of 390 pixels, where nothing may be wider than that."""
    WIDTH = 390

    def test_the_answer_and_a_lever_are_on_the_first_screen(self):
        s = self.studio
        for address in (START, "#scenario=deepseek-v3-1024"):
            s.go(address)
            s.wait("document.querySelectorAll('#levers button.lv').length > 0")
            ends = s.run("""['.ask', '.answers', '#budget', '#levers button.lv', '#overlap', '#timeline', '#memorybars', '#layout'].map((one) =>
                document.querySelector(one).getBoundingClientRect().bottom)""")
            self.assertEqual(ends, sorted(ends), "the order of the questions")
            self.assertLess(ends[3], s.run("document.querySelector('.tabbar').getBoundingClientRect().top"), address)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
