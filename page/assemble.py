"""Writes the page as one file: assemble.py FOLDER TEMPLATE OUTPUT.

FOLDER has stretto_page.js, stretto_page.wasm and unpack.wasm; TEMPLATE is the studio as Vite builds it, page/ui/dist/index.html,
with its script, style and fonts in it. The module and the files of scenarios/ are compressed, for page/unpack.cpp, and then
written in base85, because a page that is opened from a file may fetch nothing. The page's Content-Security-Policy lets the browser run only the script
whose hash stands in it, and load nothing from elsewhere.
"""
import base64
import gzip
import hashlib
import json
import lzma
import pathlib
import re
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
built, template, output = (pathlib.Path(argument) for argument in sys.argv[1:4])
scenarios = here.parent / "scenarios"
files = {path.relative_to(scenarios).as_posix(): path.read_text()
         for kind in ("models", "platforms", "profiles") for path in sorted((scenarios / kind).iterdir())}
files |= {name: (scenarios / name).read_text() for name in ("habits.toml", "model_names.toml", "bridge_recipes.csv", "formats.toml", "document_keys.toml", "families.toml", "accuracy.csv")}


# For WebAssembly and for tables of numbers: no part of a byte's address says what it is.
SMALLEST = [{"id": lzma.FILTER_LZMA1, "preset": 9 | lzma.PRESET_EXTREME, "lc": 3, "lp": 0, "pb": 0, "dict_size": 1 << 24, "nice_len": 273}]


def without_comments(name, text):
    """Returns the text of a file of scenarios/ without lines of comments, which stay as empty ones: messages name lines."""
    return re.sub(r"(?m)^[ \t]*#.*$", "", text) if name.endswith(".toml") else text


def minified(script):
    return subprocess.run([here / "ui/node_modules/.bin/esbuild", "--minify"], input=script, text=True, capture_output=True, check=True).stdout


def as_text(data):
    """Returns bytes as page/ui/src/base85.ts reads them: without the "<" that HTML reads."""
    return base64.b85encode(data).decode().replace("<", ",")


def zipped(data):
    return as_text(gzip.compress(data, 9, mtime=0))


def packed(data):
    """Returns the data as page/unpack.cpp reads them: with their length in the header, which Python leaves unknown."""
    stream = lzma.compress(data, format=lzma.FORMAT_ALONE, filters=SMALLEST)
    return as_text(stream[:5] + len(data).to_bytes(8, "little") + stream[13:])


def hash_of(text):
    """Returns the hash of an inline script, as a Content-Security-Policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


worker = minified((built / "stretto_page.js").read_text() + (here / "worker.js").read_text())
text = template.read_text()
scripts = re.findall(r"<script type=\"module\"[^>]*>(.*?)</script>", text, re.DOTALL)
if len(scripts) != 1:
    sys.exit(f"{template}: expected one script of a module, got {len(scripts)}")
parts = {
    "data": packed(json.dumps({name: without_comments(name, text) for name, text in files.items()}).encode()),
    "wasm": packed((built / "stretto_page.wasm").read_bytes()),
    "unpack": as_text((built / "unpack.wasm").read_bytes()),
    "worker": zipped(worker.encode()),
    "script-hash": hash_of(scripts[0]),
}
for name, part in parts.items():
    place = f"@{name}@"
    if text.count(place) != 1:
        sys.exit(f"{template}: expected {place} once")
    text = text.replace(place, part)
output.write_text(text)
print(f"{output}: {len(text.encode()) / 1e6:.2f} MB, {len(gzip.compress(text.encode(), 9)) / 1e6:.2f} MB compressed")
