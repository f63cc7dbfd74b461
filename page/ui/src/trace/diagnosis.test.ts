import { describe, expect, it } from "vitest";
import { type DiagnoseAnswer, findingOf, firstWindow, partsOf } from "./diagnosis";

const gap = (cause: string, name: string, gap_ms: number) => ({ cause, name, predicted_ms: 0, measured_ms: 0, gap_ms, detail: "", advice: "" });
const answer: DiagnoseAnswer = {
  diagnosis: { rank: 0, traced_ranks: 1, whole_step: true, predicted_ms: 1000, measured_ms: 1141, matched: 0.9, notes: [],
    gaps: [gap("exposed communication", "tp all_gather", 200), gap("slower kernel", "fc1", -60), gap("slower kernel", "adam", 4), gap("waiting for host", "host", -3)] },
  text: "", axes: ["tp", null, null, null], step_ps: { predicted: 1e12, measured: 1.141e12 }, kinds: [{ name: "fc1", phase: "forward", axis: null }],
  predicted: [[0, 0, 5e6], [0, 5e6, 9e6]], measured: [[0, 1e6, 6e6], [0, 8e6, 21e6]], anchor: { name: "fc1", predicted: 0, measured: 1e6 },
};

describe("a diagnosis", () => {
  it("adds up from the predicted to the measured step", () => {
    const parts = partsOf(answer);
    expect(parts.map((one) => one.name)).toEqual(["exposed TP all-gather", "fc1", "2 smaller ones"]);
    expect(parts.reduce((sum, one) => sum + one.gap_ms, answer.diagnosis.predicted_ms)).toBeCloseTo(answer.diagnosis.measured_ms);
  });
  it("names what adds most", () => {
    expect(findingOf(answer)).toBe("The run does not hide its tensor-parallel communication: it waits 200 ms longer than it should.");
    expect(findingOf({ ...answer, diagnosis: { ...answer.diagnosis, gaps: [] } })).toBe("The run takes what it should.");
  });
  it("shows the longer side of a stretch", () => {
    const { lead, length } = firstWindow(answer);
    expect(length - lead).toBeGreaterThan(20e6);
    expect(length).toBeLessThan(24e6);
  });
});
