// The answer "strip" (page/strip.hpp): the whole step as bars, with what each GPU loses in and between them.
import type { Problem } from "../answers";
import { ask } from "../ask";
import { pictures } from "./engine";
import { type State, writeState } from "../state";

export type Axis = "tp" | "cp" | "ep" | "dp" | "pp";
export interface Cause { cause: "exposed" | "core_wait" | "queue_wait" | "host" | "bubble"; communicator: string | null; axis: Axis | null }
// [kind, micro-batch, chunk, start, end, computes, lost, wgrad], times in picoseconds; lost is [cause, time, cause, time, …].
export type Bar = [number, number, number, number, number, number, number[], number];
export type Gap = [number, number, number[]];
export interface Track { role: string; rank: number; program: number; bars: Bar[]; gaps: Gap[] }
export interface StepStrip { tracks: Track[]; causes: Cause[]; computing: [string, number][]; path: [number, number, number][]; step_ps: number }

// Kinds of bars (report/stage_bars.hpp), in the order of their numbers.
export const kForward = 0, kBackward = 1, kWgrad = 2;
export const kBarNames = ["forward", "backward", "weight gradients", "setup", "gradient reduction", "optimizer", "parameter gathering"];

// One row a GPU: where forward and backward passes run together, a GPU has two tracks.
export interface Row { name: string; rank: number; bars: Bar[]; gaps: Gap[] }
export function rowsOf(strip: StepStrip): Row[] {
  const rows: Row[] = [];
  for (const track of strip.tracks) {
    const last = rows.at(-1);
    if (last && last.rank === track.rank) {
      last.bars = [...last.bars, ...track.bars].sort((a, b) => a[3] - b[3]);
      last.gaps = [...last.gaps, ...track.gaps];
    } else {
      rows.push({ name: track.role.split(",")[0], rank: track.rank, bars: track.bars, gaps: track.gaps });
    }
  }
  return rows;
}

const known = new Map<string, Promise<StepStrip | Problem>>();  // a few states, the newest last
export function stripOf(state: State): Promise<StepStrip | Problem> {
  const key = writeState(state);
  const found = known.get(key);
  if (found) return found;
  const answer = ask<StepStrip>(pictures, "strip", state);
  known.set(key, answer);
  if (known.size > 12) known.delete(known.keys().next().value!);
  void answer.then((one) => { if ("error" in one) known.delete(key); });
  return answer;
}
