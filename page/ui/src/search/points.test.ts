import { expect, test } from "vitest";
import { fitting, frontOf, type Part, type Point, sizeOf, together } from "./points";

const point = (step_ms: number, memory_bytes: number, fit = "fits"): Point => ({ set: ["parallel.tensor_model_parallel_size=4"], step_ms, memory_bytes, device_bytes: 80, fit, mfu: 0.5 });
const part = (of: Partial<Part>): Part => ({ layouts: 10, decided: 0, refused: 0, does_not_fit: 0, slower: 0, predicted: 0, points: [], ...of });

test("the front has the points that nothing beats, the fastest first", () => {
  const front = frontOf([point(3, 10), point(1, 30), point(2, 40), point(2.5, 20), point(0.5, 90, "tight")]);
  expect(front.map((one) => one.step_ms)).toEqual([1, 2.5, 3]);
});
test("equal steps are ordered by memory, and tight ones are none", () => {
  expect(fitting([point(1, 30), point(1, 20), point(0.1, 1, "tight")]).map((one) => one.memory_bytes)).toEqual([20, 30]);
});
test("parts of several workers add up; progress is that of the slowest", () => {
  const found = together([part({ decided: 5, slower: 1, reasons: [{ reason: "a", layouts: 2 }] }), part({ decided: 8, slower: 2, reasons: [{ reason: "a", layouts: 3 }] })], [], []);
  expect([found.decided, found.counts.slower, found.reasons[0]!.layouts]).toEqual([5, 3, 5]);
});
test("a size that a point does not set stays as it is", () => {
  expect([sizeOf(point(1, 1), "parallel.tensor_model_parallel_size", 1), sizeOf(point(1, 1), "training.micro_batch_size", 2)]).toEqual([4, 2]);
});
