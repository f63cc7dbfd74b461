// Which level of detail the lower half shows.
import { type Draw, font, paint } from "./Canvas";
import type { WholeLayout } from "./drawWhole";
import { passAround } from "./find";
import type { Drag } from "./gestures";
import { kWgrad, type Row } from "./strip";
import { type Span, tickText, within } from "./view";

const kLanesPx = 40;  // a pass this wide has room for its operations

export function passLength(row: Row): number {
  const lengths = row.bars.filter((bar) => bar[0] <= kWgrad).map((bar) => bar[4] - bar[3]).sort((a, b) => a - b);
  return lengths[Math.floor(lengths.length / 2)] ?? 0;
}

export const showsLanes = (row: Row | undefined, span: Span, width: number): boolean =>
  row !== undefined && (passLength(row) / (span.to - span.from)) * width >= kLanesPx;

// Passes that are narrower than their numbers are a river as well.
const kPassesPx = 7;
export const showsRiver = (row: Row | undefined, span: Span, width: number): boolean =>
  row !== undefined && (passLength(row) / (span.to - span.from)) * width < kPassesPx;

// Returns a span of two passes in the middle of the step, where all stages are busy.
export function startSpan(rows: Row[], step: number): Span {
  const row = rows[0], length = passLength(row);
  const pass = passAround(row, 0.49 * step) ?? row.bars.map((bar): [number, number] => [bar[3], bar[4]]).find(([start]) => start >= 0.45 * step) ?? [0, step];
  const wide = Math.max(pass[1] - pass[0], length);
  return within({ from: pass[0] - 0.2 * wide, to: pass[0] + 1.5 * wide }, step);
}

export const passHeight = (rows: number, room: number): number => {
  const each = Math.min(26, room / Math.max(1, rows));
  return Math.max(1.5, each - (each > 11 ? 3 : 1));
};

// Draws the span that is being selected, with its length.
export function drawDrag(drag: Drag, span: Span, step: number, left: number, whole: WholeLayout, top: number, width: number, height: number): Draw {
  return (g) => {
    const colours = paint(), wide = width - left;
    const x = (time: number) => Math.min(width, Math.max(left, left + (drag.isUpper ? time / step : (time - span.from) / (span.to - span.from)) * wide));
    const [from, to] = [x(drag.from), x(drag.to)], y = drag.isUpper ? whole.top - 2 : top + 12, high = drag.isUpper ? whole.height + 4 : height - top - 14;
    g.fillStyle = colours.focus;
    g.globalAlpha = 0.12;
    g.fillRect(from, y, to - from, high);
    g.globalAlpha = 1;
    g.strokeStyle = colours.focus;
    g.lineWidth = 1;
    g.strokeRect(from + 0.5, y + 0.5, Math.max(1, to - from), high - 1);
    if (drag.isUpper) return;
    const length = drag.to - drag.from, text = tickText(Number(length.toPrecision(3)), length);
    font(g, 11, 600);
    g.textAlign = "center";
    g.fillStyle = colours.ink;
    g.fillText(`${text}; F zooms`, Math.min(width - 40, Math.max(left + 40, (from + to) / 2)), y + high - 8);
  };
}
