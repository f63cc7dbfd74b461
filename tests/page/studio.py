"""The studio in a headless Chromium, as a person uses it."""
import json
import pathlib

from browser import Browser

AXE = pathlib.Path(__file__).resolve().parents[2] / "page/ui/node_modules/axe-core/axe.min.js"
STEP = "document.getElementById('answer-step')"


class Studio:
    def __init__(self, page, address="", width=1440, height=900):
        self.page = page
        self.browser = Browser(page + address, width=width, height=height)
        session, self.browser.session = self.browser.session, None  # permissions are the browser's
        self.browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        self.browser.session = session
        self.browser.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def close(self):
        self.browser.close()

    def run(self, script):
        return self.browser.run(script)

    def wait(self, script, seconds=120):
        return self.browser.wait(script, seconds)

    def go(self, address):
        """Opens the page at an address, as from a link."""
        self.browser.open(self.page + address)
        self.browser.call("Emulation.setFocusEmulationEnabled", enabled=True)
        self.wait("document.readyState === 'complete' && window.stretto !== undefined")
        self.settle()

    def settle(self):
        """Waits until the newest state has its answer or its problem on the screen."""
        self.wait(f"window.stretto?.shown !== undefined && ({STEP} !== null || document.getElementById('problem') !== null || "
                  "document.querySelector('main:not(.step), main.search') !== null)")
        self.wait("document.querySelector('.answers.stale, [aria-busy=true].answers') === null || document.getElementById('problem') !== null")

    def place(self, selector):
        return self.run(f"""(() => {{ const one = document.querySelector({json.dumps(selector)});
            if (one === null) throw new Error('nothing is ' + {json.dumps(selector)});
            one.scrollIntoView({{block: 'center'}});
            const box = one.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
            const seen = document.elementFromPoint(x, y);
            return {{x, y, hit: seen !== null && (one === seen || one.contains(seen) || seen.contains(one))}}; }})()""")

    def click(self, selector, modifiers=0):
        """Clicks an element; once more where answers that came in between have moved it away from the pointer."""
        self.wait(f"document.querySelector({json.dumps(selector)}) !== null", 20)
        for _ in range(3):
            at = self.place(selector)
            if not at["hit"]:
                raise AssertionError(f"{selector} is covered")
            self.run(f"""window.pressed = false;
                document.querySelector({json.dumps(selector)}).addEventListener('pointerdown', () => {{ window.pressed = true; }}, {{once: true}})""")
            for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
                self.browser.call("Input.dispatchMouseEvent", type=kind, x=at["x"], y=at["y"], button="none" if kind == "mouseMoved" else "left",
                                  clickCount=1, modifiers=modifiers)
            try:
                if self.run("window.pressed !== false"):
                    return
            except RuntimeError:
                return  # the click opened another page
        raise AssertionError(f"{selector} moves away")

    def press(self, key, code=0, text=None, modifiers=0):
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=f"Key{key.upper()}" if len(key) == 1 else key, windowsVirtualKeyCode=code,
                              modifiers=modifiers, **more)

    def type(self, text):
        self.browser.call("Input.insertText", text=text)

    def step_ms(self):
        return float(self.run(f"{STEP}.dataset.ms"))

    def other_step(self, before):
        """Waits for another step than `before`, and returns it."""
        self.wait(f"{STEP} !== null && {STEP}.dataset.ms !== {json.dumps(self.text_of(before))}")
        self.settle()
        return self.step_ms()

    def text_of(self, number):
        return self.run(f"String({number!r})")

    def hash(self):
        return self.run("location.hash")

    def clipboard(self):
        return self.run("navigator.clipboard.readText()")

    def violations(self):
        """Returns what axe finds wrong with the page as it stands."""
        if not self.run("window.axe !== undefined"):
            self.run(AXE.read_text() + "; 0")
        found = self.run("""axe.run(document, {resultTypes: ['violations']}).then(({violations}) => violations.map(({id, nodes}) =>
            id + ': ' + nodes.slice(0, 4).map((one) => one.html.slice(0, 160) + ' (' + one.failureSummary.slice(0, 240) + ')').join(' | ')))""")
        return found
