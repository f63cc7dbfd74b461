"""A person's way through the page: every button is clicked, keys are pressed, a file is given, in a headless Chromium.

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

from browser import Browser

PAGE, STRETTO = pathlib.Path(sys.argv[1]).resolve().as_uri(), str(pathlib.Path(sys.argv[2]).resolve())
START = "#scenario=llama3-8b&gpus=16&parallel.pipeline_model_parallel_size=4&parallel.context_parallel_size=1&training.global_batch_size=32"
FIGURES = "document.querySelectorAll('#strips figure').length"
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 8,
          "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
          "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu"}


class Page(unittest.TestCase):
    WIDTH = 1280

    @classmethod
    def setUpClass(cls):
        cls.browser = Browser(PAGE + START, width=cls.WIDTH)
        session, cls.browser.session = cls.browser.session, None  # permissions are the browser's
        cls.browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        cls.browser.session = session
        cls.browser.call("Emulation.setFocusEmulationEnabled", enabled=True)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()

    def setUp(self):
        self.go(START)

    def run_js(self, script):
        return self.browser.run(script)

    def wait(self, script):
        return self.browser.wait(script, 120)

    def settle(self):
        """Waits until the newest state is shown, with its texts and strips."""
        self.wait("stretto.shown !== undefined && byStatus().startsWith('step')".replace("byStatus()", "document.getElementById('status').textContent.trim()"))
        self.wait("document.querySelector('#strips canvas') !== null && document.getElementById('command').textContent.startsWith('stretto')")

    def go(self, address):
        """Opens the page at an address, as from a link."""
        self.browser.navigate("about:blank")
        self.browser.navigate(PAGE + address)
        self.wait("document.readyState === 'complete' && window.stretto !== undefined")
        self.settle()

    def wait_for_strips(self):
        """Waits until all strips are drawn, in the frame after their last arrival, which makes buttons next to them anew."""
        self.wait("[...document.querySelectorAll('#strips figure')].every((one) => one.querySelector('canvas')?.getAttribute('aria-label'))")

    def place(self, selector):
        return self.run_js(f"""(() => {{ const one = document.querySelector({json.dumps(selector)});
            for (let outer = one.closest('details'); outer; outer = outer.parentElement.closest('details')) outer.open = true;
            one.scrollIntoView({{block: 'center'}});
            const box = one.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
            const seen = document.elementFromPoint(x, y);
            return {{x, y, hit: seen !== null && (one === seen || one.contains(seen) || seen.contains(one))}}; }})()""")

    def click(self, selector):
        at = self.place(selector)
        self.assertTrue(at["hit"], f"{selector} is covered")
        for kind in ("mousePressed", "mouseReleased"):
            self.browser.call("Input.dispatchMouseEvent", type=kind, x=at["x"], y=at["y"], button="left", clickCount=1)

    def press(self, key, code=0, text=None):
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)

    def step(self):
        return self.run_js("document.querySelector('#headline dd').textContent")

    def hash(self):
        return self.run_js("location.hash")

    def clipboard(self):
        return self.run_js("navigator.clipboard.readText()")

    def test_pins_are_up_to_four_on_one_time_axis(self):
        for _ in range(2):
            before = self.run_js(FIGURES)
            self.click("#pin")
            self.wait(f"{FIGURES} === {before + 1}")
        self.click("[aria-label='pin a variant for every pipeline_schedule']")
        self.wait(f"{FIGURES} === 4")  # 1F1B is shown; ZB-H1, ZB-V and DualPipeV are pinned
        self.wait_for_strips()
        axes = self.run_js("""[...document.querySelectorAll('#strips canvas')].map((one) => one.getAttribute('aria-label'))
            .filter(Boolean).map((text) => text.match(/axis of ([^;]*);/)[1])""")
        self.assertEqual(len(axes), 4)
        self.assertEqual(len(set(axes)), 1)
        self.click("#pin")
        self.wait(f"{FIGURES} === 5")
        self.assertEqual(self.hash().count("&pin="), 4)
        first = self.run_js("document.querySelectorAll('#strips figure')[1].textContent")
        self.click("#pin")  # a fifth takes the place of the first
        self.wait(f"document.querySelectorAll('#strips figure')[1].textContent !== {json.dumps(first)}")
        self.assertEqual(self.run_js(FIGURES), 5)
        self.click("[aria-label='unpin variant 1']")
        self.wait(f"{FIGURES} === 4")
        self.assertEqual(self.hash().count("&pin="), 3)
        self.assertGreater(self.run_js("document.querySelectorAll('#variants tbody tr').length"), 2)

    def test_a_strip_waits_until_a_slider_rests(self):
        asked = self.run_js("""new Promise((resolve) => {
            const asked = [], post = Worker.prototype.postMessage, slider = document.getElementById("key-training.global_batch_size");
            Worker.prototype.postMessage = function (message, ...rest) {
                asked.push(JSON.parse(message.request).what);
                if (asked.at(-1) === "strip") setTimeout(() => resolve(asked), 1000);
                return post.call(this, message, ...rest);
            };
            const move = (left) => {
                const before = stretto.shown;
                slider.value = 64 * left;
                slider.dispatchEvent(new Event("change"));
                const look = () => stretto.shown === before ? setTimeout(look, 1) : left > 1 && move(left - 1);
                look();
            };
            move(4);
        })""")
        self.assertEqual([asked.count("step"), asked.count("strip")], [4, 1])

    def test_a_pin_can_be_gone_back_to(self):
        first = self.step()
        self.click("#pin")
        self.wait(f"{FIGURES} === 2")
        self.change("training.global_batch_size", "64")
        self.wait(f"document.querySelector('#headline dd').textContent !== {json.dumps(first)}")
        self.settle()
        self.wait_for_strips()
        self.click("#strips figure:nth-child(2) button")
        self.wait(f"document.querySelector('#headline dd').textContent === {json.dumps(first)}")

    def change(self, key, value):
        self.run_js(f"""(() => {{ const one = document.getElementById({json.dumps('key-' + key)}); one.value = {json.dumps(value)};
            one.dispatchEvent(new Event('change')); }})()""")

    def test_limits(self):
        self.click("#ask-limits")
        self.wait("!document.getElementById('limits').hidden && document.querySelectorAll('#limits-text table').length === 3")
        self.assertGreater(self.run_js("document.querySelectorAll('#limits-text tbody tr').length"), 5)
        self.assertFalse(self.run_js("document.getElementById('ask-limits').disabled"))

    def test_a_dropped_config(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "config.json"
            file.write_text(json.dumps(CONFIG))
            before = self.step()
            root = self.browser.call("DOM.getDocument")["root"]["nodeId"]
            node = self.browser.call("DOM.querySelector", nodeId=root, selector="#drop")["nodeId"]
            self.browser.call("DOM.setFileInputFiles", nodeId=node, files=[str(file)])
            self.wait(f"document.querySelector('#headline dd').textContent !== {json.dumps(before)}")
            self.settle()
        self.assertEqual(self.run_js("document.getElementById('source').value"), "dropped")
        self.assertTrue(self.hash().startswith("#config="))
        self.assertEqual(self.run_js("document.getElementById('key-model.num_layers').value"), "8")
        self.assertTrue(self.run_js("document.getElementById('problem').hidden"))

    def test_copies(self):
        for name, part in (("command", "stretto simulate"), ("toml", "[model]"), ("megatron", "--pipeline-model-parallel-size 4"), ("json", '"step_ms"')):
            self.click(f"button[data-of={name}]")
            self.wait(f"document.querySelector('button[data-of={name}]').textContent === 'Copied'")
            self.assertIn(part, self.clipboard())
            self.assertEqual(self.clipboard(), self.run_js(f"document.getElementById('{name}').textContent"))
        self.click("button[data-of=command]")
        self.wait("navigator.clipboard.readText().then((text) => text.startsWith('stretto'))")
        words = shlex.split(self.clipboard().replace("\\\n", " "))
        done = subprocess.run([STRETTO, *words[1:]], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(self.step(), done.stdout)
        self.click("#link")
        self.wait("document.getElementById('link').textContent === 'Copied'")
        self.assertEqual(self.clipboard(), self.run_js("location.href"))

    def test_the_address_is_the_state(self):
        self.change("training.micro_batch_size", "2")
        self.click("#pin")
        self.wait(f"{FIGURES} === 2")
        self.change("parallel.tensor_model_parallel_size", "2")
        self.wait("location.hash.includes('tensor_model_parallel_size=2')")
        self.settle()
        address, step = self.hash(), self.step()
        self.go(address)
        self.wait(f"{FIGURES} === 2")
        self.assertEqual(self.step(), step)
        self.assertEqual(self.run_js("document.getElementById('key-training.micro_batch_size').value"), "2")
        self.click("#reset")
        self.wait("!location.hash.split('&pin=')[0].includes('tensor_model_parallel_size')")

    def test_a_framework(self):
        before = self.step()
        self.run_js("(() => { const one = document.getElementById('profile'); one.value = 'torchtitan'; one.dispatchEvent(new Event('change')); })()")
        self.wait(f"document.querySelector('#headline dd').textContent !== {json.dumps(before)}")
        self.settle()
        self.assertIn("profile=torchtitan", self.hash())
        self.wait("document.getElementById('command').textContent.includes('--set profile=torchtitan')")

    def test_keys_of_experts_are_for_experts(self):
        hidden = "document.querySelector('[data-key=\"parallel.moe_token_dispatcher_type\"]').hidden"
        self.assertTrue(self.run_js(hidden))
        self.go("#scenario=qwen3-30b-a3b")
        self.assertFalse(self.run_js(hidden))
        for key in ("training.fp8_format", "training.fp4_format", "training.cuda_graph_modules", "training.reset_attention_mask",
                    "overlap.overlap_moe_expert_parallel_comm", "overlap.ep_flash_overlap"):
            self.assertGreater(self.run_js(f"document.querySelector('[data-key=\"{key}\"]').getBoundingClientRect().height"), 0, key)

    def test_keyboard(self):
        self.run_js("document.getElementById('source').focus()")
        visited = []
        for _ in range(4):
            visited.append(self.run_js("document.activeElement.id"))
            self.press("Tab", 9)
        self.assertEqual(visited, ["source", "drop", "platform", "gpus"])
        before = self.step()
        self.run_js("document.querySelector('[data-key=\"training.micro_batch_size\"] input[type=range]').focus()")
        self.press("ArrowRight", 39)
        self.wait("location.hash.includes('micro_batch_size=2')")
        self.wait(f"document.querySelector('#headline dd').textContent !== {json.dumps(before)}")
        self.settle()
        self.run_js("document.getElementById('pin').focus()")
        self.press("Enter", 13, "\r")
        self.wait(f"{FIGURES} === 2")
        self.wait_for_strips()
        self.run_js("document.querySelector('#strips figure:nth-child(2) button:last-child').focus()")
        self.press(" ", 32, " ")
        self.wait(f"{FIGURES} === 1")


class Phone(Page):
    """All of it on a screen of 390 pixels, where nothing may be wider than that."""
    WIDTH = 390

    def tearDown(self):
        self.run_js("for (const one of document.querySelectorAll('details')) one.open = true")
        self.assertLessEqual(self.run_js("document.documentElement.scrollWidth"), 390)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
