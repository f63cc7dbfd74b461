// The answer "window" (page/window.hpp): the operations of one GPU in a span of the step.
import type { Axis } from "./strip";

export interface Kind { name: string; title: string; piece: number | null; phase: string; work: string; group: number | null }
export interface Group { communicator: string; axis: Axis; gpus: number[]; link: string | null; link_GBps: number | null }
export interface WindowAnswer {
  gpu: number; role: string; step_ps: number; from: number; to: number; more: number;
  lanes: { name: string; is_compute: boolean; axis: Axis | null }[];
  kinds: Kind[]; labels: string[]; groups: Group[];
  operations: [number, number, number, number, number, number, number, number, number, number[], boolean][];
  lost: [number, number, number, number][];
}
export interface Op {
  index: number; kind: Kind; lane: number; start: number; transfer: number; end: number; microBatch: number; chunk: number;
  bytes: number; exposed: number; waiting: Kind[]; isCritical: boolean; label: string;
}
export interface Lost { start: number; end: number; cause: number; operation: number }
export interface Window {
  gpu: number; role: string; from: number; to: number; more: number; lanes: WindowAnswer["lanes"]; groups: Group[];
  kinds: Kind[]; ops: Op[]; lost: Lost[];
  compute: Op[];                        // by start
  byAxis: { axis: Axis; ops: Op[] }[];  // lanes of communication in the order in which they are drawn; by transfer
  passes: Pass[]; labels: Label[];      // of the compute lane
  parts: Map<number, Lost[]>;           // [index of an operation]: what of it is exposed
}

const kAxes: Axis[] = ["ep", "tp", "cp", "pp", "dp"];

export function readWindow(answer: WindowAnswer): Window {
  const ops = answer.operations.map(([kind, lane, start, transfer, end, microBatch, chunk, bytes, exposed, waiting, isCritical], index) => ({
    index, kind: answer.kinds[kind], lane, start, transfer, end, microBatch, chunk, bytes, exposed,
    waiting: waiting.map((one) => answer.kinds[one]), isCritical, label: answer.labels[index] }));
  const axes = kAxes.filter((axis) => answer.lanes.some((lane) => lane.axis === axis));
  const lost = answer.lost.map(([start, end, cause, operation]) => ({ start, end, cause, operation }));
  const compute = ops.filter((op) => answer.lanes[op.lane].is_compute), parts = new Map<number, Lost[]>();
  for (const one of lost) {
    if (one.operation < 0) continue;
    const of = parts.get(one.operation);
    if (of) of.push(one);
    else parts.set(one.operation, [one]);
  }
  const byAxis = axes.map((axis) => ({ axis, ops: ops.filter((op) => answer.lanes[op.lane].axis === axis).sort((a, b) => a.transfer - b.transfer) }));
  return { ...answer, ops, lost, compute, byAxis, parts, passes: passesOf(compute), labels: labelsOf(compute) };
}

export type Direction = "forward" | "backward" | "weight gradients" | "other";
export const directionOf = ({ phase }: Kind): Direction =>
  phase === "forward" ? "forward" : phase === "dgrad" || phase === "recompute" ? "backward" : phase === "wgrad" ? "weight gradients" : "other";

export interface Pass { direction: Direction; microBatch: number; chunk: number; start: number; end: number }
// Consecutive operations of one micro-batch, chunk and direction; weight gradients belong to the backward pass around them.
export function passesOf(compute: Op[]): Pass[] {
  const passes: Pass[] = [];
  for (const op of compute) {
    const direction = directionOf(op.kind);
    if (direction === "other") continue;
    const last = passes.at(-1);
    const isSame = last && last.microBatch === op.microBatch && last.chunk === op.chunk &&
      (last.direction === direction || (last.direction !== "forward" && direction !== "forward"));
    if (!isSame) passes.push({ direction, microBatch: op.microBatch, chunk: op.chunk, start: op.start, end: op.end });
    else {
      last.end = Math.max(last.end, op.end);
      if (direction === "backward") last.direction = "backward";
    }
  }
  return passes;
}

export interface Label { text: string; short: string; start: number; end: number; phase: string; isSplit: boolean }
const kShort = 0.2;  // of a piece: kernels between pieces that are shorter do not end a run of them
// One label a kernel; the pieces of a split one have one together, "fc1 ×4".
export function labelsOf(compute: Op[]): Label[] {
  const labels: (Label & { pieces: number; title: string; from: string })[] = [];
  let run: (typeof labels)[number] | null = null;
  for (const op of compute) {
    const { title, piece, phase } = op.kind;
    const from = `${title} ${phase} ${op.microBatch} ${op.chunk}`;
    if (piece !== null && run && run.from === from) {
      run.end = op.end;
      run.text = `${title} ×${++run.pieces}`;
      run.isSplit = true;
      continue;
    }
    const suffix = phase === "wgrad" ? " dW" : "";
    const label: (typeof labels)[number] = { text: title + suffix, short: title.split(" ")[0] + suffix, start: op.start, end: op.end, phase, isSplit: false, pieces: 1, title, from };
    labels.push(label);
    if (piece !== null) run = label;
    else if (run && op.end - op.start > kShort * (run.end - run.start)) run = null;
  }
  return labels;
}
