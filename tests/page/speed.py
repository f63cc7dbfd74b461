"""How long the page takes: tests/page/speed.py PAGE. Medians of a fresh browser's first answer, and of a changed number."""
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
        for move in range(MOVES):
            key = "ArrowDown" if move % 2 else "ArrowUp"
            moved.append(browser.run(f"""new Promise((resolve) => {{
                const field = document.querySelector("[aria-label='sequences a step']"), begin = performance.now(), before = stretto.shown;
                field.dispatchEvent(new KeyboardEvent("keydown", {{ key: "{key}", bubbles: true }}));
                const look = () => stretto.shown !== before ? resolve(stretto.shown.at - begin) : setTimeout(look, 1);
                look();
            }})"""))
    finally:
        browser.close()
print(f"first answer {statistics.median(first):.0f} ms, median of {len(first)} browsers ({min(first):.0f} to {max(first):.0f})")
print(f"changed number {statistics.median(moved):.0f} ms, median of {len(moved)} ({min(moved):.0f} to {max(moved):.0f})")
