// One row of a page: its name, its picture and its figures.
import { useMemo } from "react";
import { time } from "../format";
import { Canvas, type Draw, paint } from "../timeline/Canvas";
import { drawLanes, type LanesLayout } from "../timeline/drawLanes";
import { drawPasses } from "../timeline/drawPasses";
import type { PageRow } from "./pages";
import type { Result } from "./results";

const kLeft = 74;  // names of lanes

interface Properties { row: PageRow; result: Result | null; problem: string | null; height: number; longest: number; length: number; isCovered: boolean }

// `longest`: picoseconds of the axis of whole steps; `length`: those of a span.
export function Figure({ row, result, problem, height, longest, length, isCovered }: Properties) {
  const draw = useMemo<Draw>(() => {
    if (!result) return () => {};
    return row.span ? lanes(row, result, length) : whole(result, longest, height);
  }, [row, result, height, longest, length]);
  const label = result ? `${row.name}, ${row.about}: a step takes ${time(result.simulated.step_ms)}` : `${row.name}: computing`;
  return <div className={`learn-row${isCovered ? " covered" : ""}`}>
    <div><h2>{row.name}</h2><p className="s">{row.about}</p></div>
    <div className="learn-canvas">{problem ? <p role="alert" className="s">{problem}</p> : <Canvas height={height} draw={draw} aria-label={isCovered ? `${row.name}: guess first` : label} />}
      {isCovered && <div className="cover">guess first</div>}</div>
    <div className="learn-value">{result && !isCovered ? <><div className="v num">{time(result.simulated.step_ms)}</div><p className="s num">{row.figure(result)}</p></> : <div className="v q">{isCovered ? "?" : "…"}</div>}</div>
  </div>;
}

function whole({ rows, strip }: Result, longest: number, height: number): Draw {
  return (g, width, high, scale) => {
    const each = height / rows.length, gap = each > 14 ? 2.5 : 1, end = (strip.step_ps / longest) * width;
    drawPasses(rows, { from: 0, to: longest }, strip.step_ps, { left: 0, top: 0, rowHeight: each - gap, gap, numberPx: Math.min(14, each - gap - 3), least: 15, chunks: true })(g, width, high, scale);
    g.fillStyle = paint().ink;
    g.fillRect(Math.min(width, end) - 2, 0, 2, height - gap);
  };
}

function lanes(row: PageRow, result: Result, length: number): Draw {
  const window = result.window!, [from] = row.span!(result);
  const shown = { ...window, byAxis: window.byAxis.filter(({ axis }) => row.axes?.includes(axis)) };
  return (g, width, high, scale) => {
    const compute = Math.round(high * 0.66) - 4, left = width < 500 ? 58 : kLeft;
    const layout: LanesLayout = { left, passes: -100, compute: 0, computeHeight: compute, lane: compute + 7, laneHeight: high - compute - 8, laneGap: 4, textPx: width < 500 ? 11 : 14 };
    g.save();
    drawLanes(shown, result.strip.causes, { from, to: from + length }, layout, { hovered: null, selected: null, isCritical: false })(g, width, high, scale);
    g.restore();
  };
}
