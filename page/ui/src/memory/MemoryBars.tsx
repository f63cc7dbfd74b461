// Memory of each stage's GPUs against the card, as nvidia-smi shows it at the peak of a step.
import { useMemo, useState } from "react";
import { gib, kGiB } from "../format";
import { useStudio } from "../studio";
import { Canvas, type Draw, font, hatch, paint } from "../timeline/Canvas";
import { type Shown, shownStages, type StageMemory } from "./stages";
import "./memory.css";

const kParts = ["m-par", "m-grad", "m-opt", "m-act", "m-fw"] as const;

export function MemoryBars() {
  const { answer, isBusy } = useStudio();
  const [isTable, setTable] = useState(false);
  const stages = answer?.stages_memory as StageMemory[] | undefined, device = answer?.simulate.device_bytes ?? 0;
  const shown = useMemo(() => (stages ? shownStages(stages) : []), [stages]);
  const draw = useMemo(() => drawMemory(shown, device), [shown, device]);
  if (!stages || !answer) return <section className="blk memory" id="memorybars"><h2>Memory by pipeline stage</h2></section>;
  const fullest = stages.reduce((most, one) => (one.bytes > most.bytes ? one : most), stages[0]);
  const over = fullest.bytes - device;
  const finding = `${gib(fullest.bytes)} of ${gib(device)} GiB on ${fullest.stage}, the fullest: ${over > 0 ? `${gib(over)} GiB too much` : `${gib(-over)} GiB free`}`;
  return <section className={`blk memory${isBusy ? " stale" : ""}`} id="memorybars">
    <h2>{stages.length > 1 ? "Memory by pipeline stage" : "Memory of a GPU"} <span className="q">as nvidia-smi shows it, at the peak</span>
      <span className="r">device {gib(device)} GiB <button className="link" aria-expanded={isTable} onClick={() => setTable(!isTable)}>{stages.length > 16 ? `all ${stages.length}` : "table"}</button></span></h2>
    <Canvas height={memoryHeight(shown.length)} draw={draw} aria-label={finding} />
    <div className="leg">{stages[0].parts.map(({ part }, i) => <span key={part}><i style={{ background: `var(--${kParts[i]})` }} />{part}</span>)}
      {over > 0 && <span><i className="over" />over the device</span>}</div>
    {isTable && <div className="mem-table" tabIndex={0} role="region" aria-label="Memory as a table">
      <table className="num"><thead><tr><th scope="col">stage</th>{stages[0].parts.map(({ part }) => <th key={part} scope="col">{part}</th>)}<th scope="col">GiB</th></tr></thead>
        <tbody>{stages.map((one) => <tr key={one.stage}><th scope="row">{one.stage}</th>{one.parts.map(({ part, bytes }) => <td key={part}>{(bytes / kGiB).toFixed(1)}</td>)}<td><b>{(one.bytes / kGiB).toFixed(1)}</b></td></tr>)}</tbody></table>
    </div>}
  </section>;
}

// Names of many rows are smaller, so that they do not meet.
const textPx = (count: number): number => (count > 8 ? 10 : 11.5);
const rowOf = (count: number): [number, number] => (count > 8 ? [8, 3] : count > 4 ? [9, 2.5] : [15, 5]);
const memoryHeight = (count: number): number => {
  const [height, gap] = rowOf(count);
  return count * (height + gap) + 26;
};

function drawMemory(rows: Shown[], device: number): Draw {
  return (g, width) => {
    const colours = paint(), [height, gap] = rowOf(rows.length), left = Math.max(52, ...rows.map((row) => { font(g, textPx(rows.length)); return g.measureText(row.name).width + 10; })), right = width - 58;
    const most = Math.max(device, ...rows.map((row) => row.bytes)) * (rows.some((row) => row.bytes > device) ? 1.02 : 1);
    const x = (bytes: number) => left + (bytes / most) * (right - left), bottom = 8 + rows.length * (height + gap);
    rows.forEach((row, i) => {
      const y = 8 + i * (height + gap);
      font(g, textPx(rows.length), row.isFullest ? 600 : 400);
      g.textAlign = "left";
      g.fillStyle = row.isFullest ? colours.ink : colours.ink2;
      g.fillText(row.name, 0, y + height / 2);
      g.fillStyle = colours.sunk;
      g.fillRect(left, y, x(device) - left, height);
      let at = 0;
      row.parts.forEach((bytes, part) => {
        g.fillStyle = colours[kParts[part]];
        g.fillRect(x(at), y, Math.max(0.5, x(at + bytes) - x(at) - 0.8), height);
        at += bytes;
      });
      if (row.bytes > device) {
        g.fillStyle = colours.bad;
        g.fillRect(x(device), y, x(row.bytes) - x(device), height);
        hatch(g, x(device), y, x(row.bytes) - x(device), height, colours.bg, 5, 1);
      }
      font(g, textPx(rows.length), 600);
      g.textAlign = "right";
      g.fillStyle = row.bytes > device ? colours.bad : colours.ink;
      g.fillText(gib(row.bytes), width - 26, y + height / 2);
      font(g, textPx(rows.length) - 0.5);
      g.fillStyle = colours.ink3;
      g.fillText("GiB", width, y + height / 2);
    });
    g.strokeStyle = colours.ink;
    g.lineWidth = 1.5;
    g.beginPath();
    g.moveTo(x(device), 2);
    g.lineTo(x(device), bottom);
    g.stroke();
    font(g, 10.5);
    g.fillStyle = colours.ink3;
    g.textAlign = "center";
    const step = most / kGiB > 400 ? 100 : most / kGiB > 160 ? 40 : most / kGiB > 60 ? 20 : 5;
    for (let tick = 0; tick * kGiB <= most + kGiB; tick += step) g.fillText(String(tick), Math.min(x(tick * kGiB), right), bottom + 9);
  };
}
