// What a timeline shows, as a sentence, and as a table.
import { percent, time } from "../format";
import { type Cause, kBarNames, type Row, type StepStrip } from "./strip";
import type { Span } from "./view";
import { opTitle } from "./Tip";
import type { Window } from "./window";

const kNames: Record<string, string> = { core_wait: "waiting for a core", queue_wait: "launch-order stalls", host: "launch-bound time", bubble: "pipeline bubble" };

export const causeName = ({ cause, axis }: Cause): string => (cause === "exposed" ? `exposed ${axis!.toUpperCase()}` : kNames[cause]);

// Returns the lost time by what causes it, mean over the GPUs that are drawn, the largest first.
export function lostOf(strip: StepStrip, rows: Row[]): { name: string; cause: Cause["cause"]; ps: number }[] {
  const sums = new Map<string, { cause: Cause["cause"]; ps: number }>();
  const add = (lost: number[]) => {
    for (let i = 0; i < lost.length; i += 2) {
      const cause = strip.causes[lost[i]];
      const name = causeName(cause);
      sums.set(name, { cause: cause.cause, ps: (sums.get(name)?.ps ?? 0) + lost[i + 1] / rows.length });
    }
  };
  for (const row of rows) {
    for (const bar of row.bars) add(bar[6]);
    for (const gap of row.gaps) add(gap[2]);
  }
  return [...sums].map(([name, one]) => ({ name, ...one })).filter(({ ps }) => ps / strip.step_ps > 0.0005).sort((a, b) => b.ps - a.ps);
}

export function findingOf(strip: StepStrip, rows: Row[]): string {
  const lost = lostOf(strip, rows), sum = lost.reduce((total, { ps }) => total + ps, 0);
  const largest = lost[0] ? `, most of it ${lost[0].name}, ${time(lost[0].ps / 1e9)}` : "";
  return `One step of ${time(strip.step_ps / 1e9)} on ${rows.length} ${rows.length === 1 ? "GPU" : "stages"}: ` +
    `${percent(1 - sum / strip.step_ps, 0)} computing, ${percent(sum / strip.step_ps, 0)} lost${largest}`;
}

export interface TimelineTable { headers: string[]; cells: string[][]; more: number }
const kMostRows = 200;
const ms = (ps: number): string => (ps / 1e9).toFixed(3);

// Returns what the lower half shows, as a table: operations where it shows them, otherwise passes.
export function tableOf(rows: Row[], window: Window | null, span: Span): TimelineTable {
  const all: string[][] = [];
  if (window) {
    for (const op of window.ops)
      if (op.end > span.from && op.transfer < span.to)
        all.push([window.lanes[op.lane].name, opTitle(op, window), op.kind.phase, String(op.microBatch), ms(op.transfer), ms(op.end - op.transfer), ms(op.exposed)]);
    return { headers: ["lane", "operation", "phase", "micro-batch", "start, ms", "takes, ms", "exposed, ms"], cells: all.slice(0, kMostRows), more: Math.max(0, all.length - kMostRows) };
  }
  for (const row of rows)
    for (const [kind, micro, chunk, start, end, computes] of row.bars)
      if (end > span.from && start < span.to) all.push([row.name, kBarNames[kind], kind <= 2 ? String(micro) : "", kind <= 2 ? String(chunk) : "", ms(start), ms(end - start), ms(end - start - computes)]);
  return { headers: ["stage", "pass", "micro-batch", "chunk", "start, ms", "takes, ms", "waits, ms"], cells: all.slice(0, kMostRows), more: Math.max(0, all.length - kMostRows) };
}
