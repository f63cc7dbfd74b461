"""Every odd input of odd_inputs.py is one line on standard error and the right exit code, and nothing is overwritten."""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from odd_inputs import CASES
from program import IS_FAST_SUITE, LIMITS_MEMORY, PLATFORM, STRETTO, TINY, main

# Characters that change the direction of writing, or end lines (base/printable.hpp).
BIDI = re.compile("[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
CONTROL = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]")
PLATFORM_TEXT = pathlib.Path(PLATFORM).read_text()


def lay(folder, files):
    (folder / "tiny.toml").write_text(TINY)
    (folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 40)
    for name, content in files.items():
        path = folder / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif isinstance(content, str):
            path.write_text(content)
        elif content[0] == "link":
            path.symlink_to(content[1])
        elif content[0] == "locked":
            path.write_text(content[1])
            path.chmod(0)
        else:
            assert content[1] in PLATFORM_TEXT, content
            path.write_text(PLATFORM_TEXT.replace(content[1], content[2], 1))


def contents(folder):
    """Returns the contents of the folder: names with kind, permissions and bytes."""
    result = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            result[name] = os.readlink(path)
        elif path.is_dir():
            result[name] = "folder"
        else:
            mode = path.stat().st_mode
            result[name] = (mode, path.read_bytes() if mode & 0o400 else b"")
    return result


def execute(one, folder):
    environment = dict(os.environ, HOME=str(folder), XDG_DATA_HOME="", OPENBLAS_NUM_THREADS="1")
    for name, value in one.get("env", {}).items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    streams = one.get("streams", {})
    full = open("/dev/full", "wb")
    reader, writer = os.pipe()
    os.close(reader)
    target = {"full": full, "pipe": writer, "closed": subprocess.DEVNULL}
    closed = [number for number, stream in enumerate(("in", "out", "err")) if streams.get(stream) == "closed"]
    arguments = [STRETTO, *(argument.replace("{P}", PLATFORM) for argument in one["run"])]
    if "limit_KiB" in one:
        arguments = ["/bin/sh", "-c", f'ulimit -v {one["limit_KiB"]}; exec "$@"', "sh", *arguments]
    if closed:  # a shell does it: code between fork and exec would have to be safe with concurrent threads
        arguments = ["/bin/sh", "-c", 'exec "$@" ' + " ".join(f"{number}>&-" for number in closed), "sh", *arguments]
    try:
        return subprocess.run(arguments, cwd=folder, env=environment, stdin=subprocess.DEVNULL, timeout=60,
                              stdout=target.get(streams.get("out"), subprocess.PIPE), stderr=target.get(streams.get("err"), subprocess.PIPE))
    finally:
        full.close()
        os.close(writer)


def fault_of(one):
    """Runs a case. Returns the fault in the program's behaviour, or "" if there is none."""
    if os.geteuid() == 0 and any(isinstance(content, tuple) and content[0] == "locked" for content in one.get("files", {}).values()):
        return ""  # root can read everything
    if "limit_KiB" in one and not LIMITS_MEMORY:
        return ""
    with tempfile.TemporaryDirectory(prefix="stretto-") as name:
        folder = pathlib.Path(name)
        lay(folder, one.get("files", {}))
        before = contents(folder)
        process = execute(one, folder)
        after = contents(folder)
    said = process.stderr or b""
    what = f"exit code {process.returncode}, said {said[:400]!r}"
    if process.returncode != one["code"]:
        return f"expected exit code {one['code']}: {what}"
    if one["says"] is None:
        if said:
            return f"expected not a word: {what}"
    elif said.count(b"\n") != 1 or not said.startswith(b"stretto: ") or not said.endswith(b"\n"):
        return f"expected one line: {what}"
    elif one["says"].encode() not in said:
        return f"expected {one['says']!r} in it: {what}"
    if CONTROL.search(said) or b"\x1b" in (process.stdout or b"") or BIDI.search((said + (process.stdout or b"")).decode(errors="replace")):
        return f"control characters went to the terminal: {what}"
    for path in one.get("makes", ()):
        after.pop(path, None)
    if before != after:
        return f"files changed: {sorted(set(before.items()) ^ set(after.items()))[:4]!r}"[:400]
    return ""


class OddInputs(unittest.TestCase):
    def test_all(self):
        self.assertGreaterEqual(len(CASES), 200)
        platform = pathlib.Path(PLATFORM).read_bytes()
        cases = CASES[::4] if IS_FAST_SUITE else CASES
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for one, fault in zip(cases, pool.map(fault_of, cases)):
                with self.subTest(run=[argument[:60] for argument in one["run"]], files=str(one.get("files", ""))[-100:], env=one.get("env")):
                    self.assertEqual(fault, "")
        self.assertEqual(pathlib.Path(PLATFORM).read_bytes(), platform)


if __name__ == "__main__":
    main()
