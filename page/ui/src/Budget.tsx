// One step as one bar: computing in grey, then all that is lost in its colours, which a wedge magnifies.
import type { Simulated } from "./answers";
import { textWidth, useWidth } from "./controls";
import { digits, time } from "./format";
import { type Loss, lossesOf } from "./losses";
import { type Phases, usePhases } from "./phases";
import { useStudio } from "./studio";
import { Term } from "./Term";
import { useIsSmall } from "./useIsSmall";

const shareOf = (ms: number, step_ms: number) => `${(100 * ms / step_ms).toFixed(ms / step_ms < 0.001 ? 2 : 1)} %`;

export function Budget() {
  const { answer, isBusy } = useStudio();
  const phases = usePhases();
  const [ref, width] = useWidth<HTMLDivElement>();
  const isSmall = useIsSmall();
  if (!answer) return null;
  const s = answer.simulate, losses = lossesOf(s);
  const lost = losses.reduce((sum, one) => sum + one.ms, 0);
  const computing = Math.round(100 * s.compute_ms / s.step_ms);
  return <section className={isBusy ? "blk stale" : "blk"} id="budget" aria-label="time budget">
    <h2>Where {time(s.step_ms)} go <span className="q">{computing} % computing, {100 - computing} % lost</span><span className="r wide">mean over GPUs</span></h2>
    <div ref={ref} className="budget">{width > 0 && <Bars s={s} phases={phases} losses={losses} lost={lost} width={width} isSmall={isSmall} />}</div>
  </section>;
}

interface Part { id: string; name: string; ms: number; text: string }

// Returns the computing parts; where phases are not known yet, one part.
function computingParts(s: Simulated, phases: Phases | null): Part[] {
  if (!phases) return [{ id: "bwd", name: "computing", ms: s.compute_ms, text: "on-bwd" }];
  return [{ id: "fwd", name: "forward", ms: phases.forward_ms, text: "on-fwd" }, { id: "bwd", name: "backward", ms: phases.backward_ms, text: "on-bwd" },
          { id: "wgrad", name: "weight gradients", ms: phases.wgrad_ms, text: "on-wgrad" }, { id: "opt", name: "optimizer, other", ms: phases.other_ms, text: "bg" }]
    .filter((one) => one.ms > 0);
}

function Bars({ s, phases, losses, lost, width, isSmall }:
    { s: Simulated; phases: Phases | null; losses: Loss[]; lost: number; width: number; isSmall: boolean }) {
  const x = (ms: number) => (width * ms) / s.step_ms;
  const { select } = useStudio();
  const hasWedge = lost / s.step_ms <= 0.6 && losses.length > 0;
  let at = 0;
  const left = x(s.compute_ms);
  const labels = labelsOf(losses, hasWedge ? lost : s.step_ms, hasWedge ? 0 : left, width, s.step_ms);
  const small = isSmall ? labels.rest.filter((one) => one.ms / s.step_ms < 0.01) : [];
  const listed = labels.rest.filter((one) => !small.includes(one));
  const box = (one: { id: string }) => ({ background: one.id === "bubble" ? undefined : `var(--${one.id})` });
  return <>
    <div className="bar" role="img" aria-label={[...computingParts(s, phases), ...losses].map((one) => `${one.name} ${shareOf(one.ms, s.step_ms)}`).join(", ")}>
      {computingParts(s, phases).map((one) => {
        const from = at;
        at += one.ms;
        const w = x(one.ms), share = `${(100 * one.ms / s.step_ms).toFixed(0)} %`;
        const text = w > textWidth(`${one.name}  ${share}`) + 16 ? `${one.name}  ${share}` : w > 40 ? share : "";
        return <span key={one.id} style={{ left: x(from), width: Math.max(0.5, w - 1), background: `var(--${one.id})`, color: `var(--${one.text})` }}>{text}</span>;
      })}
      {losses.map((one) => {
        const from = at;
        at += one.ms;
        return <span key={one.id} className={one.id === "bubble" ? "waits" : ""} style={{ left: x(from), width: Math.max(0.6, x(one.ms) - 0.4), ...box(one) }} />;
      })}
    </div>
    {hasWedge && <>
      <svg className="wedge" width={width} height={20} aria-hidden="true">
        <polygon points={`${left},1 ${width},1 ${width},19 0,19`} fill="var(--sunk)" />
        <path d={`M${left},1 L0,19 M${width},1 L${width},19`} stroke="var(--line2)" fill="none" />
        <text x={Math.min((left + width) / 2, width - 44)} y="13" textAnchor="middle">lost: {time(lost)}</text>
      </svg>
      <div className="bar lens" aria-hidden="true">
        {labels.placed.map((one) => <span key={one.id} className={one.id === "bubble" ? "waits framed" : ""} onClick={() => select({ stage: 0, gpu: 0 })}
          style={{ left: one.x, width: Math.max(1, one.w - 1), ...box(one) }} title={`${one.name}: ${time(one.ms)}`} />)}
      </div>
    </>}
    <div className="labels">{labels.placed.filter((one) => one.isLabelled).map((one) =>
      <div key={one.id} style={{ left: one.x }}><b><Term id={one.id} name={one.name} here={`${time(one.ms)} of ${time(s.step_ms)}`}>{one.name}</Term></b><span className="num">{time(one.ms)} · {shareOf(one.ms, s.step_ms)}</span></div>)}</div>
    {(listed.length > 0 || small.length > 0) && <div className="leg num rest">
      {listed.map((one) => <span key={one.id}><i className={one.id === "bubble" ? "hatch" : ""} style={box(one)} />{one.name} {time(one.ms)} · {shareOf(one.ms, s.step_ms)}</span>)}
      {small.length > 0 && <span className="q">{small.length} more, {(small.reduce((sum, one) => sum + one.ms, 0) / s.step_ms * 100).toFixed(1)} %</span>}
    </div>}
  </>;
}

// Returns the losses with their places in the lens; a label that would touch its neighbour or the edge is not placed.
export function labelsOf(losses: Loss[], whole_ms: number, start: number, width: number, step_ms: number) {
  let x = start, free = -99;
  const placed = losses.map((one) => {
    const w = ((width - start) * one.ms) / (start ? whole_ms - (start / width) * whole_ms : whole_ms);
    const text = Math.max(textWidth(one.name), textWidth(`${digits(one.ms)} ms · ${shareOf(one.ms, step_ms)}`, "400 11.5px Inter V, system-ui, sans-serif") + 6);
    const isLabelled = x >= free && x + text <= width;
    if (isLabelled) free = x + text + 10;
    const result = { ...one, x, w, isLabelled };
    x += w;
    return result;
  });
  return { placed, rest: placed.filter((one) => !one.isLabelled) };
}
