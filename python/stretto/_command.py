"""The program `stretto` as a function, for commands that the library does not have."""
import os
import pathlib
import shutil
import subprocess


def _places():
    """Yields where the program may be: of an installation by pip, of a build folder, of a package, in PATH."""
    here = pathlib.Path(__file__).resolve().parent
    yield here / "_installed/bin/stretto"
    yield here.parents[1] / "stretto"
    if len(here.parents) > 3:
        yield here.parents[2] / "bin/stretto"
        yield here.parents[3] / "bin/stretto"
    found = shutil.which("stretto")
    if found:
        yield pathlib.Path(found)


def path():
    """Returns the program; None where there is none."""
    return next((place for place in _places() if place.is_file() and os.access(place, os.X_OK)), None)


def run(words):
    """Returns the exit code, what the program printed, and the last line of its messages, without its name."""
    program = path()
    if program is None:
        return 1, "", "the program stretto: expected it next to the module or in PATH, got none"
    done = subprocess.run([str(program), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          encoding="utf-8", errors="replace", check=False)
    said = done.stderr.strip().splitlines()
    line = next((text for text in reversed(said) if text.startswith("stretto: ")), said[-1] if said else "")
    return done.returncode, done.stdout, line.removeprefix("stretto: ")
