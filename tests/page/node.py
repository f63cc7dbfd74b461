"""The page's predictor in Node.js, without a browser: the module of build/page, with the files that the page gives it."""
import json
import pathlib
import selectors
import shutil
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = """
const fs = require("fs"), [module, data] = process.argv.slice(1);
let signs = 0;
async function begin() {
  const predictor = await require(module)({ wasmBinary: fs.readFileSync(module.replace(/js$/, "wasm")), goesOn: () => ++signs });
  for (const kind of ["models", "platforms", "profiles"]) {
    predictor.FS.mkdirTree("/data/" + kind);
    for (const name of fs.readdirSync(`${data}/${kind}`))
      predictor.FS.writeFile(`/data/${kind}/${name}`, fs.readFileSync(`${data}/${kind}/${name}`));
  }
  for (const name of ["habits.toml", "model_names.toml", "bridge_recipes.csv", "formats.toml", "document_keys.toml", "families.toml", "accuracy.csv"])  // as page/assemble.py has them
    predictor.FS.writeFile(`/data/${name}`, fs.readFileSync(`${data}/${name}`));
  predictor.FS.mkdirTree("/dropped");
  predictor.FS.chdir("/dropped");
  for await (const line of require("readline").createInterface({ input: process.stdin })) {
    signs = 0;
    for (const [name, path] of Object.entries(JSON.parse(line).files ?? {})) predictor.FS.writeFile(name, fs.readFileSync(path));
    const text = predictor.ccall("stretto_answer", "string", ["string"], [line]);
    fs.writeSync(1, JSON.stringify([text, signs]) + "\\n");
  }
}
begin();
"""


class NodeTest(unittest.TestCase):
    """A test of the predictor's answers: MODULE of the subclass is the path of stretto_page.js."""

    @classmethod
    def setUpClass(cls):
        cls.node = Node(cls.MODULE)

    @classmethod
    def tearDownClass(cls):
        cls.node.close()

    def ask(self, what, state, **more):
        return json.loads(self.node.ask(what, state, more=more))


class Node:
    def __init__(self, module):
        """Starts the predictor of build/page/stretto_page.js."""
        program = shutil.which("node") or shutil.which("nodejs")
        if program is None:
            raise RuntimeError("no Node.js: scripts/packages page")
        self.process = subprocess.Popen([program, "-e", SCRIPT, "--", str(pathlib.Path(module).resolve()), str(ROOT / "scenarios")],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.buffer = b""
        self.signs = 0  # that the newest answer gave of its progress

    def ask(self, what, state=None, seconds=20, more=None):
        """Returns the text of page/answer.hpp's answer. A predictor that is silent for `seconds` is a failure. `files` of `more`
        are given to it first: its name of each, and the path."""
        request = {"what": what} | (more or {})
        if state:
            request |= {key: state[key] for key in ("scenario", "platform")} | {"set": [f"{key}={value}" for key, value in state["set"].items()]}
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.buffer:
                if not selector.select(seconds):
                    raise TimeoutError(f"the page's predictor was silent for {seconds} s: {json.dumps(request)}")
                part = self.process.stdout.read1(1 << 20)
                if not part:
                    raise RuntimeError(f"the page's predictor ended with code {self.process.wait()}: {json.dumps(request)}")
                self.buffer += part
        line, self.buffer = self.buffer.split(b"\n", 1)
        text, self.signs = json.loads(line)
        return text

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
