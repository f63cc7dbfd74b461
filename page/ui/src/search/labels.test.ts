import { expect, test } from "vitest";
import { placesOf, roomIn, type Spot } from "./labels";

const frame = { left: 50, top: 10, wide: 700, high: 500 };
const wide = 150, high = 26;

test("labels of dots that crowd cover no dot, no line and no label", () => {
  for (let seed = 1; seed <= 12; ++seed) {
    let state = seed;
    const random = () => (state = (state * 48271) % 2147483647) / 2147483647;
    const dots = Array.from({ length: 40 }, (): Spot => [60 + 600 * random(), 20 + 460 * random()]).sort((a, b) => a[0] - b[0]);
    const line: [Spot, Spot] = [dots[0]!, dots[30]!];
    const placed = placesOf([dots[0]!, dots[1]!, dots[30]!].map((at) => ({ at, wide, high })), { frame, dots, lines: [line] }).filter((one) => one !== null);
    expect(placed.length).toBeGreaterThan(1);
    placed.forEach((one, i) => {
      expect(dots.some(([x, y]) => x > one.left && x < one.left + wide && y > one.top && y < one.top + high)).toBe(false);
      expect(one.left >= frame.left && one.left + wide <= frame.left + frame.wide && one.top >= frame.top && one.top + high <= frame.top + frame.high).toBe(true);
      for (const other of placed.slice(i + 1)) expect(Math.abs(other.left - one.left) >= wide || Math.abs(other.top - one.top) >= high).toBe(true);
      for (let t = 0; t <= 1; t += 0.001) {
        const x = line[0][0] + t * (line[1][0] - line[0][0]), y = line[0][1] + t * (line[1][1] - line[0][1]);
        expect(x > one.left && x < one.left + wide && y > one.top && y < one.top + high).toBe(false);
      }
    });
  }
});

test("what has no room is left out", () => {
  const small = { left: 0, top: 0, wide: 100, high: 20 };
  expect(placesOf([{ at: [50, 10], wide, high }], { frame: small, dots: [], lines: [] })).toEqual([null]);
  expect(roomIn(small, wide, high, { frame: small, dots: [], lines: [] }, [])).toBe(null);
  expect(roomIn(frame, 100, 14, { frame, dots: [[70, 20]], lines: [] }, [])).toEqual({ left: 82, top: 10, wide: 100, high: 14 });
});
