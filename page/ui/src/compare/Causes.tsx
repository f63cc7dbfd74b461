// Where the difference to A comes from: computing, exposed communication, stalls, waiting; the parts add up to the difference.
import type { Simulated } from "../answers";
import { digits } from "../format";
import type { Variant } from "./variants";

const kCauses: { name: string; colour: string; of: (s: Simulated) => number }[] = [
  { name: "computing", colour: "--bwd", of: (s) => s.compute_ms }, { name: "exposed communication", colour: "--tp", of: (s) => s.exposed_ms.total },
  { name: "launch-order stalls", colour: "--stall", of: (s) => s.queue_wait_ms }, { name: "pipeline bubble", colour: "--line2", of: (s) => s.bubble_ms + s.core_wait_ms },
];

export function Causes({ variants }: { variants: Variant[] }) {
  const base = variants[0]!.answer?.simulate;
  const rows = base ? variants.slice(1).filter((one) => one.answer).map((one) => ({ one, parts: kCauses.map((cause) => cause.of(one.answer!.simulate) - cause.of(base)) })) : [];
  const most = Math.max(1e-9, ...rows.flatMap(({ parts }) => parts.map(Math.abs)));
  const low = Math.max(0, ...rows.flatMap(({ parts }) => parts.map((x) => -x))), high = Math.max(0, ...rows.flatMap(({ parts }) => parts));
  const whole = (low + high || 1) * 1.3, zero = (low + 0.15 * (low + high)) / whole;
  const unit = most >= 1000 ? "s" : "ms", scale = most >= 1000 ? 1000 : 1;
  const text = (ms: number) => `${ms > 0 ? "+" : "\u2212"}${digits(Math.abs(ms) / scale)}`;
  return <section className="blk" aria-label="where the difference comes from">
    <h2>Where the difference comes from <span className="q">{unit === "s" ? "seconds" : "milliseconds"} against A, by what the GPU does</span></h2>
    <div className="causes">{rows.map(({ one, parts }) => <div className="cause" key={one.letter}><b>{one.letter} <span>{one.name}</span></b>
      <div className="plot" role="img" aria-label={parts.map((x, i) => `${kCauses[i]!.name} ${text(x)} ${unit}`).join(", ")}><i className="origin" style={{ left: `${100 * zero}%` }} />
        {parts.map((x, i) => <div key={i} className="line"><span style={{ left: `${100 * (zero + Math.min(0, x) / whole)}%`, width: `max(1px, ${100 * Math.abs(x) / whole}%)`, background: `var(${kCauses[i]!.colour})` }} />
          {Math.abs(x) > 0.005 * most && <em className="num" style={x < 0 ? { right: `calc(${100 * (1 - zero - x / whole)}% + 5px)` } : { left: `calc(${100 * (zero + x / whole)}% + 5px)` }}>{text(x)}</em>}</div>)}
      </div></div>)}</div>
    <div className="leg">{kCauses.map(({ name, colour }) => <span key={name}><i style={{ background: `var(${colour})` }} />{name}</span>)}</div>
  </section>;
}
