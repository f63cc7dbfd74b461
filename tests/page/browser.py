"""A headless Chromium without further packages: it is driven by its protocol through two pipes."""
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


class Browser:
    def __init__(self, page, width=1280, height=900):
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if program is None:
            raise RuntimeError("no Chromium: scripts/packages test")
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # the browser may still write
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()

        def move():  # the browser reads from 3 and writes to 4
            first, second = os.dup(to_browser), os.dup(from_browser)
            os.dup2(first, 3)
            os.dup2(second, 4)

        # No sandbox, because root has none; the page is ours.
        self.process = subprocess.Popen([program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                                         "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}", "--no-first-run",
                                         f"--window-size={width},{height}", "about:blank"],
                                        preexec_fn=move, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.count, self.buffer, self.session, self.messages = 0, b"", None, []
        self.width, self.height, self.target = width, height, None
        self.open(page)

    def open(self, url):
        """Opens a page in a tab of its own, and closes the one before."""
        before, self.session = self.target, None
        self.target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        self.call("Runtime.enable")
        self.call("Log.enable")  # what a policy refuses stands only there
        self.call("Page.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=self.width, height=self.height, deviceScaleFactor=1, mobile=self.width < 600)
        self.navigate(url)
        if before:
            session, self.session = self.session, None
            self.call("Target.closeTarget", targetId=before)
            self.session = session

    def navigate(self, url):
        self.call("Page.navigate", url=url)

    def read(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read_end], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"the browser was silent for {seconds} s")
            part = os.read(self.read_end, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, seconds=120, **parameters):
        self.count += 1
        request = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.write_end, json.dumps(request).encode() + b"\0")
        while True:
            message = self.read(seconds)
            if message.get("id") == self.count:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            if message.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
                self.messages.append(json.dumps(message["params"])[:600])

    def run(self, script, seconds=120):
        """Returns the value of an expression, awaited."""
        result = self.call("Runtime.evaluate", seconds, expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"])[:2000])
        return result["result"].get("value")

    def wait(self, script, seconds=60):
        end = time.monotonic() + seconds
        while not (value := self.run(script)):
            if time.monotonic() > end:
                raise TimeoutError(script + " " + " ".join(self.messages))
            time.sleep(0.01)
        return value

    def close(self):
        self.process.terminate()
        self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)
        self.folder.cleanup()
