// Operations of one GPU: the compute lane with its passes above it, and a lane for each axis of communication.
import { time } from "../format";
import { type Draw, font, hatch, paint, type Paint } from "./Canvas";
import type { Axis, Cause } from "./strip";
import { type Span, ticks, tickText } from "./view";
import type { Label, Lost, Op, Pass, Window } from "./window";

export interface LanesLayout { left: number; passes: number; compute: number; computeHeight: number; lane: number; laneHeight: number; laneGap: number; textPx: number }
export const lanesLayout = (left: number, top: number): LanesLayout =>
  ({ left, passes: top, compute: top + 17, computeHeight: 46, lane: top + 17 + 46 + 5, laneHeight: 14, laneGap: 4, textPx: 10.5 });
export const lanesHeight = (layout: LanesLayout, lanes: number): number => layout.lane + lanes * (layout.laneHeight + layout.laneGap);

const colourOf = (phase: string, colours: Paint): [string, string] =>
  phase === "forward" ? [colours.fwd, colours["on-fwd"]] : phase === "dgrad" || phase === "recompute" ? [colours.bwd, colours["on-bwd"]] :
  phase === "wgrad" ? [colours.wgrad, colours["on-wgrad"]] : [colours.opt, colours.bg];
export const axisOfLost = (lost: Lost, causes: Cause[]): Axis | "stall" | null => {
  const cause = causes[lost.cause];
  return cause.cause === "exposed" ? cause.axis : cause.cause === "queue_wait" ? "stall" : null;
};

export function drawTimes(span: Span, left: number, y: number, isRelative: boolean): Draw {
  return (g, width) => {
    const length = span.to - span.from, wide = width - left;
    font(g, 10.5);
    g.fillStyle = paint().ink3;
    for (const tick of ticks(length, wide < 400 ? 3 : 7)) {
      const x = left + (tick / length) * wide;
      g.textAlign = tick === 0 ? "left" : x > width - 30 ? "right" : "center";
      g.fillText(tick === 0 ? `${(span.from / 1e12).toFixed(length < 2e10 ? 4 : 3)} s` : `${isRelative ? "+" : ""}${tickText(tick, length)}`, Math.min(x, width), y);
    }
  };
}

export interface Marks { hovered: Op | null; selected: Op | null; isCritical: boolean }

export function drawLanes(window: Window, causes: Cause[], span: Span, layout: LanesLayout, marks: Marks): Draw {
  const { labels, passes, parts } = window;
  return (g, width) => {
    const colours = paint(), { left } = layout;
    const scale = (width - left) / (span.to - span.from);
    const clip = (start: number, end: number): [number, number] => [Math.max(left, left + (start - span.from) * scale), Math.min(width, left + (end - span.from) * scale)];
    font(g, layout.textPx + 0.5);
    g.textAlign = "left";
    g.fillStyle = colours.ink2;
    g.fillText("compute", 0, layout.compute + layout.computeHeight / 2, left - 4);
    window.byAxis.forEach(({ axis }, i) => g.fillText(axis.toUpperCase(), 0, layout.lane + i * (layout.laneHeight + layout.laneGap) + layout.laneHeight / 2));
    drawBrackets(g, passes, clip, layout, colours);
    drawCompute(g, window, clip, layout, colours);
    drawWaits(g, window, causes, clip, layout, colours);
    drawLabels(g, labels, clip, layout, colours);
    window.byAxis.forEach(({ axis, ops }, i) => drawLane(g, axis, ops, parts, clip, layout, layout.lane + i * (layout.laneHeight + layout.laneGap), width, colours));
    drawMarks(g, window, marks, clip, layout, colours);
  };
}

type Clip = (start: number, end: number) => [number, number];
type G = CanvasRenderingContext2D;

function drawBrackets(g: G, passes: Pass[], clip: Clip, layout: LanesLayout, colours: Paint) {
  const y = layout.passes;
  for (const pass of passes) {
    const [a, b] = clip(pass.start, pass.end);
    if (b - a < 4) continue;
    g.strokeStyle = colours.ink3;
    g.lineWidth = 1;
    g.beginPath();
    g.moveTo(a + 0.5, y + 11);
    g.lineTo(a + 0.5, y + 7.5);
    g.lineTo(b - 0.5, y + 7.5);
    g.lineTo(b - 0.5, y + 11);
    g.stroke();
    font(g, layout.textPx, 500);
    const long = `${pass.direction}, micro-batch ${pass.microBatch}, chunk ${pass.chunk}`;
    const short = `${pass.direction === "forward" ? "F" : pass.direction === "backward" ? "B" : "W"}${pass.microBatch}`;
    const text = g.measureText(long).width < b - a - 16 ? long : g.measureText(short).width < b - a - 10 ? short : "";
    if (!text) continue;
    const wide = g.measureText(text).width + 8;
    g.fillStyle = colours.bg;
    g.fillRect((a + b) / 2 - wide / 2, y + 1, wide, 12);
    g.fillStyle = colours.ink2;
    g.textAlign = "center";
    g.fillText(text, (a + b) / 2, y + 7);
  }
}

function drawCompute(g: G, window: Window, clip: Clip, layout: LanesLayout, colours: Paint) {
  const { compute: y, computeHeight: height, left } = layout, right = clip(0, Infinity)[1];
  g.fillStyle = colours.bubble;
  g.fillRect(left, y, right - left, height);
  hatch(g, left, y, right - left, height, colours.line2);
  let drawn = -1;
  for (const op of window.compute) {
    const [a, b] = clip(op.start, op.end);
    if (b <= a || (b - drawn < 0.4 && b - a < 0.5)) continue;
    drawn = b;
    g.fillStyle = colourOf(op.kind.phase, colours)[0];
    g.fillRect(a, y, Math.max(0.5, b - a - (b - a > 2 ? 0.7 : 0)), height);
  }
}

// Colours the time in which the compute lane waits for a transfer, with a foot mark and how long it waits.
function drawWaits(g: G, window: Window, causes: Cause[], clip: Clip, layout: LanesLayout, colours: Paint) {
  const { compute: y, computeHeight: height } = layout;
  const foot = height > 60 ? 5 : 3;
  let group: { start: number; end: number } | null = null;
  const waits: { start: number; end: number }[] = [];
  for (const lost of window.lost) {
    const axis = axisOfLost(lost, causes);
    const [a, b] = clip(lost.start, lost.end);
    if (axis === null || b - a < 0.2) continue;
    g.fillStyle = colours[axis];
    g.globalAlpha = 0.2;
    g.fillRect(a, y, Math.max(0.6, b - a), height);
    g.globalAlpha = 1;
    g.fillRect(a, y + height - foot, Math.max(1, b - a), foot);
    if (group && Math.abs(group.end - lost.start) < 1e6) group.end = lost.end;
    else waits.push((group = { start: lost.start, end: lost.end }));
  }
  for (const wait of waits) {
    const [a, b] = clip(wait.start, wait.end);
    const text = `waits ${time((wait.end - wait.start) / 1e9)}`;
    font(g, layout.textPx, 500);
    g.fillStyle = colours.ink;
    g.textAlign = "center";
    if (b - a > g.measureText(text).width + 6) g.fillText(text, (a + b) / 2, y + height / 2);
    else if (b - a > g.measureText("waits").width + 4) g.fillText("waits", (a + b) / 2, y + height / 2);
  }
}

function drawLabels(g: G, labels: Label[], clip: Clip, layout: LanesLayout, colours: Paint) {
  const middle = layout.compute + layout.computeHeight / 2;
  font(g, layout.textPx, 500);
  g.textAlign = "center";
  for (const label of labels) {
    const [a, b] = clip(label.start, label.end);
    if (b - a < 16) continue;
    const attn = label.short === "attention" ? "attn" : label.short.replace("attention", "attn");
    const text = [label.text, label.short, attn].find((one) => g.measureText(one).width < b - a - 4);
    if (!text) continue;
    const [back, ink] = colourOf(label.phase, colours), wide = g.measureText(text).width + 6;
    if (label.isSplit) {
      g.fillStyle = back;
      g.fillRect((a + b) / 2 - wide / 2, middle - layout.textPx * 0.75, wide, layout.textPx * 1.5);
    }
    g.fillStyle = ink;
    g.fillText(text, (a + b) / 2, middle + 0.5);
  }
}

function drawLane(g: G, axis: Axis, ops: Op[], parts: Map<number, Lost[]>, clip: Clip, layout: LanesLayout, y: number, width: number, colours: Paint) {
  const { left, laneHeight: height } = layout;
  g.fillStyle = colours.sunk;
  g.fillRect(left, y, width - left, height);
  // Sends and receives of one axis run together; their hidden parts are drawn once.
  let drawn = left, count = 0;
  g.fillStyle = colours[axis];
  g.globalAlpha = 0.32;
  for (const op of ops) {
    const [a, b] = clip(op.transfer, op.end);
    if (b <= a) continue;
    ++count;
    const from = Math.max(a, drawn);
    if (b - from < 0.4) continue;
    drawn = b;
    g.fillRect(from, y, Math.max(0.6, b - from - (b - from > 2 ? 0.6 : 0)), height);
  }
  g.globalAlpha = 1;
  let labelled = left;  // a send and its receive have one name
  for (const op of ops) {
    for (const part of parts.get(op.index) ?? []) {
      const [a, b] = clip(part.start, part.end);
      if (b <= a) continue;
      g.fillStyle = colours[axis];
      g.fillRect(a, y, Math.max(1, b - a), height);
    }
    const [a, b] = clip(op.transfer, op.end), words = op.kind.title.split(" "), last = words.at(-1)!;
    const text = /^[a-z]\d+$/.test(last) && words.length > 1 ? words.at(-2)! : last.replace(/\d+$/, "");  // no numbers of buckets and slices
    font(g, layout.textPx - 0.5, 500);
    if (b - a < 30 || a < labelled || g.measureText(text).width > b - a - 6) continue;
    labelled = b;
    g.textAlign = "center";
    g.fillStyle = op.exposed > 0.5 * (op.end - op.transfer) ? (axis === "ep" || axis === "dp" || axis === "cp" ? onColour(colours[axis]) : "#FFFFFF") : colours.ink;
    g.fillText(text, (a + b) / 2, y + height / 2 + 0.5);
  }
  if (count > 0) return;
  font(g, layout.textPx);
  g.fillStyle = colours.ink3;
  g.textAlign = "left";
  g.fillText("no transfer in this window", left + 6, y + height / 2 + 0.5);
}

// Returns black or white, whichever is read more easily on a colour.
export function onColour(hex: string): string {
  const [r, green, b] = [1, 3, 5].map((at) => (parseInt(hex.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * green + 0.0722 * b > 0.2 ? "#101215" : "#FFFFFF";
}

export function placeOf(op: Op, window: Window, layout: LanesLayout): [number, number] {
  const lane = window.byAxis.findIndex(({ axis }) => axis === window.lanes[op.lane].axis);
  return lane < 0 ? [layout.compute, layout.computeHeight] : [layout.lane + lane * (layout.laneHeight + layout.laneGap), layout.laneHeight];
}

function drawMarks(g: G, window: Window, marks: Marks, clip: Clip, layout: LanesLayout, colours: Paint) {
  if (marks.isCritical) {
    g.strokeStyle = colours.ink;
    g.lineWidth = 1.5;
    g.beginPath();
    let isFirst = true;
    for (const op of window.ops) {
      if (!op.isCritical) continue;
      const [a, b] = clip(op.transfer, op.end), [y, height] = placeOf(op, window, layout);
      if (b < a) continue;
      if (isFirst) g.moveTo(a, y + height / 2);
      else g.lineTo(a, y + height / 2);
      g.lineTo(b, y + height / 2);
      isFirst = false;
    }
    g.stroke();
  }
  for (const [op, line] of [[marks.hovered, 1], [marks.selected, 2]] as const) {
    if (!op) continue;
    const [a, b] = clip(op.transfer, op.end), [y, height] = placeOf(op, window, layout);
    if (b < a) continue;
    g.strokeStyle = colours.ink;
    g.lineWidth = line;
    g.strokeRect(a - 0.5, y + 0.5, Math.max(2, b - a), height - 1);
  }
}
