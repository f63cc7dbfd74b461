// Step against memory: a dot a layout, the ties as a band, the Pareto front, and the device's end.
import { extent } from "d3-array";
import { scaleLinear } from "d3-scale";
import { useState } from "react";
import { textWidth, useWidth } from "../controls";
import { digits, gib, kGiB, time } from "../format";
import { placesOf, type Plot, roomIn, type Spot } from "./labels";
import { frontOf, fitting, kTiePct, type Point } from "./points";

const kTop = 18, kBottom = 40, kLeft = 52, kRight = 8;
const kLabel = 27, kLine = 14;  // heights of a label, and of one line of text
const kStrong = "600 11.5px Inter V", kText = "400 11.5px Inter V";

export function Scatter({ points, name, onOpen, isSmall }: { points: Point[]; name: (one: Point) => string; onOpen: (one: Point, isPin: boolean) => void; isSmall: boolean }) {
  const [ref, width] = useWidth<HTMLDivElement>();
  const [over, setOver] = useState<Point | null>(null);
  const height = isSmall ? 380 : 620;
  const [best] = fitting(points);
  if (!best || width === 0) return <div ref={ref} className="scatter" style={{ height }}><p className="q">Dots appear here as layouts are simulated.</p></div>;
  const device = best.device_bytes / kGiB;
  const shown = points.filter((one) => one.step_ms <= best.step_ms * 1.12 && one.memory_bytes / kGiB < device * 1.08);
  const [least = 0] = extent(shown, (one) => one.memory_bytes / kGiB), [, longest = 1] = extent(shown, (one) => one.step_ms);
  const x = scaleLinear([Math.max(0, least - 4), device * 1.08], [kLeft, width - kRight]);
  const y = scaleLinear([best.step_ms * 0.992, Math.max(longest * 1.004, best.step_ms * 1.03)], [height - kBottom, kTop]);
  const front = frontOf(shown), smallest = front.at(-1)!, tie = best.step_ms * (1 + kTiePct / 100);
  const at = (one: Point): [number, number] => [x(one.memory_bytes / kGiB), y(one.step_ms)];
  const scale = best.step_ms >= 1000 ? 1000 : 1, unit = scale === 1000 ? "s" : "ms";
  const middle = front.find((one) => one !== best && one !== smallest && one.memory_bytes < 0.92 * best.memory_bytes);
  const named = [{ one: best, text: `fastest: ${time(best.step_ms)}` }, ...(smallest !== best ? [{ one: smallest, text: `smallest: ${gib(smallest.memory_bytes)} GiB` }] : []),
    ...(middle ? [{ one: middle, text: `${digits((best.memory_bytes - middle.memory_bytes) / kGiB)} GiB less: ${time(middle.step_ms)}` }] : [])].map((label) => ({ ...label, more: name(label.one) }));
  const frame = { left: kLeft + 4, top: kTop + 2, wide: width - kRight - kLeft - 4, high: height - kTop - kBottom - 4 }, end = x(device), deviceName = `device ${device.toFixed(1)} GiB`;
  const plot: Plot = { frame, dots: [...shown.map(at), [end - 6, kTop + 6], [end - textWidth(deviceName, kText), kTop + 6]],
    lines: [...front.slice(1).map((one, i): [Spot, Spot] => [at(front[i]!), at(one)]), [[end, kTop], [end, height - kBottom]]] };
  const places = placesOf(named.map(({ one, text, more }) => ({ at: at(one), wide: Math.max(textWidth(text, kStrong), textWidth(more, kText)), high: kLabel })), plot);
  const labels = named.flatMap((label, i) => places[i] ? [{ ...label, ...places[i] }] : []);
  const tieText = `within ${kTiePct} % of the fastest: a tie`;
  const tieAt = roomIn({ left: kLeft + 8, top: Math.max(kTop, y(tie)) + 4, wide: end - kLeft - 12, high: y(best.step_ms) - y(tie) - 8 }, textWidth(tieText, "500 11.5px Inter V"), kLine, plot, labels);
  return <div ref={ref} className="scatter" style={{ height }}>
    <svg width={width} height={height} role="img" aria-label={`${points.length} layouts simulated; the fastest takes ${time(best.step_ms)} and ${gib(best.memory_bytes)} GiB`}>
      <defs><pattern id="over" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line x1="0" y1="0" x2="0" y2="7" stroke="var(--line2)" /></pattern></defs>
      <rect x={kLeft} y={y(tie)} width={Math.max(0, x(device) - kLeft)} height={Math.max(0, y(best.step_ms) - y(tie))} fill="var(--goodbg)" />
      {y.ticks(6).map((tick) => <g key={tick}><line x1={kLeft} x2={width - kRight} y1={y(tick)} y2={y(tick)} stroke="var(--line)" /><text className="tick" x={kLeft - 8} y={y(tick) + 4} textAnchor="end">{digits(tick / scale, 4)} {unit}</text></g>)}
      {x.ticks(isSmall ? 4 : 8).map((tick, i) => <text key={tick} className="tick" x={x(tick)} y={height - kBottom + 18} textAnchor="middle">{tick}{i === 0 ? " GiB" : ""}</text>)}
      <rect x={x(device)} y={kTop} width={Math.max(0, width - kRight - x(device))} height={height - kTop - kBottom} fill="url(#over)" />
      <line x1={x(device)} x2={x(device)} y1={kTop} y2={height - kBottom} stroke="var(--ink)" strokeWidth="1.5" />
      <text className="tick" x={x(device) - 6} y={kTop + 10} textAnchor="end">{deviceName}</text>
      <text className="tick" x={width - kRight} y={height - 6} textAnchor="end">memory of the fullest GPU</text><text className="tick" x={0} y={11}>step</text>
      <polyline points={front.map((one) => at(one).join(",")).join(" ")} fill="none" stroke="var(--ink)" strokeWidth="1.3" />
      {shown.map((one, i) => <circle key={i} cx={at(one)[0]} cy={at(one)[1]} r={front.includes(one) ? 4.5 : 3.4} fill={front.includes(one) ? "var(--ink)" : "var(--bwd)"} stroke="var(--bg)" className="dot"
        onPointerEnter={() => setOver(one)} onPointerLeave={() => setOver(null)} onClick={(event) => onOpen(one, event.shiftKey)}><title>{`${name(one)}: ${time(one.step_ms)}, ${gib(one.memory_bytes)} GiB. Click: open. Shift-click: pin`}</title></circle>)}
      {tieAt && <text className="tie" x={tieAt.left} y={tieAt.top + 11}>{tieText}</text>}
      {labels.map(({ one, text, more, left, top, leader }) => <g key={text} className="label"><line x1={at(one)[0]} y1={at(one)[1]} x2={leader[0]} y2={leader[1]} stroke="var(--ink3)" />
        <text x={left} y={top + 10} className="strong">{text}</text><text x={left} y={top + 23}>{more}</text></g>)}
    </svg>
    {over && <p className="q num dot-name">{name(over)}: {time(over.step_ms)}, {gib(over.memory_bytes)} GiB</p>}
  </div>;
}
