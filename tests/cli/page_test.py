"""`stretto page` writes the page that scripts/page has built. tests/page compares the page's figures with the command's."""
import re

from program import ROOT, ProgramTest, main

# Files whose headers the page includes, and which it does not link: SimGrid is loaded when it is used, CUDA never is.
# page/json_alone.cpp stands for the last two.
NOT_LINKED = {"sim/network/simgrid.cpp", "exec/cuda/cuda.cpp", "trace/inflater.cpp", "trace/nsight.cpp"}


class Page(ProgramTest):
    def test_links_what_it_includes(self):
        """page/CMakeLists.txt lists sources by name, which no other build reads: each has the sources of its headers."""
        text = (ROOT / "page/CMakeLists.txt").read_text()
        globbed = {path for folder in ("base", "model", "interchange", "habits", "sim", "predict", "diagnose", "page") for path in (ROOT / folder).rglob("*.cpp")}
        left_out = re.compile(r"_test\.cpp$|network/simgrid\.cpp$")
        sources = {name for name in (path.relative_to(ROOT).as_posix() for path in globbed) if not left_out.search(name)}
        for names, folder in re.findall(r"foreach\(name ([^)]*)\)\s*list\(APPEND sources \$\{root\}/(\w+)/\$\{name\}\.cpp\)", text):
            sources |= {f"{folder}/{name}.cpp" for name in names.split()}
        sources |= set(re.findall(r"\$\{root\}/([\w/]+\.cpp)", text))
        self.assertGreater(len(sources), 200)
        self.check_no_threads(sources)
        self.assertEqual([name for name in sources if not (ROOT / name).exists()], [])
        included = {f"{header}.cpp": name for name in sources for header in re.findall(r'#include "([\w/]+)\.hpp"', (ROOT / name).read_text())}
        self.assertEqual({name: by for name, by in included.items() if name not in sources | NOT_LINKED and (ROOT / name).exists()}, {})

    def check_no_threads(self, sources):
        """A thread that is started in WebAssembly never runs, and what waits for one never returns; base/parallel.hpp alone knows where there are threads."""
        starts = re.compile(r"std::(async|j?thread|packaged_task|future|promise|condition_variable|barrier|latch|\w+_semaphore)\b|"
                            r"pthread_create|#include <(future|thread|condition_variable|barrier|latch|semaphore)>")
        texts, left = {}, set(sources)
        while left:
            name = left.pop()
            texts[name] = (ROOT / name).read_text()
            left |= {header for header in re.findall(r'#include "([^"]+)"', texts[name]) if header not in texts and (ROOT / header).exists()}
        self.assertGreater(len(texts), len(sources) + 100)
        self.assertEqual([name for name in sorted(texts) if starts.search(texts[name])], ["base/parallel.hpp"])

    def test_copies_the_page(self):
        self.write("page.html", "<!doctype html>\n<p>é</p>\n")
        environment = dict(self.environment, STRETTO_DATA=str(self.folder))
        self.ok("page", "out.html", environment=environment)
        self.assertEqual((self.folder / "out.html").read_bytes(), (self.folder / "page.html").read_bytes())

    def test_names_what_is_wrong(self):
        self.write("page.html", "<!doctype html>\n")
        environment = dict(self.environment, STRETTO_DATA=str(self.folder))
        self.fails(2, "page", "absent/out.html", environment=environment, says=["absent/out.html"])
        self.fails(2, "page", environment=environment, says=["FILE is required"])


if __name__ == "__main__":
    main()
