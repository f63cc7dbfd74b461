"""How long the page takes: tests/page/speed.py PAGE. Medians of a fresh browser's first answer, and of a moved slider."""
import pathlib
import statistics
import sys

from browser import Browser

ROUNDS, MOVES = 5, 20
url = pathlib.Path(sys.argv[1]).resolve().as_uri() + "#scenario=llama3-70b"
first, moved = [], []
for _ in range(ROUNDS):
    browser = Browser(url)
    try:
        first.append(browser.wait("window.stretto?.shown?.at"))  # since the page began to load
        slider = "document.querySelector('.key[data-key=\"parallel.tensor_model_parallel_size\"] input[type=range]')"
        for move in range(MOVES):
            moved.append(browser.run(f"""new Promise((resolve) => {{
                const slider = {slider}, begin = performance.now(), before = stretto.shown;
                slider.value = {2 + move % 2};
                slider.dispatchEvent(new Event("input"));
                const look = () => stretto.shown !== before ? resolve(stretto.shown.at - begin) : setTimeout(look, 1);
                look();
            }})"""))
    finally:
        browser.close()
print(f"first answer {statistics.median(first):.0f} ms, median of {len(first)} browsers ({min(first):.0f} to {max(first):.0f})")
print(f"moved slider {statistics.median(moved):.0f} ms, median of {len(moved)} ({min(moved):.0f} to {max(moved):.0f})")
