"""The notebook of python/examples runs from its first cell to its last, and prints what the command prints."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest

from program import STRETTO, ProgramTest, main, slow

BUILD = pathlib.Path(STRETTO).parent
PYTHON = "/usr/bin/python3"  # the module is built for Debian's
EXAMPLES = pathlib.Path(__file__).parents[2] / "python/examples"
HAS_JUPYTER = subprocess.run([PYTHON, "-c", "import nbclient, ipykernel"], capture_output=True).returncode == 0
RUN = """
import nbclient, nbformat
notebook = nbformat.read("what_if.ipynb", 4)
nbformat.validate(notebook)
nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": "."}}).execute()
nbformat.write(notebook, "done.ipynb")
"""


@unittest.skipUnless(any((BUILD / "python/stretto").glob("_stretto*.so")), "the Python module is not built")
@unittest.skipUnless(HAS_JUPYTER, "python3-nbclient and python3-ipykernel are not installed: scripts/packages soak")
class Notebook(ProgramTest):
    @slow
    def test_what_if(self):
        for name in ("what_if.ipynb", "scaling_curve.py"):
            shutil.copy(EXAMPLES / name, self.folder)
        done = subprocess.run([PYTHON, "-c", RUN], cwd=self.folder, capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(BUILD / "python"), "HOME": str(self.folder)})
        self.assertEqual(done.returncode, 0, done.stderr)
        cells = [cell for cell in json.loads((self.folder / "done.ipynb").read_text())["cells"] if cell["cell_type"] == "code"]
        printed = ["".join("".join(output.get("text", "")) for output in cell["outputs"]) for cell in cells]
        step = self.json("simulate", "llama3-70b")
        self.assertIn(f"{step['step_ms'] / 1e3:.2f} s a step, {100 * step['mfu']:.1f} % of the peak", printed[0])
        fullest = max(float(used) for used in re.findall(r"([\d.]+) of 80 GiB", printed[1]))
        self.assertEqual(fullest, round(step["predicted_peak_bytes"] / 2**30, 1))
        self.assertIn("benchmark first", printed[2])
        self.assertEqual(printed[3].count("tokens/s a GPU"), 5)
        self.assertIn("<svg", "".join(cells[4]["outputs"][0]["data"]["image/svg+xml"]))

    def test_outputs_are_not_kept(self):
        notebook = json.loads((EXAMPLES / "what_if.ipynb").read_text())
        self.assertEqual([cell["outputs"] for cell in notebook["cells"] if cell.get("outputs")], [])


if __name__ == "__main__":
    main()
