"""Comments begin with a subject and a verb. A comment that begins with "Of", "What", "Those" or "The same" is a clipped
sentence, whose subject or verb the reader has to guess. Comments and documents use the field's terms (CONTRIBUTING.md, "Words")."""
import io
import re
import tokenize
import unittest

from program import ROOT, main

FOLDERS = ("api", "ask", "base", "calibrate", "cli", "compare", "diagnose", "exec", "habits", "interchange", "model", "page", "predict", "python", "report", "scenarios", "scripts", "sim",
           "sweep", "tests", "trace", "validate")
SUFFIXES = (".hpp", ".cpp", ".cuh", ".cu", ".h", ".c", ".py", ".toml")
CLIPPED = re.compile(r"(?:Of|What|Those|The same)\b")
# Words with several meanings, of the left column of the table "Words". "One of which" and the like are plain English.
DIALECT = re.compile(r"\b(?:told|tells?|telling|beside|behind|alike|mended|so many|(?<!each )(?<!one )(?<!some )(?<!none )(?<!all )of which)\b", re.I)
# Phrases that are right: a name that the program prints, titles and quotes of others, the position of a stream.
RIGHT = ("behind attention, sbh", "behind the MLP, sbh", "tell()")


def beginnings(path):
    """Yields (line, text) for each beginning of a comment; further lines of a block are no beginnings."""
    mark = "//" if path.suffix in (".hpp", ".cpp", ".cuh", ".cu", ".h", ".c") else "#"
    continues = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        before, found, text = line.partition(mark + " ")
        if found and not (continues and not before.strip()):
            yield number, text
        continues = bool(found)


def files_with_comments():
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SUFFIXES or path.name == "CMakeLists.txt"]
    return [ROOT / "CMakeLists.txt", *files]


def dialect(path):
    """Yields (line, text) for each line of a comment or a document that has a word of DIALECT outside code in backquotes."""
    mark = "" if path.suffix == ".md" else "// " if path.suffix in (".hpp", ".cpp", ".cuh", ".cu", ".h", ".c") else "# "
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.partition(mark)[2] if mark else line
        for right in RIGHT:
            text = text.replace(right, "")
        if DIALECT.search(re.sub(r"`[^`]*`", "", text)):
            yield number, line.strip()


def docstrings(path):
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.STRING and token.string.startswith('"""'):
            yield token.start[0], token.string[3:]


class Comments(unittest.TestCase):
    def test_no_comment_is_clipped(self):
        files = files_with_comments()
        self.assertGreater(len(files), 500)
        found = [f"{path}:{line}: {text}" for path in files
                 for line, text in [*beginnings(path), *(docstrings(path) if path.suffix == ".py" else ())] if CLIPPED.match(text)]
        self.assertEqual(found, [])

    def test_words(self):
        documents = [path for path in (ROOT / "docs").glob("*.md")]
        self.assertGreater(len(documents), 25)
        found = [f"{path.relative_to(ROOT)}:{line}: {text}" for path in [*files_with_comments(), *documents, ROOT / "README.md"]
                 for line, text in dialect(path)]
        self.assertEqual(found, [], "CONTRIBUTING.md, \"Words\", has the field's terms")

    def test_dialect_is_found(self):
        for text in ("a GEMM beside it", "rows, of which two", "Tells why"):
            self.assertTrue(DIALECT.search(text))
        for text in ("rows, each of which", "besides", "one of which"):
            self.assertFalse(DIALECT.search(text))


if __name__ == "__main__":
    main()
