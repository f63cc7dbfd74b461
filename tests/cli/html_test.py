"""--html writes one page that loads nothing, is well formed, and agrees with --json."""
import html.parser
import json
import re

from program import PLATFORM, PUBLISHED, PUBLISHED_HEADER, ProgramTest, main

VOID = {"meta", "br", "hr", "img", "input", "link"}


DEEP = """platform = "h100-sxm"
[model]
num_layers = 32
hidden_size = 512
num_attention_heads = 8
seq_length = 512
vocab_size = 8192
[parallel]
tensor_model_parallel_size = 2
pipeline_model_parallel_size = 16
virtual_pipeline_model_parallel_size = 2
[overlap]
overlap_p2p_comm = true
batch_p2p_comm = false
[training]
precision = "bf16"
global_batch_size = 256
"""


class Page(html.parser.HTMLParser):
    """Checks that elements nest; collects ids, tables as rows of cells, headings, and the data of the timelines."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.tables, self.headings, self.data, self.attributes = [], [], [], [], "", []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.attributes += [(tag, *pair) for pair in attributes]
        self.ids += [value for name, value in attributes if name == "id"]
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self.open.append((tag, dict(attributes).get("id")))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1][0] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data):
        tag, name = self.open[-1] if self.open else ("", None)
        if tag in ("td", "th"):
            self.tables[-1][-1][-1] += data
        if tag in ("h1", "h2"):
            self.headings.append(data)
        if tag == "script" and name == "data":
            self.data += data


class Html(ProgramTest):
    def page(self, name="page.html"):
        text = (self.folder / name).read_text()
        page = Page(text)
        self.assertEqual(len(page.ids), len(set(page.ids)), "ids must be unique")
        studio = [a[2] for a in page.attributes if a[1] == "href" and a[2].startswith("stretto.html#")]
        self.assertLessEqual(len(studio), 1)
        self.assertFalse([a for a in page.attributes if a[1] in ("src", "href", "srcset") and a[2] not in studio], "a page loads nothing")
        self.assertNotRegex(text, r"https?://|@import|url\(")
        self.assertNotRegex(re.sub(r"<(style|script)\b.*?</\1>", "", text, flags=re.S), r"[>\" ](nan|-?inf)\b")
        self.assertNotIn(str(self.folder), text)
        return page

    def table_of(self, page, *head):
        """Returns the table whose head begins so."""
        return next(table for table in page.tables if tuple(table[0][:len(head)]) == head)

    def test_simulate(self):
        value = self.json("simulate", self.tiny, "--platform", PLATFORM, "--html", "page.html")
        page = self.page()
        # A single bar is not drawn as a chart: the page has none of one step's time.
        self.assertRegex(page.headings[0], r"^tiny on .* takes \d.* a step and fits\. Computing is \d+ % of it\.$")
        self.assertEqual(page.headings[1:], ["Where the time of the compute lanes goes", "Memory of a device", "Timelines", "More"])
        self.assertFalse([tag for tag, _, _ in page.attributes if tag == "svg"])
        layout, (what, step) = self.table_of(page, "what", "value")[1:3]
        self.assertEqual(layout, ["layout", "tp 1, pp 1, vp 1, cp 1, dp 2, 6 micro-batches"])
        number, unit = step.split()
        self.assertEqual(what, "step")
        self.assertAlmostEqual(float(number) * {"µs": 1e-3, "ms": 1, "s": 1e3}[unit] / value["step_ms"], 1, delta=1e-3)
        data = json.loads(page.data)
        self.assertEqual([side["title"] for side in data["steps"][0]["sides"]], ["predicted"])
        side = data["steps"][0]["sides"][0]
        self.assertEqual(side["step"], round(value["step_ms"] * 1e6))
        self.assertEqual([track["rank"] for track in side["tracks"]], [0, 1])
        for track in side["tracks"]:
            self.assertEqual(len(track["slices"]) % 5, 0)
            for label, lane, _, waits, lasts in zip(*[iter(track["slices"])] * 5):
                self.assertLess(label, len(data["labels"]))
                self.assertLess(lane, len(side["lanes"]))
                self.assertLessEqual(0, waits)
                self.assertLessEqual(waits, lasts)

    def test_simulate_repeats_exactly(self):
        for name in ("a.html", "b.html"):
            self.ok("simulate", self.tiny, "--platform", PLATFORM, "--html", name)
        self.assertEqual((self.folder / "a.html").read_bytes(), (self.folder / "b.html").read_bytes())

    def test_compare(self):
        value = self.json("compare", self.tiny, "--platform", PLATFORM, "--html", "page.html", "--set", "compare.repeats=1", "--set",
                          "compare.ranks=[2]")
        page = self.page()
        rows = page.tables[0][1:]
        modes = [row["mode"] + (f" = {row['same_as']}" if row["same_as"] else "") for row in value["rows"]]
        self.assertEqual([(row[1], int(row[0])) for row in rows], list(zip(modes, [row["ranks"] for row in value["rows"]])))
        for row, expected in zip(rows, value["rows"]):
            if expected["same_as"]:
                continue
            self.assertEqual(row[2:4], [f"{expected['predicted_ms']:.1f}", f"{expected['measured_ms']:.1f}"])
        data = json.loads(page.data)
        measured = [row for row in value["rows"] if not row["same_as"]]
        for step, expected in zip(data["steps"], measured, strict=True):
            self.assertIn(expected["mode"], step["title"])
            self.assertEqual([side["title"] for side in step["sides"]], ["predicted", "measured"])
            self.assertEqual(step["sides"][0]["step"], round(expected["predicted_ms"] * 1e6))
            self.assertEqual(step["sides"][1]["left_out"], 0)
            names = {operation[0] for operation in step["operations"]}
            self.assertIn("fc1.dgrad", names)

    def test_stages_are_shown_whole(self):
        """Sixteen stages of 256 micro-batches show every bar of every stage, and the operations of one interval."""
        self.write("deep.toml", DEEP)
        value = self.json("simulate", "deep.toml", "--html", "page.html")
        self.assertLess((self.folder / "page.html").stat().st_size, 5_000_000)
        data = json.loads(self.page().data)
        side = data["steps"][0]["sides"][0]
        self.assertEqual([stage["role"] for stage in side["stages"]], [f"stage {i}" for i in range(16)])
        self.assertIs(side["all_bars"], True)
        step_ns = value["step_ms"] * 1e6
        kinds = [name for name, _ in data["kinds"]]
        for stage in side["stages"]:
            passes, end = {}, 0
            for kind, micro_batch, chunk, gap, computes, waits in zip(*[iter(stage["bars"])] * 6):
                passes.setdefault(kinds[kind], set()).add((micro_batch, chunk))
                # Only the first operation may begin while others end the previous step.
                self.assertTrue(gap >= 0 or end == 0, (gap, end))
                self.assertGreater(computes, 0)
                self.assertGreaterEqual(waits, 0)
                end += gap + computes + waits
            self.assertLessEqual(end, step_ns * (1 + 1e-6))
            for name in ("forward", "backward"):
                self.assertEqual(passes[name], {(i, c) for i in range(256) for c in range(2)})
        # The operations are of all stages, between two instants around the middle.
        begin, end = side["window"]
        self.assertAlmostEqual((begin + end) / 2 / step_ns, 0.5, delta=1e-6)
        self.assertEqual(len(side["tracks"]), 16)
        for track in side["tracks"]:
            starts = track["slices"][2::5]
            self.assertGreater(len(starts), 0)
            self.assertGreaterEqual(min(starts), begin)
            self.assertLessEqual(max(starts), end)

    def test_the_optimizer_is_as_long_as_its_operations(self):
        """The norm of all gradients waits for all stages in the middle of the optimizer; the optimizer's bars do not
        include this wait."""
        value = self.json("simulate", "llama3-70b", "--html", "page.html")
        data = json.loads(self.page().data)
        step = data["steps"][0]
        kinds = [name for name, _ in data["kinds"]]
        bars = {}  # [kind]: nanoseconds of each stage
        for stage in step["sides"][0]["stages"]:
            for kind, _, _, _, computes, _ in zip(*[iter(stage["bars"])] * 6):
                of_stages = bars.setdefault(kinds[kind], {})
                of_stages[stage["role"]] = of_stages.get(stage["role"], 0) + computes
        operations = {name: ms for name, _, ms, _ in step["operations"]}
        ms = sum(bars["optimizer"].values()) / len(bars["optimizer"]) * 1e-6
        named = sum(operations[name] for name in operations if re.match(r"adamw|norm\.sum_squares", name))
        self.assertAlmostEqual(ms / named, 1, delta=0.001)
        self.assertLess(ms, 0.01 * value["step_ms"])

    def test_modes(self):
        words = ["--modes", "--set", "parallel.pipeline_model_parallel_size=2", "--set", "overlap.overlap_grad_reduce=true",
                 "--set", "overlap.overlap_p2p_comm=true"]
        value = self.json("simulate", self.tiny, "--platform", PLATFORM, "--html", "page.html", *words)
        page = self.page()
        text = (self.folder / "page.html").read_text()
        self.assertEqual(page.headings[1:], ["Where the time of the compute lanes goes", "Memory of a device", "Timelines", "More"])
        self.assertEqual(re.findall(r'class="closed">\n<details><summary>(.*?)</summary>', text),
                         ["Every figure", "Overlap modes", "Which mode to use", "What each knob brings", "Modes that cannot act here",
                          "Memory of the fullest device"])
        modes, advice, without = (self.table_of(page, *head) for head in (("mode", "step"), ("ranks", "mode", "advice"), ("knob",)))
        self.assertEqual([row[0] for row in modes[1:]], [mode["mode"] for mode in value["modes"]])
        self.assertEqual([row[1] for row in advice[1:]], [mode["mode"] for mode in value["modes"][1:]])
        self.assertEqual([row[0] for row in without[1:]], [knob["knob"] for knob in value["without"]])
        self.assertEqual([row[0] for row in without[1:]], ["overlap_grad_reduce", "overlap_param_gather", "overlap_p2p_comm"])
        self.assertIn("tp 1, pp 2, vp 1, cp 1, dp 2, 6 micro-batches, pipeline schedule 1f1b", text)
        # The page has one bar for each mode, including the scenario's own, and one timeline.
        self.assertEqual(len(json.loads(page.data)["steps"]), 1)
        for mode in ("plain", "overlap_grad_reduce", "overlap_param_gather", "overlap_param_gather+", "overlap_p2p_comm"):
            self.assertRegex(text, f'<text class="label"[^>]*>{re.escape(mode)}</text>')

    def test_colours_are_those_of_the_style(self):
        """A communicator and a phase have one colour on all pages, and the style defines it."""
        self.write("deep.toml", DEEP)
        colours, text = [], ""
        for layout in (["parallel.virtual_pipeline_model_parallel_size=1"], ["parallel.tensor_model_parallel_size=1"]):
            self.ok("simulate", "deep.toml", "--html", "page.html", *[word for key in layout for word in ("--set", key)])
            page = self.page()
            style = re.search(r"<style>(.*?)</style>", (self.folder / "page.html").read_text(), flags=re.S).group(1)
            for variable, _ in json.loads(page.data)["colours"]:
                self.assertIn(f"{variable}:", style)
            colours.append({meaning: variable for variable, meaning in json.loads(page.data)["colours"]})
            text = text or (self.folder / "page.html").read_text()
        for meaning in colours[0].keys() & colours[1].keys():
            self.assertEqual(colours[0][meaning], colours[1][meaning])
        self.assertEqual(colours[0]["tp"], "--comm-tp")
        # Bars and timelines have equal colours; the classes name the variables.
        self.assertIn('<i class="comm-tp"></i>exposed tp ', text)
        # No two meanings on a page share a colour.
        for page_colours in colours:
            self.assertEqual(len(set(page_colours.values())), len(page_colours))
        self.assertNotIn("tp", colours[1])

    def test_validate(self):
        rows = [PUBLISHED.format(id=f"<i>{layers}", layers=layers, seconds=seconds) for layers, seconds in ((2, 0.07), (4, 0.12))]
        self.write("steps.csv", PUBLISHED_HEADER + "".join(rows))
        value = self.json("validate", "steps.csv", "--intervals", "--html", "page.html")
        page = self.page()
        self.assertEqual(page.headings, ["Predictions against published steps", "Predicted against measured", "By group", "Intervals",
                                         "Rows"])
        self.assertEqual(len([tag for tag, name, _ in page.attributes if (tag, name) == ("circle", "class")]), 2)
        self.assertEqual([row[0] for row in page.tables[-1][1:]], ["<i>2", "<i>4"])
        self.assertEqual(page.tables[0][1][0], value["groups"][0]["group"])

    def test_names_are_text(self):
        name = "</script><b>&\\u2028"
        self.ok("simulate", self.tiny, "--platform", PLATFORM, "--html", "page.html", "--set", f'name="{name}"')
        self.assertTrue(self.page().headings[0].startswith("</script><b>&\\u2028 on "))

    def test_many_ranks_are_cut_and_say_so(self):
        self.ok("simulate", self.tiny, "--platform", PLATFORM, "--html", "page.html", "--set", "parallel.data_parallel_size=64",
                "--set", "training.global_batch_size=64")
        side = json.loads(self.page().data)["steps"][0]["sides"][0]
        self.assertEqual([track["rank"] for track in side["tracks"]], list(range(32)))
        self.assertEqual(side["ranks"], 64)
        self.assertGreater(side["left_out"], 0)
        self.assertLess((self.folder / "page.html").stat().st_size, 5_000_000)


if __name__ == "__main__":
    main()
