"""The studio's pictures in a headless Chromium: the timeline from the whole step to a kernel, GPUs, memory, and Learn.

  tests/page/drawn_test.py PAGE

PAGE is build/page/page.html of scripts/page.
"""
import pathlib
import sys
import time
import unittest

from browser import Browser

STUDIO = pathlib.Path(sys.argv[1]).resolve().as_uri()
START = "#scenario=llama3-8b&gpus=16&parallel.pipeline_model_parallel_size=4&parallel.context_parallel_size=1&training.global_batch_size=32"
CANVAS = "document.querySelector('.tl-canvas canvas')"


class Drawn(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser("about:blank", width=1440, height=900)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()

    def go(self, address):
        self.browser.open(STUDIO + address)

    def wait(self, script):
        return self.browser.wait(f"!!({script})", 40)

    def mouse(self, kind, x, y, count=1):
        self.browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="none" if kind == "mouseMoved" else "left", clickCount=count)

    def click(self, x, y, count=1):
        for number in range(1, count + 1):
            self.mouse("mousePressed", x, y, number)
            self.mouse("mouseReleased", x, y, number)

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.browser.call("Input.dispatchKeyEvent", type=kind, key=key, **({"text": key} if kind == "keyDown" and len(key) == 1 else {}))

    def box(self, selector):
        return self.browser.run(f"(() => {{ const box = document.querySelector({selector!r}).getBoundingClientRect(); return [box.x, box.y, box.width, box.height]; }})()")

    def rows(self):
        return self.browser.run("[...document.querySelectorAll('.tl-table tbody tr')].map((row) => row.textContent)")

    def test_from_the_whole_step_to_a_kernel_by_keys_and_mouse(self):
        self.go(START)
        self.wait(f"{CANVAS} && {CANVAS}.getAttribute('aria-label').includes('computing')")
        x, y, width, _ = self.box(".tl-canvas canvas")
        self.browser.run(f"{CANVAS}.focus()")
        self.press("0")
        self.press("t")
        self.wait("document.querySelector('.tl-table th')?.textContent === 'stage'")
        self.wait("document.querySelectorAll('.tl-table tbody tr').length > 20")  # a jump takes 200 ms
        self.wait("document.querySelector('#budget .bar')?.children.length > 4")  # what comes later above moves the timeline
        x, y, width, _ = self.box(".tl-canvas canvas")
        # One gesture leads from the whole step to a pass, another to a kernel.
        self.click(x + 60 + width / 2, y + 30, count=2)
        self.wait("document.querySelector('.tl-table th')?.textContent === 'lane'")
        kernels = len(self.rows())
        self.assertGreater(kernels, 5)
        self.press("ArrowRight")
        self.press("f")
        end = time.monotonic() + 20
        while len(self.rows()) >= kernels and time.monotonic() < end:
            time.sleep(0.1)
        self.assertLess(len(self.rows()), kernels)
        x, y, width, _ = self.box(".tl-canvas canvas")
        self.mouse("mouseMoved", x + 60 + width / 2, y + 150)
        self.wait("document.querySelector('.tl-tip')?.textContent.includes('takes')")
        self.assertEqual(self.browser.messages, [])

    def test_a_gpu_that_is_chosen_has_its_groups(self):
        self.go(START)
        self.wait("document.querySelector('#gpupicture .leg')?.textContent.includes('GPU 0, node 0')")
        x, y, width, height = self.box("#gpupicture canvas")
        self.click(x + width - 6, y + height - 8)
        self.wait("document.querySelector('#gpupicture .leg').textContent.includes('GPU 15, node 1')")
        self.browser.run("document.querySelector('#gpupicture canvas').focus()")
        self.press("ArrowLeft")
        self.wait("document.querySelector('#gpupicture .leg').textContent.includes('GPU 14, node 1')")
        self.assertIn("its pipeline", self.browser.run("document.querySelector('#gpupicture .leg').textContent"))

    def test_a_guess_comes_before_the_answer(self):
        self.go(f"{START}&view=learn")
        for page in range(1, 7):
            self.wait(f"document.querySelector('.learn .n')?.textContent.startsWith('{page} of 6')")
            self.wait("document.querySelector('.learn-value .v') && !document.querySelector('.learn-value .v.q')")
            self.browser.run("[...document.querySelectorAll('.knob button')].find((one) => one.getAttribute('aria-pressed') === 'false').click()")
            self.wait("document.querySelectorAll('.learn .cover').length === document.querySelectorAll('.learn-row').length")
            self.browser.run("document.querySelector('.guesses button').click()")
            self.wait("/^(Right|Not so): .*[0-9]/.test(document.querySelector('.verdict')?.textContent ?? '')")
            self.assertEqual(self.browser.run("document.querySelectorAll('.learn [role=alert], .learn .cover').length"), 0, page)
            self.assertLessEqual(self.browser.run("document.documentElement.scrollHeight"), 900, page)
            self.press("ArrowRight")
        self.assertIn("page=6", self.browser.run("location.hash"))
        self.assertEqual(self.browser.messages, [])


unittest.main(argv=sys.argv[:1])
