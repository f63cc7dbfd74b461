import { expect, test } from "vitest";
import type { Simulated } from "./answers";
import { lossesOf } from "./losses";

const step = { step_ms: 1000, compute_ms: 800, bubble_ms: 50, queue_wait_ms: 30, core_wait_ms: 0, exposed_ms: { cp: 0, dp: 20, ep: 0, pp: 0.05, tp: 99.95, total: 120 },
               layout: { pp: 4 } } as Simulated;

test("losses are sorted, add up with computing to the step, and crumbs are left out", () => {
  const losses = lossesOf(step);
  expect(losses.map((one) => one.id)).toEqual(["tp", "bubble", "stall", "dp"]);
  expect(step.compute_ms + losses.reduce((sum, one) => sum + one.ms, 0)).toBeCloseTo(step.step_ms, 0);
});
test("without stages there is no pipeline bubble", () => {
  expect(lossesOf({ ...step, layout: { ...step.layout, pp: 1 } }).find((one) => one.id === "bubble")?.name).toBe("waiting for other GPUs");
});
