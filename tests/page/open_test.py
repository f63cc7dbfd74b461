"""The page, also when its predictor fails, and a report, opened in a headless Chromium as a person opens them.

  tests/page/open_test.py PAGE STRETTO

PAGE is build/page/page.html of scripts/page, STRETTO the program of the same commit.
"""
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from browser import Browser

PAGE, STRETTO = pathlib.Path(sys.argv[1]).resolve().as_uri(), str(pathlib.Path(sys.argv[2]).resolve())
PROBLEM = "document.getElementById('problem')"
STEP = "document.getElementById('answer-step')"
LARGEST_BYTES, LARGEST_COMPRESSED_BYTES = 3e6, 2.1e6
TALLEST_REPORT_PX = 1700


class Open(unittest.TestCase):
    def open(self, url, width=1440):
        browser = Browser(url, width=width)
        self.addCleanup(browser.close)
        return browser

    def check_quiet(self, browser):
        """Neither an exception, nor a word on the console, nor anything that the page's policy refused."""
        browser.run("new Promise((resolve) => setTimeout(resolve, 200))")
        self.assertEqual(browser.messages, [])

    def test_page(self):
        """The page answers within a minute of being opened, with the figures of the command, and every setting can be reached."""
        browser = self.open(PAGE)
        browser.wait(f"{STEP} !== null", 60)
        printed = subprocess.run([STRETTO, "simulate", "llama3-70b", "--json", "-"], check=True, capture_output=True, text=True).stdout
        self.assertEqual(float(browser.run(f"{STEP}.dataset.ms")), json.loads(printed)["step_ms"])
        self.assertIn(browser.run(f"{STEP}.textContent"), browser.run("document.querySelector('#budget h2').textContent").replace(" ", ""))
        browser.wait("document.querySelector('#timeline canvas, canvas') !== null")
        self.assertIsNone(browser.run(PROBLEM))
        browser.run("document.querySelector('.all button').click()")
        browser.wait("document.querySelectorAll('.meaning').length > 200")
        meanings = browser.run("[...document.querySelectorAll('.meaning')].map((one) => one.textContent)")
        self.assertEqual([text for text in meanings if meanings.count(text) > 1], [], "two keys with one description")
        self.check_quiet(browser)

    def test_it_is_one_small_file(self):
        text = pathlib.Path(sys.argv[1]).read_bytes()
        self.assertLess(len(text), LARGEST_BYTES)
        self.assertLess(len(gzip.compress(text, 9)), LARGEST_COMPRESSED_BYTES)

    def test_policy(self):
        """A script that is written into the page afterwards does not run, and nothing can be loaded."""
        browser = self.open(PAGE)
        browser.wait(f"{STEP} !== null")
        browser.run("document.body.append(Object.assign(document.createElement('script'), { textContent: 'window.ran = true' }))")
        self.assertIsNone(browser.run("window.ran"))
        self.assertEqual(browser.run("fetch('http://127.0.0.1:9/').catch((problem) => problem.name)"), "TypeError")
        self.assertGreaterEqual(sum("Content Security Policy" in message for message in browser.messages), 2)

    def test_a_predictor_that_fails(self):
        browser = self.open(PAGE)
        browser.wait(f"{STEP} !== null")
        first = browser.run(f"{STEP}.dataset.ms")
        # A worker that never answers, as one that waits for a thread.
        browser.run("""window.post = Worker.prototype.postMessage; Worker.prototype.postMessage = () => {};
            stretto.engine.silentMs = 300; stretto.go('scenario=llama3-70b&training.micro_batch_size=2'); 0""")
        browser.wait(f"{PROBLEM} !== null")
        self.assertIn("was silent for 0.3 s", browser.run(f"{PROBLEM}.textContent"))
        self.assertIn("Try again", browser.run(f"{PROBLEM}.textContent"))
        # The next change starts another.
        browser.run("Worker.prototype.postMessage = post; stretto.engine.silentMs = 20000; stretto.go('scenario=llama3-70b')")
        browser.wait(f"{PROBLEM} === null")
        self.assertEqual(browser.run(f"{STEP}.dataset.ms"), first)
        # A worker that ends with an error.
        browser.run("""Worker.prototype.postMessage = function () { this.onerror({ message: 'out of memory' }); };
            stretto.go('scenario=llama3-70b&training.micro_batch_size=2')""")
        browser.wait(f"{PROBLEM} !== null")
        self.assertIn("out of memory", browser.run(f"{PROBLEM}.textContent"))
        browser.run("Worker.prototype.postMessage = post; stretto.go('scenario=llama3-70b')")
        browser.wait(f"{PROBLEM} === null")

    def test_a_damaged_predictor(self):
        text = pathlib.Path(sys.argv[1]).read_text()
        begin = text.index('id="wasm">') + len('id="wasm">')
        with tempfile.NamedTemporaryFile("w", suffix=".html") as file:
            file.write(text[:begin + 200000] + text[text.index("</script>", begin):])
            file.flush()
            browser = self.open(pathlib.Path(file.name).as_uri())
            browser.wait(f"{PROBLEM} !== null")
            self.assertIn("this copy of the page is damaged", browser.run(f"{PROBLEM}.textContent"))

    def test_a_long_answer_is_no_silence(self):
        """`limits` computes dozens of steps and takes longer than a predictor may be silent."""
        browser = self.open(PAGE)
        browser.wait(f"{STEP} !== null")
        browser.run("window.begin = performance.now(); stretto.engine.silentMs = 1500; 0")
        answer = json.loads(browser.run("stretto.ask('limits', 'scenario=llama2-70b')"))
        self.assertGreater(browser.run("performance.now() - begin"), 1500)
        self.assertNotIn("error", answer)

    def test_report(self):
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.html"
            subprocess.run([STRETTO, "simulate", "llama3-8b", "--html", report], check=True, capture_output=True)
            for width in (1280, 390):
                browser = self.open(report.as_uri(), width)
                browser.wait("document.readyState === 'complete'")
                self.assertGreater(browser.run("document.querySelectorAll('canvas, svg').length"), 0)
                self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), width)
                self.check_quiet(browser)

    def test_a_report_is_short(self):
        """Its answers and pictures are on two pages of paper; what is long opens on a click."""
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.html"
            subprocess.run([STRETTO, "simulate", "llama3-70b", "--modes", "--limits", "--html", report], check=True, capture_output=True)
            browser = self.open(report.as_uri(), 1200)
            browser.wait("document.querySelector('canvas') !== null")
            self.assertLessEqual(browser.run("document.documentElement.scrollHeight"), TALLEST_REPORT_PX)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
