"""Writes the page as one file: assemble.py FOLDER TEMPLATE OUTPUT.

FOLDER has stretto_page.js and stretto_page.wasm; TEMPLATE is the studio as Vite builds it, page/ui/dist/index.html, with its
script, style and fonts in it. The module and the files of scenarios/ are compressed and then written in base64, because a
page that is opened from a file may fetch nothing. The page's Content-Security-Policy lets the browser run only the script
whose hash stands in it, and load nothing from elsewhere.
"""
import base64
import gzip
import hashlib
import json
import pathlib
import re
import sys

here = pathlib.Path(__file__).resolve().parent
built, template, output = (pathlib.Path(argument) for argument in sys.argv[1:4])
scenarios = here.parent / "scenarios"
files = {path.relative_to(scenarios).as_posix(): path.read_text()
         for kind in ("models", "platforms", "profiles") for path in sorted((scenarios / kind).iterdir())}
files |= {name: (scenarios / name).read_text() for name in ("habits.toml", "model_names.toml", "bridge_recipes.csv", "formats.toml", "families.toml", "accuracy.csv")}


def packed(data):
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()


def hash_of(text):
    """Returns the hash of an inline script, as a Content-Security-Policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


worker = (built / "stretto_page.js").read_text() + (here / "worker.js").read_text()
text = template.read_text()
scripts = re.findall(r"<script type=\"module\"[^>]*>(.*?)</script>", text, re.DOTALL)
if len(scripts) != 1:
    sys.exit(f"{template}: expected one script of a module, got {len(scripts)}")
parts = {
    "data": packed(json.dumps(files).encode()),
    "wasm": packed((built / "stretto_page.wasm").read_bytes()),
    "worker": packed(worker.encode()),
    "script-hash": hash_of(scripts[0]),
}
for name, part in parts.items():
    place = f"@{name}@"
    if text.count(place) != 1:
        sys.exit(f"{template}: expected {place} once")
    text = text.replace(place, part)
output.write_text(text)
print(f"{output}: {len(text.encode()) / 1e6:.2f} MB, {len(gzip.compress(text.encode(), 9)) / 1e6:.2f} MB compressed")
