"""Fails where code outside model/ reads meaning out of a name of a schedule: of an operation, tensor, block or schedule.

Names are text for people; fields say what a thing is (Operation::module, Tensor::role, Schedule::modes). Printing a name,
and comparing it with one that a file gives, is no reading: labels of traces (diagnose/lanes.cpp), and all of exec/state,
whose tensors are those of files, where the name of a parameter is its identity.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = "api ask calibrate cli compare diagnose exec habits interchange page predict report sim sweep validate".split()
THING = r"(?:operations?|ops?|tensors?|blocks?|schedule_?|schedule\(\)|storages?|communicators?)"
NAME = THING + r"(?:\[[^;=]*?\])?(?:\.|->)name"
READS = [
    NAME + r"\s*\.\s*(?:find|rfind|starts_with|ends_with|contains|substr|compare|find_first_of|find_last_of)\s*\(",
    NAME + r"\s*[!=]=\s*\"",
    r"\"\s*[!=]=\s*[\w.\->\[\]]*" + NAME,
    r"find_(?:tensor|operation)\(",
]

wrong = []
for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")):
    if path.suffix not in (".cpp", ".hpp", ".cu") or path.stem.endswith("_test") or path.parent == ROOT / "exec/state":
        continue
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if any(re.search(read, line) for read in READS):
            wrong.append(f"{path.relative_to(ROOT)}:{number} reads a name; ask a field of the schedule: {line.strip()}")
sys.exit("\n".join(wrong) or 0)
