// One step on one canvas: above, the whole step as a river; below, the framed span as passes or as operations of a GPU.
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useStudio } from "../studio";
import { Canvas, type Draw, useTheme } from "./Canvas";
import { drawLanes, drawTimes, lanesHeight, lanesLayout } from "./drawLanes";
import { drawPasses, drawPath } from "./drawPasses";
import { drawFunnel, drawWhole, paintRiver, wholeLayout } from "./drawWhole";
import { barAt, nextOp, opAt, opOfNextLane, passAround } from "./find";
import { findingOf, lostOf } from "./finding";
import { type Drag, type Place, useGestures } from "./gestures";
import { Legend } from "./Legend";
import { light } from "./lit";
import { useStep } from "./useStep";
import { BarTip, OpTip } from "./Tip";
import { Table } from "./Table";
import { useSpan } from "./useSpan";
import { useWindow } from "./useWindow";
import { around, moved, within, zoomed } from "./view";
import type { Op } from "./window";
import { drawDrag, passHeight, showsLanes, showsRiver, startSpan } from "./level";
import "./timeline.css";

const kLeft = 52, kFunnel = 16, kEmpty = 250;  // kEmpty: about as high as a step of four stages

export function Timeline() {
  const { address, answered: newestAnswered, answer, selection, select, isBusy } = useStudio();
  const answered = newestAnswered === address.state ? newestAnswered : null;  // nothing is asked while a newer state waits for its step
  const { strip, rows, problem } = useStep(answered);
  const { span, set: setSpan, jump } = useSpan();
  const [drag, setDrag] = useState<Drag | null>(null);
  const [hovered, setHovered] = useState<(Place & { op: Op | null }) | null>(null);
  const [selected, setSelected] = useState<Op | null>(null);
  const [isTable, setTable] = useState(false);
  const [isCritical, setCritical] = useState(false);
  const [width, setWidth] = useState(700);
  const canvas = useRef<HTMLCanvasElement>(null), own = useRef("");
  const theme = useTheme();
  const step = strip?.step_ps ?? 0, stage = Math.min(Math.max(0, selection.stage), Math.max(0, rows.length - 1));
  const gpu = selection.gpu < (answer?.simulate.ranks ?? 1) ? selection.gpu : 0;

  useEffect(() => {
    setSpan(strip && rows.length ? startSpan(rows, step) : null);
    setSelected(null);
    setDrag(null);
  }, [strip, rows, step, setSpan]);
  // A part that another picture selects is framed here.
  useEffect(() => {
    const key = `${selection.from_ps}-${selection.to_ps}`;
    if (selection.from_ps === undefined || selection.to_ps === undefined || own.current === key || !step) return;
    own.current = key;
    jump(around(selection.from_ps, selection.to_ps, step, 0.3));
  }, [selection, step, jump]);

  const lanes = useMemo(() => new Set((strip?.causes ?? []).map((one) => one.axis).filter(Boolean)).size, [strip]);
  const whole = wholeLayout(rows.length);
  const top = whole.top + whole.height + kFunnel, layout = lanesLayout(kLeft, top + 14);
  const height = lanesHeight(layout, lanes) + 2;
  const wantsLanes = strip !== null && span !== null && showsLanes(rows[stage], span, width - kLeft);
  const { window: part, tooMany } = useWindow(answered, gpu, wantsLanes ? span : null, step, isCritical);
  const river = useMemo(() => strip && rows.length ? paintRiver(rows, strip.causes, step, step, Math.max(1, width - kLeft), whole, globalThis.devicePixelRatio || 1) : null,
    [strip, rows, step, width, theme, whole.height]);

  const draw = useCallback<Draw>((g, wide, high, scale) => {
    if (wide !== width) setWidth(wide);
    if (!strip || !river || !span) return;
    const begin = performance.now();
    drawFunnel(span, step, kLeft, whole.top + whole.height + 2, top - 1)(g, wide, high, scale);
    drawWhole(river, rows, step, span, kLeft, whole, stage)(g, wide, high, scale);
    drawTimes(span, kLeft, top + 6, span.to - span.from < 0.9 * step)(g, wide, high, scale);
    if (part && wantsLanes) drawLanes(part, strip.causes, span, layout, { hovered: hovered?.op ?? null, selected, isCritical })(g, wide, high, scale);
    else if (showsRiver(rows[stage], span, width - kLeft)) {
      const rowHeight = passHeight(rows.length, high - top - 16), gap = rowHeight > 8 ? 3 : 1, below = { rowHeight, gap, top: top + 14, height: rows.length * (rowHeight + gap) - gap };
      g.drawImage(paintRiver(rows, strip.causes, step, span, width - kLeft, below, scale), kLeft, below.top, width - kLeft, below.height);
    } else {
      const rowHeight = passHeight(rows.length, high - top - 16);
      const style = { left: kLeft, top: top + 14, rowHeight, gap: rowHeight > 8 ? 3 : 1, numberPx: 10.5, least: 13, chunks: true };
      drawPasses(rows, span, step, style)(g, wide, high, scale);
      if (isCritical) drawPath(strip.path, rows, span, style)(g, wide, high, scale);
    }
    if (drag) drawDrag(drag, span, step, kLeft, whole, top, wide, high)(g, wide, high, scale);
    (globalThis as { strettoFrameMs?: number }).strettoFrameMs = performance.now() - begin;
  }, [strip, rows, river, span, step, part, hovered, selected, drag, isCritical, wantsLanes, stage, width, top, lanes]);

  const timeAt = ({ x, y }: Place): number => {
    const share = Math.min(1, Math.max(0, (x - kLeft) / (width - kLeft)));
    return span && y >= top ? span.from + share * (span.to - span.from) : share * step;
  };
  const rowAt = ({ y }: Place): number => {
    const rowHeight = passHeight(rows.length, height - top - 16), each = rowHeight + (rowHeight > 8 ? 3 : 1);
    const row = y < top ? Math.floor((y - whole.top) / (whole.rowHeight + whole.gap)) : part && wantsLanes ? stage : Math.floor((y - top - 14) / each);
    return Math.min(rows.length - 1, Math.max(0, row));
  };
  const opUnder = (place: Place): Op | null =>
    part && wantsLanes && span && place.y >= top ? opAt(part, layout, timeAt(place), place.y, (3 / (width - kLeft)) * (span.to - span.from)) : null;
  const choose = (op: Op | null) => {
    setSelected(op);
    if (!op) return;
    own.current = `${op.transfer}-${op.end}`;
    select({ stage, gpu, from_ps: op.transfer, to_ps: op.end });
    if (span && (op.end < span.from || op.transfer > span.to)) setSpan(within({ from: op.transfer - (span.to - span.from) / 2, to: op.transfer + (span.to - span.from) / 2 }, step));
  };
  const key = (name: string): boolean => {
    if (!span) return false;
    const length = span.to - span.from, middle = (span.from + span.to) / 2;
    const acts: Record<string, () => void> = {
      w: () => jump(zoomed(span, 0.6, selected ? (selected.transfer + selected.end) / 2 : middle, step)), s: () => jump(zoomed(span, 1 / 0.6, middle, step)),
      a: () => jump(moved(span, -0.25 * length, step)), d: () => jump(moved(span, 0.25 * length, step)),
      0: () => jump({ from: 0, to: step }), t: () => setTable(!isTable), c: () => setCritical(!isCritical),
      f: () => jump(drag ? within(drag, step) : selected ? around(selected.transfer, selected.end, step, 1) : span),
      ArrowRight: () => part && choose(nextOp(part, selected, 1)), ArrowLeft: () => part && choose(nextOp(part, selected, -1)),
      ArrowDown: () => part && choose(opOfNextLane(part, selected, 1)), ArrowUp: () => part && choose(opOfNextLane(part, selected, -1)),
      Escape: () => { setDrag(null); setSelected(null); setHovered(null); },
    };
    acts[name]?.();
    return name in acts;
  };
  useGestures(canvas, {
    span: span ?? { from: 0, to: 1 }, step, left: kLeft, boundary: top, setSpan: (next) => setSpan(within(next, step)), setDrag, key,
    hover: (place) => setHovered(place && { ...place, op: opUnder(place) }),
    click: (place, isShift) => {
      if (!span) return;
      const op = opUnder(place);
      if (isShift && op && selected) return setDrag({ from: Math.min(op.transfer, selected.transfer), to: Math.max(op.end, selected.end), isUpper: false });
      setDrag(null);
      setHovered({ ...place, op });  // a tap shows what a pointer shows
      if (op) return choose(op);
      const row = rowAt(place);
      if (row !== stage) select({ stage: row, gpu: rows[row].rank });
      if (place.y < top) setSpan(moved(span, timeAt(place) - (span.from + span.to) / 2, step));
    },
    doubleClick: (place) => {
      const row = rowAt(place), pass = passAround(rows[row], timeAt(place));
      if (!pass) return;
      if (row !== stage) select({ stage: row, gpu: rows[row].rank });
      jump(around(...pass, step));
    },
  });

  const bar = hovered && !hovered.op && strip && (hovered.y < top || !part) && hovered.y > whole.top ? barAt(rows[rowAt(hovered)], timeAt(hovered)) : null;
  const litOp = hovered?.op ?? selected, litAxis = litOp && part && litOp.kind.group !== null ? part.groups[litOp.kind.group].axis : null;
  useEffect(() => {
    light(litAxis);
    return () => light(null);
  }, [litAxis]);
  const finding = useMemo(() => (strip ? findingOf(strip, rows) : "One step"), [strip, rows]);
  const hasStalls = useMemo(() => strip !== null && lostOf(strip, rows).some(({ cause }) => cause === "queue_wait"), [strip, rows]);
  return <section className={`blk timeline${isBusy ? " stale" : ""}`} id="timeline" aria-label="Timeline">
    <h2>One step {strip && <span className="q">{rows.length} {rows.length === 1 ? "row: every GPU does the same" : "pipeline stages; every GPU of a stage does the same"}</span>}
      <span className="r keys"><kbd>W</kbd> <kbd>S</kbd> zoom <kbd>A</kbd> <kbd>D</kbd> move <kbd>0</kbd> whole step
        <button className="link" aria-pressed={isTable} onClick={() => setTable(!isTable)}>table</button></span></h2>
    {problem && <p className="q">{problem}</p>}
    <div className="tl-canvas" style={{ minHeight: strip ? height : kEmpty }}>
      {!strip && answered && !problem && <p className="q wait">All operations of the step are being simulated …</p>}
      <Canvas canvasRef={canvas} height={strip ? height : 0} draw={draw} tabIndex={0} aria-label={finding} aria-keyshortcuts="W A S D 0 F C T" />
      {hovered && (hovered.op || bar) && <div className="tl-tip" role="status" style={{ left: Math.max(0, Math.min(hovered.x - 30, width - 306)), top: hovered.y + 18 }}>
        {hovered.op && part ? <OpTip op={hovered.op} window={part} /> : bar && strip ? <BarTip bar={bar} row={rows[rowAt(hovered)].name} causes={strip.causes} /> : null}</div>}
    </div>
    {strip && <Legend causes={strip.causes} hasStalls={hasStalls} note={tooMany ? "more operations than fit here: zoom in" : isCritical ? "line: critical path" : ""} />}
    {isTable && span && <Table rows={rows} window={wantsLanes ? part : null} span={span} />}
  </section>;
}
