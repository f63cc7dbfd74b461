import { expect, it } from "vitest";
import { shownStages } from "./stages";

const stages = (count: number) => Array.from({ length: count }, (_, i) => ({ stage: `stage ${i}`, bytes: 100 - i, parts: [{ part: "parameters", bytes: 100 - i }] }));

it("shows few stages in the order of the pipeline", () => {
  expect(shownStages(stages(4)).map((one) => one.name)).toEqual(["stage 0", "stage 1", "stage 2", "stage 3"]);
});
it("shows the fullest, the median and the emptiest of many", () => {
  expect(shownStages(stages(32)).map((one) => one.name)).toEqual(["stage 0, fullest", "stage 16, median", "stage 31, emptiest"]);
});
