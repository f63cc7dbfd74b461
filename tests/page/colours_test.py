"""The studio's colours are apart for every eye: tests/page/colours_test.py [TOKENS], by default page/ui/src/tokens.css.

Differences are CIEDE2000 (Sharma, Wu and Dalal 2005) of colours as people with one kind of cones missing see them (Machado,
Oliveira and Fernandes 2009, severity 1, in linear sRGB); contrasts are those of WCAG 2.2.
"""
import itertools
import math
import pathlib
import re
import sys
import unittest

TOKENS = pathlib.Path(__file__).resolve().parents[2] / "page/ui/src/tokens.css"
SIGHTS = {"normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
          "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
          "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
          "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]}
COMPUTING, COMMUNICATORS, TEXTS = ("fwd", "bwd", "wgrad"), ("tp", "cp", "ep", "dp", "pp"), ("ink", "ink2", "ink3")
LEAST_DISTANCE, LEAST_CHROMA, LEAST_CONTRAST = 10, 20, 4.5


def linear(text):
    parts = [int(text[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def seen(colour, matrix):
    return [min(1, max(0, sum(m * c for m, c in zip(row, colour)))) for row in matrix]


def lab(rgb):
    """Returns L*, a*, b* under D65."""
    rows = ((0.4124564, 0.3575761, 0.1804375, 0.95047), (0.2126729, 0.7151522, 0.0721750, 1), (0.0193339, 0.1191920, 0.9503041, 1.08883))
    ratios = [sum(w * c for w, c in zip(row, rgb)) / row[3] for row in rows]
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in ratios)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def difference(one, other):
    """Returns CIEDE2000."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    stretch = 1 + 0.5 * (1 - math.sqrt(mean**7 / (mean**7 + 25**7)))
    c1, c2 = math.hypot(a1 * stretch, b1), math.hypot(a2 * stretch, b2)
    h1, h2 = (math.degrees(math.atan2(b, a * stretch)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = (h2 - h1 + 180) % 360 - 180
    hue = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2))
    light, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    middle = (h1 + h2) / 2 if abs(h1 - h2) <= 180 else (h1 + h2 + 360) / 2
    t = (1 - 0.17 * math.cos(math.radians(middle - 30)) + 0.24 * math.cos(math.radians(2 * middle)) +
         0.32 * math.cos(math.radians(3 * middle + 6)) - 0.2 * math.cos(math.radians(4 * middle - 63)))
    s_l = 1 + 0.015 * (light - 50) ** 2 / math.sqrt(20 + (light - 50) ** 2)
    s_c, s_h = 1 + 0.045 * chroma, 1 + 0.015 * chroma * t
    turned = -2 * math.sqrt(chroma**7 / (chroma**7 + 25**7)) * math.sin(math.radians(60 * math.exp(-(((middle - 275) / 25) ** 2))))
    parts = (l2 - l1) / s_l, (c2 - c1) / s_c, hue / s_h
    return math.sqrt(sum(part**2 for part in parts) + turned * parts[1] * parts[2])


def contrast(one, other):
    high, low = sorted((0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (one, other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def themes(text):
    """Returns the colours of both themes by their names."""
    blocks = re.findall(r"color-scheme: (light|dark);([^}]*)}", text)
    found = {}
    for name, block in blocks:
        colours = dict(re.findall(r"--([\w-]+): (#[0-9A-F]{6})", block))
        if found.setdefault(name, colours) != colours:
            raise AssertionError(f"two tables of the {name} theme differ")
    return found


class Colours(unittest.TestCase):
    def test_each_is_apart_for_every_eye(self):
        found = themes((pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].endswith(".css") else TOKENS).read_text())
        self.assertEqual(set(found), {"light", "dark"})
        for theme, colours in found.items():
            for sight, matrix in SIGHTS.items():
                labs = {name: lab(seen(linear(colours[name]), matrix)) for name in COMPUTING + COMMUNICATORS}
                for one, other in itertools.combinations(labs, 2):
                    self.assertGreaterEqual(difference(labs[one], labs[other]), LEAST_DISTANCE, f"{one} and {other}, {theme}, {sight}")
                for name in COMMUNICATORS:
                    self.assertGreaterEqual(math.hypot(*labs[name][1:]), LEAST_CHROMA, f"{name} looks grey, {theme}, {sight}")
            for name in TEXTS:
                self.assertGreaterEqual(contrast(linear(colours[name]), linear(colours["bg"])), LEAST_CONTRAST, f"{name}, {theme}")

    def test_the_formula_is_right(self):
        """The first and the last pair of the test data of Sharma, Wu and Dalal, table 1."""
        self.assertAlmostEqual(difference((50, 2.6772, -79.7751), (50, 0, -82.7485)), 2.0425, places=4)
        self.assertAlmostEqual(difference((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514)), 0.9082, places=4)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
