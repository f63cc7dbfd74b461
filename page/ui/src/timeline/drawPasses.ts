// Passes of a span: bars with the numbers of their micro-batches, a row a stage.
import { type Draw, font, hatch, paint, type Paint } from "./Canvas";
import { type Bar, kForward, kWgrad, type Row } from "./strip";
import type { Span } from "./view";

export interface PassesStyle { left: number; top: number; rowHeight: number; gap: number; numberPx: number; least: number; chunks: boolean }

export const colourOfBar = (kind: number, colours: Paint): string => [colours.fwd, colours.bwd, colours.wgrad, colours.line2, colours.bwd, colours.opt, colours.opt][kind];
export const inkOfBar = (kind: number, colours: Paint): string => [colours["on-fwd"], colours["on-bwd"], colours["on-wgrad"]][kind] ?? colours.ink;

// Draws rows of bars up to the end of the step. Bars that share a pixel with the one before are one rectangle.
export function drawPasses(rows: Row[], span: Span, step: number, style: PassesStyle): Draw {
  return (g, width) => {
    const colours = paint(), { left, top, rowHeight, gap } = style;
    const scale = (width - left) / (span.to - span.from), x = (time: number) => left + (time - span.from) * scale;
    g.save();
    g.beginPath();
    g.rect(left, 0, width - left, top + rows.length * (rowHeight + gap));
    g.clip();
    rows.forEach((row, index) => {
      const y = top + index * (rowHeight + gap), begin = Math.max(left, x(0)), end = Math.min(width, x(step));
      g.fillStyle = colours.bubble;
      g.fillRect(begin, y, end - begin, rowHeight);
      hatch(g, begin, y, end - begin, rowHeight, colours.line2, rowHeight > 12 ? 6 : 4);
      let drawn = -1;
      let run: Run | null = null;
      for (const bar of row.bars) {
        const from = Math.max(left, x(bar[3])), to = Math.min(width, x(bar[4]));
        if (to <= left || from >= width || (to - drawn < 0.5 && to - from < 0.5)) continue;
        drawn = to;
        drawBar(g, bar, from, to, y, rowHeight, colours, style);
        if (bar[0] > kWgrad) continue;
        // Gradients that are reduced cut the last backward pass into many bars, which have one number.
        if (run && run.bar[0] === bar[0] && run.bar[1] === bar[1] && run.bar[2] === bar[2] && from - run.to < 4) run.to = to;
        else {
          if (run) drawNumber(g, run, y, rowHeight, colours, style);
          run = { bar, from, to };
        }
      }
      if (run) drawNumber(g, run, y, rowHeight, colours, style);
    });
    g.restore();
  };
}

function drawBar(g: CanvasRenderingContext2D, bar: Bar, from: number, to: number, y: number, height: number, colours: Paint, style: PassesStyle) {
  const [kind, , chunk] = bar, wide = Math.max(0.5, to - from - (to - from > 3 ? 0.8 : 0));
  g.fillStyle = colourOfBar(kind, colours);
  g.fillRect(from, y, wide, height);
  const isLight = style.chunks && chunk % 2 === 1 && kind <= kWgrad;
  if (isLight) {
    g.fillStyle = colours.bg;
    g.globalAlpha = 0.32;
    g.fillRect(from, y, wide, height);
    g.globalAlpha = 1;
  }
}

interface Run { bar: Bar; from: number; to: number }

function drawNumber(g: CanvasRenderingContext2D, { bar: [kind, microBatch, chunk], from, to }: Run, y: number, height: number, colours: Paint, style: PassesStyle) {
  if (to - from < style.least) return;
  font(g, style.numberPx, 600);
  const text = String(microBatch);
  if (g.measureText(text).width > to - from - 1) return;
  g.textAlign = "center";
  g.fillStyle = style.chunks && chunk % 2 === 1 && kind !== kForward && kind !== kWgrad ? colours["on-bwd"] : inkOfBar(kind, colours);
  g.fillText(text, (from + to) / 2 - 0.4, y + height / 2 + 0.5);
}

// Draws the critical path as a line from row to row; stretches are [rank, start, end].
export function drawPath(path: [number, number, number][], rows: Row[], span: Span, style: Pick<PassesStyle, "left" | "top" | "rowHeight" | "gap">): Draw {
  return (g, width) => {
    const { left, top, rowHeight, gap } = style, scale = (width - left) / (span.to - span.from), x = (time: number) => left + (time - span.from) * scale;
    g.save();
    g.beginPath();
    g.rect(left, 0, width - left, top + rows.length * (rowHeight + gap));
    g.clip();
    g.strokeStyle = paint().ink;
    g.lineWidth = 1.5;
    g.beginPath();
    let isFirst = true;
    for (const [rank, start, end] of path) {
      if (end < span.from - (span.to - span.from) || start > span.to + (span.to - span.from)) continue;
      const y = top + rows.findIndex((row) => row.rank === rank) * (rowHeight + gap) + rowHeight * 0.82;
      if (isFirst) g.moveTo(x(start), y);
      else g.lineTo(x(start), y);
      g.lineTo(x(end), y);
      isFirst = false;
    }
    g.stroke();
    g.restore();
  };
}
