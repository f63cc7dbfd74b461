import { describe, expect, it } from "vitest";
import { binRow, kLayers } from "./river";
import type { Bar, Cause } from "./strip";
import { labelsOf, type Op, passesOf } from "./window";
import { around, placed, ticks, tickText, within, zoomed } from "./view";

const causes: Cause[] = [{ cause: "exposed", communicator: "tp", axis: "tp" }, { cause: "queue_wait", communicator: null, axis: null },
  { cause: "bubble", communicator: null, axis: null }];
const layer = (name: (typeof kLayers)[number]) => kLayers.indexOf(name);

describe("the river", () => {
  const bars: Bar[] = [[0, 0, 0, 0, 100, 80, [0, 20], 0], [1, 0, 0, 130, 333, 200, [0, 2, 2, 1], 90]];
  const gaps: [number, number, number[]][] = [[100, 130, [1, 10, 2, 20]]];
  const sum = (shares: Float64Array, name: (typeof kLayers)[number], width: number) => {
    let all = 0;
    for (let bin = 0; bin * kLayers.length < shares.length; ++bin) all += shares[bin * kLayers.length + layer(name)] * width;
    return all;
  };
  it("has the area of the breakdown at every resolution", () => {
    for (const bins of [1, 7, 64, 1000]) {
      const shares = binRow({ bars, gaps }, causes, 0, 400, bins), width = 400 / bins;
      expect(sum(shares, "fwd", width)).toBeCloseTo(80, 6);
      expect(sum(shares, "bwd", width)).toBeCloseTo(110, 6);
      expect(sum(shares, "wgrad", width)).toBeCloseTo(90, 6);
      expect(sum(shares, "tp", width)).toBeCloseTo(22, 6);
      expect(sum(shares, "stall", width)).toBeCloseTo(10, 6);
    }
  });
  it("shows only the part of a bar that lies in its span", () => {
    expect(sum(binRow({ bars, gaps }, causes, 50, 100, 10), "fwd", 5)).toBeCloseTo(40, 6);
  });
});

describe("operations", () => {
  const op = (title: string, phase: string, piece: number | null, start: number, end: number, microBatch = 0): Op => ({ index: 0, lane: 0, start, transfer: start, end,
    microBatch, chunk: 0, bytes: 0, exposed: 0, waiting: [], isCritical: false, label: title, kind: { name: title, title, phase, piece, work: "", group: null } });
  it("of a split kernel have one label", () => {
    const labels = labelsOf([op("fc1", "forward", 0, 0, 10), op("fc1", "forward", 1, 10, 20), op("fc1 copy", "forward", null, 20, 21), op("fc1", "forward", 2, 21, 31), op("swiglu", "forward", null, 31, 60), op("fc1", "wgrad", null, 60, 90)]);
    expect(labels.map((label) => label.text)).toEqual(["fc1 ×3", "fc1 copy", "swiglu", "fc1 dW"]);
    expect([labels[0].start, labels[0].end]).toEqual([0, 31]);
  });
  it("make up passes, with weight gradients in the backward pass", () => {
    const passes = passesOf([op("a", "forward", null, 0, 1), op("b", "dgrad", null, 1, 2), op("c", "wgrad", null, 2, 3), op("d", "forward", null, 3, 4, 1)]);
    expect(passes.map((pass) => [pass.direction, pass.start, pass.end])).toEqual([["forward", 0, 1], ["backward", 1, 3], ["forward", 3, 4]]);
  });
});

describe("the shown span", () => {
  it("keeps the time under the pointer in its place", () => {
    const span = zoomed({ from: 1e9, to: 3e9 }, 0.5, 1.5e9, 1e10);
    expect((1.5e9 - span.from) / (span.to - span.from)).toBeCloseTo(0.25, 9);
  });
  it("stays within the step", () => {
    expect(within({ from: -5e9, to: 5e9 }, 8e9)).toEqual({ from: 0, to: 8e9 });
    expect(around(7.9e9, 8e9, 8e9, 1).to).toBe(8e9);
  });
  it("has round ticks of one unit", () => {
    expect(ticks(14e12, 7).map((tick) => tickText(tick, 14e12))).toEqual(["0 s", "2 s", "4 s", "6 s", "8 s", "10 s", "12 s", "14 s"]);
    expect(tickText(2.5e8, 1e9)).toBe("250 µs");
  });
  it("has labels without collision, the heavier first", () => {
    const labels = placed([{ x: 0, width: 40, weight: 1 }, { x: 30, width: 40, weight: 2 }, { x: 90, width: 20, weight: 0 }, { x: 95, width: 20, weight: 3 }], 0, 110);
    expect(labels.map((label) => label.x)).toEqual([30, 90]);
  });
});
