// The predicted and the measured step, one above the other, with one operation at one place.
import { useMemo, useState } from "react";
import { Canvas, font, hatch, paint, useTheme } from "../timeline/Canvas";
import { time } from "../format";
import { type DiagnoseAnswer, firstWindow, type Slice, type TraceAxis, type Window } from "./diagnosis";

const kCompute = 36, kLane = 13, kGap = 3, kBetween = 22, kLeft = 84;
const kAxes: TraceAxis[] = ["ep", "tp", "cp", "pp", "dp", ""];
const kNames: Record<string, string> = { "": "other" };

interface Row { side: "predicted" | "measured"; axis: TraceAxis | "compute"; y: number; height: number }

function rowsOf(axes: TraceAxis[]): { rows: Row[]; height: number } {
  const rows: Row[] = [];
  let y = 2;
  for (const side of ["predicted", "measured"] as const) {
    rows.push({ side, axis: "compute", y, height: kCompute });
    y += kCompute + kGap;
    for (const axis of axes) { rows.push({ side, axis, y, height: kLane }); y += kLane + kGap; }
    y += kBetween - kGap;
  }
  return { rows, height: y - kBetween + 2 };
}

export function Timelines({ answer }: { answer: DiagnoseAnswer }) {
  const theme = useTheme();
  const first = useMemo(() => firstWindow(answer), [answer]);
  const [moved, setMoved] = useState<{ of: DiagnoseAnswer; window: Window } | null>(null);
  const window = moved?.of === answer ? moved.window : first;
  const put = (next: Window) => setMoved({ of: answer, window: next });
  const { kinds, anchor } = answer;
  const used = useMemo(() => kAxes.filter((axis) => [...answer.predicted, ...answer.measured].some(([kind]) => kinds[kind]!.axis === axis)), [answer, kinds]);
  const { rows, height } = rowsOf(used);
  const draw = useMemo(() => (g: CanvasRenderingContext2D, width: number) => {
    const colours = paint(), wide = width - kLeft;
    const colourOf = (phase: string | null, axis: TraceAxis): [string, string] =>
      axis ? [colours[axis], "#FFFFFF"] : axis === "" ? [colours.ink3, colours.bg] : phase === "forward" ? [colours.fwd, colours["on-fwd"]]
        : phase === "dgrad" || phase === "recompute" ? [colours.bwd, colours["on-bwd"]] : phase === "wgrad" ? [colours.wgrad, colours["on-wgrad"]] : [colours["m-opt"], colours["on-fwd"]];
    for (const { side, axis, y, height } of rows) {
      const begin = (anchor?.[side] ?? 0) - window.lead, x = (t: number) => kLeft + (wide * (t - begin)) / window.length;
      font(g, axis === "compute" ? 12 : 11, axis === "compute" ? 600 : 400);
      g.fillStyle = axis === "compute" ? colours.ink : colours.ink3;
      g.textAlign = "left";
      g.fillText(axis === "compute" ? side : kNames[axis ?? ""] ?? (axis ?? "").toUpperCase(), 0, y + height / 2);
      g.fillStyle = axis === "compute" ? colours.panel : colours.sunk;
      g.fillRect(kLeft, y, wide, height);
      if (axis === "compute") hatch(g, kLeft, y, wide, height, colours.line2);
      g.save();
      g.beginPath();
      g.rect(kLeft, y, wide, height);
      g.clip();
      const computing = axis === "compute" ? [] : answer[side].filter(([kind]) => kinds[kind]!.axis === null);
      for (const [kind, start, end] of answer[side]) {
        const of = kinds[kind]!;
        if ((axis === "compute") !== (of.axis === null) || (axis !== "compute" && of.axis !== axis)) continue;
        const a = x(start), b = x(end);
        if (b < kLeft || a > width) continue;
        const [back, ink] = colourOf(of.phase, of.axis);
        g.fillStyle = back;
        g.globalAlpha = axis === "compute" ? 1 : 0.32;  // pale where something computes
        g.fillRect(a, y, Math.max(0.6, b - a - (b - a > 2 ? 0.7 : 0)), height);
        g.globalAlpha = 1;
        if (axis !== "compute") for (const [from, to] of uncovered(start, end, computing)) g.fillRect(x(from), y, Math.max(0.6, x(to) - x(from)), height);
        font(g, axis === "compute" ? 11 : 10, 500);
        const name = of.name.replace(/\.(fprop|dgrad|wgrad)\b/, "").replace(/[._]/g, " ");
        if (b - a < 24 || g.measureText(name).width > b - a - 6) continue;
        g.fillStyle = axis === "compute" ? ink : colours.ink;
        if (axis === "compute") { g.textAlign = "center"; g.fillText(name, (a + b) / 2, y + height / 2); }
      }
      g.restore();
      if (axis === "compute" && anchor) { g.fillStyle = colours.ink; g.fillRect(x(anchor[side]), y - 2, 1, height + 4); }
    }
  }, [answer, window, rows.length, theme]);
  const by = (share: number) => put({ ...window, lead: window.lead - share * window.length });
  const zoom = (factor: number) => put({ lead: window.lead * factor, length: window.length * factor });
  return <section className="blk" id="aligned" aria-label="both timelines">
    <h2>{anchor ? "Where the run loses most time" : "Both timelines"} <span className="q">kernel by kernel; {anchor ? `${anchor.name} at one place` : "from the beginning of the step"}, {time(window.length / 1e9)} shown</span>
      <span className="r acts"><button className="link" onClick={() => by(-0.5)}>earlier</button><button className="link" onClick={() => by(0.5)}>later</button>
        <button className="link" onClick={() => zoom(0.5)}>zoom in</button><button className="link" onClick={() => zoom(2)}>zoom out</button></span></h2>
    <div className="tl"><Canvas height={height} draw={draw} aria-label={`predicted and measured kernels of ${time(window.length / 1e9)}${anchor ? `, from ${anchor.name} on` : ""}`} /></div>
    <div className="leg"><span>pale: something computes at the same time, full: nothing does, hatched: nothing runs</span></div>
  </section>;
}

// Returns the parts of a stretch in which nothing computes. `computing` is in order of start.
function uncovered(start: number, end: number, computing: Slice[]): [number, number][] {
  const parts: [number, number][] = [];
  let at = start;
  for (const [, from, to] of computing) {
    if (to <= at) continue;
    if (from >= end) break;
    if (from > at) parts.push([at, from]);
    at = Math.max(at, to);
  }
  if (at < end) parts.push([at, end]);
  return parts;
}
