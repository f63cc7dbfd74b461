// From the predicted to the measured step: marks at both ends, because the axis does not begin at zero, and a bar a cause.
import { digits } from "../format";
import { type DiagnoseAnswer, partsOf } from "./diagnosis";

export function Waterfall({ answer }: { answer: DiagnoseAnswer }) {
  const { predicted_ms, measured_ms } = answer.diagnosis, parts = partsOf(answer);
  const [unit, scale] = Math.max(predicted_ms, measured_ms) >= 1000 ? ["s", 1000] : ["ms", 1];
  let at = predicted_ms;
  const rows = parts.map((part) => { const from = at; at += part.gap_ms; return { ...part, from, to: at }; });
  const all = [predicted_ms, measured_ms, ...rows.flatMap(({ from, to }) => [from, to])];
  const least = Math.min(...all), most = Math.max(...all), room = 0.12 * (most - least || predicted_ms);
  const x = (ms: number) => (100 * (ms - least + room)) / (most - least + 2 * room);
  const text = (ms: number) => `${ms > 0 ? "+" : "\u2212"}${digits(Math.abs(ms) / scale)} ${unit}`;
  const end = (name: string, ms: number) => <div className="fall end" key={name}><b>{name}</b><div><i style={{ left: `${x(ms)}%` }} /><em className="num" style={{ left: `calc(${x(ms)}% + 9px)` }}>{digits(ms / scale, 4)} {unit}</em></div></div>;
  return <section className="blk" aria-label="from predicted to measured">
    <h2>From predicted to measured <span className="q">what adds to the step, and what saves</span></h2>
    <div className="falls">{end("predicted", predicted_ms)}
      {rows.map(({ name, gap_ms, axis, from, to }) => <div className="fall" key={name}><b title={name}>{name}</b><div>
        <span style={{ left: `${x(Math.min(from, to))}%`, width: `max(2px, ${Math.abs(x(to) - x(from))}%)`, background: axis ? `var(--${axis})` : "var(--bwd)" }} />
        <em className="num" style={{ left: `calc(${x(Math.max(from, to))}% + 7px)` }}>{text(gap_ms)}</em></div></div>)}
      {end("measured", measured_ms)}</div>
  </section>;
}
