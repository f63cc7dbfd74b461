// The upper half of the timeline: the whole step as a river, a row a stage. It is painted once and copied in each frame.
import { type Draw, font, paint } from "./Canvas";
import { binRow, kLayers, paintRow, rgb } from "./river";
import type { Cause, Row } from "./strip";
import { type Span, ticks, tickText } from "./view";

export interface River { canvas: HTMLCanvasElement; key: string }

export interface WholeLayout { rowHeight: number; gap: number; top: number; height: number }
// Rows are as high as there is room for: 18 pixels for four stages, 2 for a hundred.
export function wholeLayout(rows: number, room = 92, top = 22): WholeLayout {
  const each = Math.max(2.5, Math.min(21, room / Math.max(1, rows)));
  const gap = each > 14 ? 3 : each > 6 ? 1.5 : 0.5;
  return { rowHeight: each - gap, gap, top, height: rows * each - gap };
}

// Paints a span of a step as rows; a number: from the beginning to this time, for steps on one axis. The canvas is `width`
// CSS pixels wide and as high as the layout.
export function paintRiver(rows: Row[], causes: Cause[], step: number, axis: Span | number, width: number, layout: WholeLayout, scale: number): HTMLCanvasElement {
  const span = typeof axis === "number" ? { from: 0, to: axis } : axis;
  const canvas = document.createElement("canvas");
  const wide = Math.max(1, Math.round(width * scale)), high = Math.max(1, Math.round(layout.height * scale));
  canvas.width = wide;
  canvas.height = high;
  const g = canvas.getContext("2d")!, image = g.createImageData(wide, high), colours = paint();
  const layers = kLayers.map((name) => rgb(colours[name]));
  const end = Math.round((wide * (step - span.from)) / (span.to - span.from));
  rows.forEach((row, index) => {
    const top = Math.round(index * (layout.rowHeight + layout.gap) * scale);
    const height = Math.min(high - top, Math.max(1, Math.round(layout.rowHeight * scale)));
    const bins = Math.max(1, Math.floor(width / 1.5));
    paintRow(image, binRow(row, causes, span.from, span.to, bins), top, height, wide, end, layers, rgb(colours.bubble), rgb(colours.line2), scale);
  });
  g.putImageData(image, 0, 0);
  return canvas;
}

// Draws axis, names, river and the frame of `span`; `left` is where time begins.
export function drawWhole(river: HTMLCanvasElement, rows: Row[], step: number, span: Span, left: number, layout: WholeLayout, selected: number): Draw {
  return (g, width) => {
    const colours = paint(), wide = width - left, x = (time: number) => left + (time / step) * wide;
    font(g, 10.5);
    g.fillStyle = colours.ink3;
    for (const tick of ticks(step, wide < 400 ? 4 : 8)) {
      if (x(tick) > width + 1) continue;
      g.textAlign = tick === 0 ? "left" : x(tick) > width - 24 ? "right" : "center";
      g.fillText(tickText(tick, step), x(tick), 7);
    }
    const each = layout.rowHeight + layout.gap, isNarrow = each < 11;
    rows.forEach((row, index) => {
      if (isNarrow && index !== 0 && index !== rows.length - 1 && index !== selected) return;
      if (isNarrow && index === selected && index > 0 && index < rows.length - 1 && (index * each < 11 || (rows.length - 1 - index) * each < 11)) return;
      font(g, 11.5, index === selected ? 600 : 400);
      g.textAlign = "left";
      g.fillStyle = index === selected ? colours.ink : colours.ink2;
      g.fillText(row.name, 0, layout.top + index * each + layout.rowHeight / 2, left - 6);
    });
    g.imageSmoothingEnabled = false;
    g.drawImage(river, left, layout.top, wide, layout.height);
    g.strokeStyle = colours.line2;
    g.lineWidth = 1;
    if (each > 6) rows.forEach((_, index) => g.strokeRect(left + 0.5, layout.top + index * each + 0.5, wide - 1, layout.rowHeight - 1));
    const from = x(span.from), to = Math.max(from + 3, x(span.to));
    g.strokeStyle = colours.ink;
    g.lineWidth = 1.5;
    g.strokeRect(from - 0.5, layout.top - 2, to - from, layout.height + 4);
  };
}

// Draws the funnel from the frame to the lower half.
export function drawFunnel(span: Span, step: number, left: number, top: number, bottom: number): Draw {
  return (g, width) => {
    const colours = paint(), wide = width - left;
    const from = left + (span.from / step) * wide, to = Math.max(from + 3, left + (span.to / step) * wide);
    g.fillStyle = colours.sunk;
    g.beginPath();
    g.moveTo(from, top);
    g.lineTo(to, top);
    g.lineTo(width, bottom);
    g.lineTo(left, bottom);
    g.closePath();
    g.fill();
    g.strokeStyle = colours.line2;
    g.lineWidth = 1;
    g.beginPath();
    g.moveTo(from, top);
    g.lineTo(left + 0.5, bottom);
    g.moveTo(to, top);
    g.lineTo(width - 0.5, bottom);
    g.stroke();
  };
}
