// Finds what is under the pointer, and neighbours for the arrow keys.
import { type LanesLayout, placeOf } from "./drawLanes";
import { type Bar, type Row } from "./strip";
import type { Op, Window } from "./window";

export function opAt(window: Window, layout: LanesLayout, time: number, y: number, slack: number): Op | null {
  let best: Op | null = null, distance = slack;
  for (const op of window.ops) {
    const [top, height] = placeOf(op, window, layout);
    if (y < top || y >= top + height + 2) continue;
    const off = time < op.transfer ? op.transfer - time : time > op.end ? time - op.end : 0;
    if (off < distance || (off === 0 && distance === 0 && best && op.end - op.transfer < best.end - best.transfer)) {
      best = op;
      distance = off;
    }
  }
  return best;
}

export function barAt(row: Row | undefined, time: number): Bar | null {
  return row?.bars.find((bar) => bar[3] <= time && time < bar[4]) ?? null;
}

const off = (bar: Bar, time: number) => Math.max(0, bar[3] - time, time - bar[4]);

// Returns the pass around a time, or the one that is nearest to it: bars of one kind, micro-batch and chunk, which a wait
// may have cut.
export function passAround(row: Row | undefined, time: number): [number, number] | null {
  if (!row?.bars.length) return null;
  const bar = row.bars.reduce((best, one) => (off(one, time) < off(best, time) ? one : best));
  const at = row.bars.indexOf(bar);
  const isSame = (other: Bar | undefined) => other !== undefined && other[0] === bar[0] && other[1] === bar[1] && other[2] === bar[2];
  let first = at, last = at;
  while (isSame(row.bars[first - 1])) --first;
  while (isSame(row.bars[last + 1])) ++last;
  return [row.bars[first][3], row.bars[last][4]];
}

// Returns the next operation of the same lane; `by` is 1 or -1.
export function nextOp(window: Window, op: Op | null, by: number): Op | null {
  const isSame = (other: Op) => op === null || (op.kind.group === null ? other.kind.group === null : window.lanes[other.lane].axis === window.lanes[op.lane].axis);
  const lane = window.ops.filter(isSame).sort((a, b) => a.transfer - b.transfer);
  const at = op ? lane.findIndex((other) => other.index === op.index) : by > 0 ? -1 : lane.length;
  return lane[at + by] ?? op;
}

// Returns the operation of the next lane, up or down, that is nearest in time.
export function opOfNextLane(window: Window, op: Op | null, by: number): Op | null {
  if (!op) return window.compute[0] ?? null;
  const lanes = [window.compute, ...window.byAxis.map(({ ops }) => ops)];
  const at = lanes.findIndex((lane) => lane.some((other) => other.index === op.index));
  for (let next = at + by; next >= 0 && next < lanes.length; next += by) {
    let best: Op | null = null;
    for (const other of lanes[next]) if (!best || Math.abs(other.transfer - op.transfer) < Math.abs(best.transfer - op.transfer)) best = other;
    if (best) return best;
  }
  return op;
}
