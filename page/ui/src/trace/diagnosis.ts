// The answer "diagnose" (page/diagnosed.hpp), and what the view reads out of it.
import { time } from "../format";

export type TraceAxis = "tp" | "cp" | "ep" | "dp" | "pp" | "" | null;  // "": communication outside the schedule
export interface Gap { cause: string; name: string; predicted_ms: number; measured_ms: number; gap_ms: number; detail: string; advice: string }
export interface Diagnosis {
  rank: number; traced_ranks: number; whole_step: boolean; predicted_ms: number; measured_ms: number; matched: number; gaps: Gap[]; notes: string[];
}
export type Slice = [kind: number, start: number, end: number];
export interface DiagnoseAnswer {
  diagnosis: Diagnosis; text: string; axes: TraceAxis[]; step_ps: { predicted: number; measured: number };
  kinds: { name: string; phase: string | null; axis: TraceAxis }[];
  predicted: Slice[]; measured: Slice[]; anchor: { name: string; predicted: number; measured: number } | null;
}

const kLeastShare = 0.01, kMostParts = 7;
const kAxisNames: Record<string, string> = { tp: "tensor-parallel", cp: "context-parallel", ep: "expert", dp: "data-parallel", pp: "pipeline" };

export interface Part { name: string; gap_ms: number; axis: TraceAxis }

// Returns the way from the predicted to the measured step, the most first; what is below 1 % of the step is one part.
export function partsOf({ diagnosis: d, axes }: DiagnoseAnswer): Part[] {
  const parts: Part[] = [];
  let rest = 0, more = 0;
  d.gaps.forEach((gap, i) => {
    if (parts.length < kMostParts && Math.abs(gap.gap_ms) >= kLeastShare * d.predicted_ms) parts.push({ name: nameOf(gap), gap_ms: gap.gap_ms, axis: axes[i] ?? null });
    else if (gap.gap_ms !== 0) { rest += gap.gap_ms; ++more; }
  });
  return more ? [...parts, { name: `${more} smaller ${more === 1 ? "one" : "ones"}`, gap_ms: rest, axis: null }] : parts;
}

// Returns the name of a part as readers write it: "TP all-gather".
export const wordsOf = (name: string): string => name.replace(/^(tp|cp|ep|dp|pp|etp|edp)(?=[ -])/, (axis) => axis.toUpperCase()).replace(/_/g, "-");
export const sentence = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

const nameOf = ({ cause, name }: Gap): string =>
  cause === "exposed communication" ? `exposed ${wordsOf(name)}` : cause === "slower kernel" ? name : `${name}: ${cause}`;

// Returns the finding in one sentence: what adds most to the step.
export function findingOf({ diagnosis: d, axes }: DiagnoseAnswer): string {
  const at = d.gaps.findIndex((gap) => gap.gap_ms > 0), gap = d.gaps[at];
  if (!gap || gap.gap_ms < kLeastShare * d.predicted_ms) return "The run takes what it should.";
  const axis = kAxisNames[axes[at] ?? ""], longer = time(gap.gap_ms);
  if (gap.cause === "exposed communication") return `The run does not hide its ${axis ? `${axis} ` : ""}communication: it waits ${longer} longer than it should.`;
  if (gap.cause === "slower kernel") return `${gap.name} takes ${longer} longer than it should.`;
  if (gap.cause === "waiting for host") return `The GPU waits ${longer} for the CPU.`;
  if (gap.cause === "straggler") return `A rank is late: others wait ${longer} for it.`;
  return `${gap.name}, ${gap.cause}: ${longer}.`;
}

export interface Window { lead: number; length: number }  // picoseconds before the anchor, and in all
const kShown = 24;  // operations that compute
// Returns the stretch in which the measured step loses most time, on the side where it is longer.
export function firstWindow({ predicted, measured, kinds, anchor }: DiagnoseAnswer): Window {
  const lengthOf = (slices: Slice[], begin: number) => {
    const after = slices.filter(([kind, start]) => start >= begin && kinds[kind]!.axis === null).slice(0, kShown);
    return after.length ? after.at(-1)![2] - begin : 0;
  };
  const length = Math.max(lengthOf(predicted, anchor?.predicted ?? 0), lengthOf(measured, anchor?.measured ?? 0), 1e6);
  return { lead: 0.04 * length, length: 1.1 * length };
}
