"""`stretto export --format chakra`: the tests decode traces byte by byte, compare them with `show --json`, and replay
them."""
import json
import os
import shutil
import signal
import time

from program import PLATFORM, ProgramTest, main

LAYOUT = ["--set", "parallel.pipeline_model_parallel_size=2", "--set", "training.micro_batch_size=2", "--set",
          "model.num_layers=4"]
NODE_TYPES = {4: "compute", 5: "send", 6: "receive", 7: "collective"}
COLLECTIVES = {0: "all_reduce", 2: "all_gather", 6: "all_to_all", 7: "reduce_scatter"}
ATTRIBUTE_TYPES = {7: int, 9: int, 13: int, 27: bool, 29: bytes.decode}  # int32, int64, uint64, bool, string


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """Yields (number, value) of each field of a protobuf message; handles only the two wire types that the traces
    have."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        assert tag & 7 in (0, 2), tag
        value, at = varint(data, at)
        if tag & 7 == 2:
            value, at = data[at:at + value], at + value
        yield tag >> 3, value


def attribute(data):
    given = dict(fields(data))
    name = given.pop(1).decode()
    (number, value), = given.items()
    return name, ATTRIBUTE_TYPES[number](value)


def node(data):
    result = {"id": 0, "deps": [], "start_us": 0, "duration_us": 0}
    for number, value in fields(data):
        if number == 10:
            name, attribute_value = attribute(value)
            result[name] = attribute_value
        elif number == 5:
            at = 0
            while at < len(value):
                dependency, at = varint(value, at)
                result["deps"].append(dependency)
        else:
            result[{1: "id", 2: "name", 3: "type", 6: "start_us", 7: "duration_us"}[number]] = value
    return dict(result, name=result["name"].decode(), type=NODE_TYPES[result["type"]])


def read_trace(path):
    data, at, messages = path.read_bytes(), 0, []
    while at < len(data):
        size, at = varint(data, at)
        messages.append(data[at:at + size])
        at += size
    return dict(fields(messages[0]))[1].decode(), [node(message) for message in messages[1:]]


def replay(traces, groups):
    """Runs all ranks: a node runs when its dependencies are done, and communication runs when all of its ends are
    ready. Returns the nodes that never run. Collectives of a group match by order, messages by their tags.

    Returns the nodes that never run. Collectives of a group meet in order, messages by their tags.
    """
    done = [set() for _ in traces]
    left = [dict(enumerate(trace)) for trace in traces]
    moved = True
    while moved:
        moved, ends = False, {}
        for rank, nodes in enumerate(left):
            for i, n in list(nodes.items()):
                if not done[rank].issuperset(n["deps"]):
                    continue
                if n["type"] == "compute":
                    key, members = (rank, i), 1
                elif n["type"] == "collective":
                    key, members = (n["pg_name"],), len(groups[n["pg_name"]])
                else:
                    key, members = (n["comm_src"], n["comm_dst"], n["comm_tag"]), 2
                ends.setdefault(key, []).append((rank, i))
                if len(ends[key]) == members:
                    for r, j in ends.pop(key):
                        done[r].add(j)
                        del left[r][j]
                    moved = True
    return [n for nodes in left for n in nodes.values()]


class Chakra(ProgramTest):
    def traces(self, *arguments):
        shutil.rmtree(self.folder / "chakra", ignore_errors=True)
        said = self.ok("export", self.tiny, "--format", "chakra", "-o", "chakra", *arguments).out
        groups = json.loads((self.folder / "chakra/comm_groups.json").read_text())
        traces = []
        while (path := self.folder / f"chakra/step.{len(traces)}.et").exists():
            version, nodes = read_trace(path)
            self.assertEqual(version, "0.0.4")
            traces.append(nodes)
        self.assertIn(f"step.{len(traces) - 1}.et and comm_groups.json", said)
        return traces, groups, said

    def check(self, *settings):
        traces, groups, said = self.traces(*settings)
        self.assertIn("durations are 0", said)
        schedule = self.json("show", self.tiny, *settings)
        sizes = {"float32": 4, "f32": 4, "f64": 8, "bf16": 2, "i32": 4}

        def given_bytes(operation):
            work, tensor = operation["work"], schedule["tensors"][operation["accesses"][0]["tensor"]]
            element = sizes[schedule["storages"][tensor["places"][0][0]]["dtype"]]
            shards = schedule["communicators"][work["communicator"]]["size"] if work["kind"] == "all_gather" else 1
            return work["elements"] * element // shards

        by_name = {operation["name"]: operation for operation in schedule["operations"]}
        messages, collectives, kinds = {"send": [], "receive": []}, {}, set()
        for rank, nodes in enumerate(traces):
            stage = rank * len(schedule["programs"]) // len(traces)
            self.assertEqual(len(nodes), sum(call["count"] for call in schedule["programs"][stage]["order"]))
            last = {}
            for i, n in enumerate(nodes):
                self.assertEqual((n["id"], n["is_cpu_op"]), (i, False))
                self.assertEqual(n["deps"], sorted(set(n["deps"])))
                self.assertTrue(all(d < i for d in n["deps"]))  # so there is no cycle
                operation = next(by_name[word] for word in n["name"].split() if word in by_name)
                kinds.add(operation["work"]["kind"])
                if n["type"] != "compute":
                    self.assertIn(rank, groups[n["pg_name"]])
                    self.assertEqual(n["comm_size"], given_bytes(operation))
                if n["type"] == "collective":
                    self.assertEqual(COLLECTIVES[n["comm_type"]], operation["work"]["kind"])
                    collectives.setdefault(n["pg_name"], {}).setdefault(rank, []).append((n["name"], n["comm_size"]))
                elif n["type"] == "compute":
                    self.assertGreater(n["num_ops"], 0)
                    self.assertGreater(n["tensor_size"], 0)
                else:
                    self.assertEqual(rank, n["comm_src" if n["type"] == "send" else "comm_dst"])
                    messages[n["type"]].append(tuple(n[f"comm_{key}"] for key in ("src", "dst", "tag", "size")))
                before = last.get(n["stream"])
                if before is not None and n["type"] not in messages:
                    self.assertIn(before, n["deps"])
                last[n["stream"]] = i
        self.assertEqual(sorted(messages["send"]), sorted(messages["receive"]))
        self.assertEqual(len(set(messages["send"])), len(messages["send"]))
        for group, of_rank in collectives.items():
            self.assertEqual(sorted(of_rank), groups[group])
            self.assertEqual(len(set(map(tuple, of_rank.values()))), 1)
        self.assertEqual(replay(traces, groups), [])
        return traces, kinds

    def test_data_and_pipeline_parallel(self):
        traces, kinds = self.check(*LAYOUT)
        self.assertEqual(len(traces), 4)
        self.assertLessEqual({"all_gather", "reduce_scatter", "all_reduce"}, kinds)
        self.assertTrue(any(n["type"] == "send" for n in traces[0]))

    def test_tensor_parallel_in_queues(self):
        """Queues and launch_before are start-to-start edges."""
        traces, kinds = self.check("--set", "parallel.tensor_model_parallel_size=3", "--set", "parallel.sequence_parallel=true",
                                   "--set", "model.seq_length=6", "--set", "overlap.tp_comm_overlap=true", "--set",
                                   "cluster.cuda_device_max_connections=1")
        self.assertEqual(len(traces), 6)
        self.assertIn("all_gather", kinds)

    def test_durations(self):
        traces, _, said = self.traces(*LAYOUT, "--platform", PLATFORM)
        self.assertNotIn("durations", said)
        self.ok("simulate", self.tiny, *LAYOUT, "--platform", PLATFORM, "--trace", "trace.json")
        events = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
        slices = [e for e in events if e["ph"] == "X" and e["pid"] == 1 and e["tid"] == 1]
        compute = [n for n in traces[0] if n["type"] == "compute"]
        self.assertEqual(len(slices), len(compute))
        self.assertLess(abs(sum(e["dur"] for e in slices) - sum(n["duration_us"] for n in compute)), 1)
        first = min(e["ts"] for e in slices)
        for e, n in zip(slices, compute):
            self.assertLess(abs(e["ts"] - first - (n["start_us"] - compute[0]["start_us"])), 1.1)
            self.assertLess(abs(e["dur"] - n["duration_us"]), 1.1)

    def test_an_interrupted_export_leaves_nothing(self):
        os.mkdir(self.folder / "old")
        self.write("old/notes.txt", "mine")
        for folder, ranks in (("new", 1000), ("old", 1000)):
            process = self.start("export", self.tiny, "--set", f"parallel.data_parallel_size={ranks}", "--set",
                                 f"training.global_batch_size={6 * ranks}", "--format", "chakra", "-o", folder)
            while process.poll() is None and not (self.folder / folder / "step.1.et").exists():
                time.sleep(0.001)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=300)
            # A slow machine first reports that it is building.
            self.assertEqual((process.returncode, err.splitlines()[-1]), (1, "stretto: interrupted; nothing is written"))
        self.assertFalse((self.folder / "new").exists())
        self.assertEqual(os.listdir(self.folder / "old"), ["notes.txt"])

    def test_what_is_refused(self):
        self.fails(2, "export", self.tiny, "--format", "chakra", says=["--output"])
        self.fails(2, "export", self.write("a.safetensors", ""), "--format", "chakra", "-o", "x", says=["a scenario"])
        self.fails(2, "export", self.tiny, "--format", "megatron", "--platform", PLATFORM, says=["--platform", "chakra"])
        # The traces of two ranks among those of four do not form one step.
        self.ok("export", self.tiny, "--set", "parallel.data_parallel_size=4", "--format", "chakra", "-o", "four")
        self.ok("export", self.tiny, "--set", "parallel.data_parallel_size=4", "--format", "chakra", "-o", "four")
        self.fails(2, "export", self.tiny, "--set", "parallel.data_parallel_size=2", "--format", "chakra", "-o", "four",
                   says=["step.2.et", "new folder"])


if __name__ == "__main__":
    main()
