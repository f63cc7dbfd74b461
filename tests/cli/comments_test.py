"""Comments begin with a subject and a verb. A comment that begins with "Of", "What", "Those" or "The same" is a clipped
sentence, whose subject or verb the reader has to guess."""
import io
import re
import tokenize
import unittest

from program import ROOT, main

FOLDERS = ("api", "ask", "base", "calibrate", "cli", "compare", "diagnose", "exec", "model", "page", "predict", "python", "report", "scenarios", "scripts", "sim",
           "sweep", "tests", "trace", "validate")
CLIPPED = re.compile(r"(?:Of|What|Those|The same)\b")


def beginnings(path):
    """Yields (line, text) for each beginning of a comment; further lines of a block are no beginnings."""
    mark = "//" if path.suffix in (".hpp", ".cpp", ".cuh", ".cu", ".h", ".c") else "#"
    continues = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        before, found, text = line.partition(mark + " ")
        if found and not (continues and not before.strip()):
            yield number, text
        continues = bool(found)


def docstrings(path):
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.STRING and token.string.startswith('"""'):
            yield token.start[0], token.string[3:]


class Comments(unittest.TestCase):
    def test_no_comment_is_clipped(self):
        files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))
                 if path.suffix in (".hpp", ".cpp", ".cuh", ".cu", ".h", ".c", ".py", ".toml") or path.name == "CMakeLists.txt"]
        self.assertGreater(len(files), 500)
        found = [f"{path}:{line}: {text}" for path in [ROOT / "CMakeLists.txt", *files]
                 for line, text in [*beginnings(path), *(docstrings(path) if path.suffix == ".py" else ())] if CLIPPED.match(text)]
        self.assertEqual(found, [])


if __name__ == "__main__":
    main()
