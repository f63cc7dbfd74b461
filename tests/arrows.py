"""Fails where a file includes one of a room that its own room may not; ROOMS is the plan of the house.

A room is a folder, or the files whose path begins so: a file is in the room with the longest name that fits. It may
include its own room and those of the row; "sim/" stands for sim and every room in it. Tests may include everything.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROOMS = {
    "base": "",
    "model/ops": "base",
    "model/schedule": "base model/ops",
    "model/verify": "base model/ops model/schedule",
    "model/experts": "base",
    "model/linear_mixers": "",
    "model/transformer": "base model/experts model/linear_mixers",
    "model": "base model/transformer model/ops model/schedule",
    "model/graph": "base model model/transformer model/ops model/schedule",
    "model/layers": "model/graph model/transformer model/ops model/schedule",
    "model/counts": "base model model/transformer model/ops model/schedule model/graph model/layers model/passes",
    "model/passes": "model/graph model model/ops model/schedule",
    "model/order": "model",
    "model/lower": "base model model/transformer model/ops model/schedule model/graph model/layers model/passes model/order",
    "model/step_size": "base model model/transformer model/ops model/schedule model/lower",
    "model/overlap": "base model model/step_size model/transformer model/ops model/schedule model/lower",
    "model/scenario.cpp": "base model model/overlap",  # reading a scenario refuses knobs whose gates are closed
    "interchange": "base model model/transformer",
    "habits": "base model/ interchange",
    "sim/accelerator": "base model model/ops model/schedule",
    "sim/demand_class": "",
    "sim/platform": "base sim/accelerator sim/demand_class",
    "sim/fabric": "sim/accelerator",
    "sim/options": "sim/fabric",
    "sim/cost": "base model model/ops model/schedule sim/accelerator sim/demand_class sim/platform",
    "sim/event_heap": "base",
    "sim/network": "base model/ops model/schedule sim/event_heap sim/fabric",
    "sim": "base model/ops model/schedule sim/cost sim/event_heap sim/network sim/options",
    "sim/engine": "base model/ops model/schedule sim sim/cost sim/network sim/options",
    "exec/code_groups": "base model/ops model/schedule exec/codes exec/expert_errors exec/operand",
    "exec/codes": "base model/ops model/schedule exec/operand",
    "exec/expert_errors": "",
    "exec/operand": "base model/ops model/schedule",
    "exec/run_options": "base model model/ops model/schedule",
    "exec/data": "base model",
    "exec/documents": "base model model/ops model/schedule exec/data",
    "exec/host/kernels": "base model/ops model/schedule exec/code_groups exec/codes exec/expert_errors exec/operand",
    "exec/host/memory": "base model/ops model/schedule exec/host/kernels",
    "exec/launch": "base model/ops model/schedule",
    "exec/executor": "base model/ exec/host/memory exec/launch exec/run_options",
    "exec/comm": "base model/ops model/schedule exec/expert_errors exec/launch",
    "exec/host": "base model/ exec/comm exec/executor exec/host/ exec/launch exec/run_options",
    "exec/serial": "base model/ops model/schedule exec/comm exec/host/",
    "exec/state": "base model/ exec/data exec/documents exec/executor exec/host/memory exec/launch",
    "exec/kernel_types": "base model/",
    "exec/cuda": "base model/ exec/code_groups exec/codes exec/comm exec/executor exec/expert_errors exec/host/memory exec/kernel_types exec/launch exec/operand exec/run_options",
    "exec": "base model/ exec/",
    "report": "base model/",
    "trace": "base",
    "calibrate": "base model/ sim/ exec/ trace",
    "predict": "base model/ sim/ report exec/cuda",
    "validate": "base model/ sim/ report predict habits interchange",
    "sweep": "base model/ sim/ report predict",
    "diagnose": "base model/ sim/ report predict trace",
    "compare": "base model/ sim/ exec/ report calibrate predict",
    "ask": "base model/ sim/ exec/documents report predict sweep habits interchange",
    "ask/run": "base model/ sim/ exec/ report predict compare diagnose trace habits ask",
    "page": "base model/ sim/ report predict sweep diagnose trace ask interchange",
    "cli": "base model/ sim/ exec/ report calibrate predict validate sweep diagnose trace compare ask ask/ habits interchange",
    "api": "base model/ sim/ exec/ report calibrate predict sweep compare ask ask/ cli",
}


def room_of(path):
    return max((room for room in ROOMS if path == room or path.startswith((room + "/", room + "."))), key=len, default="")


def may_include(room, other):
    return other in ("", room) or any(one in (other, other + "/") or one[-1] == "/" and other.startswith(one)
                                      for one in ROOMS[room].split())


wrong = []
for path in sorted(path for top in {room.split("/")[0] for room in ROOMS} for path in (ROOT / top).rglob("*.*")):
    name = path.relative_to(ROOT).as_posix()
    room = room_of(name)
    if room and path.suffix in (".cpp", ".hpp", ".cu") and not path.stem.endswith("_test"):
        for included in re.findall('^#include "(.+)"', path.read_text(), re.MULTILINE):
            if not may_include(room, room_of(included)):
                wrong.append(f"{name} includes {included}: {room} may include {ROOMS[room] or 'nothing'}")

# Passes read works and fields of nodes: no pass names an operation of a layer, but for those that make attention's own.
OF_ATTENTION = {"share_context.cpp", "unfuse_attention.cpp"}
named = set()
for path in (ROOT / "model/layers").glob("*.cpp"):
    named.update(re.findall(r'g\.(?:add|linear|norm|residual)\(\s*"([^"]+)"', path.read_text()))
for path in sorted((ROOT / "model/passes").glob("*.cpp")):
    for literal in re.findall(r'"([^"\n]+)"', re.sub("#include.*", "", path.read_text())):
        if literal.split(".")[0] in named - ({"attention"} if path.name in OF_ATTENTION else set()):
            wrong.append(f"model/passes/{path.name} names an operation of a layer: {literal}")
sys.exit("\n".join(wrong) or 0)
