// What would make the step faster: settings and machines by their effect from here, largest first.
import type { Simulated } from "./answers";
import { change, gibChange, time } from "./format";
import { lossesOf } from "./losses";
import { changeName, machineName } from "./names";
import { useStudio } from "./studio";
import { type Candidate, type Trial, type Trials, withCandidate } from "./trials";
import { useStill } from "./useStill";

const kSettings = 4, kMachines = 4, kLeastPct = 0.05;
const kLosses: Record<string, string> = { ep: "expert all-to-all", tp: "tensor-parallel communication", cp: "the context-parallel ring", pp: "pipeline messages",
  dp: "data-parallel communication", stall: "launch-order stalls", host: "a free core", bubble: "the pipeline bubble" };
const kNumbers: [RegExp, string][] = [[/gemm/, "Matrix multiplies"], [/attention/, "Attention kernels"], [/hbm|memory/, "Memory bandwidth"], [/nvlink/, "NVLink"],
  [/network|token_exchange/, "The network"], [/host|python|issue|launch/, "The CPU"]];

export interface Lever { candidate: Candidate; trial: Trial }

export function leversOf(trials: Trials): { settings: Lever[]; machines: Lever[] } {
  const all = trials.candidates.map((candidate) => ({ candidate, trial: trials.results.get(candidate.id) }))
    .filter((one): one is Lever => one.trial !== undefined && one.trial.change_pct < -kLeastPct && one.trial.memory_verdict === "fits")
    .sort((a, b) => a.trial.change_pct - b.trial.change_pct);
  const settings = all.filter(({ candidate }) => candidate.kind !== "platform");
  const precision = settings.find(({ candidate }) => candidate.kind === "precision");  // recipes exclude each other
  return { settings: settings.filter((one) => one.candidate.kind !== "precision" || one === precision),
           machines: all.filter(({ candidate }) => candidate.kind === "platform") };
}

export function Levers() {
  const { answer, address, trials, go, pin, isBusy } = useStudio();
  const [rested, holders] = useStill(trials);
  if (!answer) return <section className="blk" id="levers"><h2>What would make it faster</h2></section>;
  const { settings, machines } = leversOf(rested);
  const better = rested.machines.filter((one) => one.saved_pct > kLeastPct);
  const most = Math.max(1, ...settings.map((one) => -one.trial.change_pct), ...machines.map((one) => -one.trial.change_pct), ...better.map((one) => one.saved_pct));
  const rows = [
    ...machines.slice(0, 3).map((one) => ({ key: one.candidate.id, name: changeName(one.candidate.key, one.candidate.change), tag: "buy", pct: one.trial.change_pct, one })),
    ...better.map((one) => ({ key: one.change, name: machineName(one.change), tag: "", pct: -one.saved_pct, one: null })),
  ].sort((a, b) => a.pct - b.pct).slice(0, kMachines);
  const act = (one: Candidate, isPin: boolean) => {
    const next = withCandidate(address.state, answer, one);
    if (isPin) pin(next, changeName(one.key, one.change));
    else go(next, true);
  };
  return <section className={isBusy ? "blk stale" : "blk"} id="levers" aria-label="what would make it faster" {...holders}>
    <h2>What would make it faster</h2>
    <p className="say"><Finding s={answer.simulate} trials={trials} /></p>
    <div className="grp">Settings<span>step · memory</span></div>
    {settings.slice(0, kSettings).map(({ candidate, trial }) => <Row key={candidate.id} name={changeName(candidate.key, candidate.change)}
      tag={candidate.kind === "precision" ? "check loss" : ""} memory={gibChange(trial.memory_change_bytes)} pct={trial.change_pct} most={most}
      onClick={(isPin) => act(candidate, isPin)} />)}
    {settings.length === 0 && <p className="q none">{trials.isDone ? "No single setting makes it faster." : `${trials.results.size} of ${trials.candidates.length || "…"} settings tried`}</p>}
    <div className="grp">Machine<span>step</span></div>
    {rows.map((row) => <Row key={row.key} name={row.name} tag={row.tag} memory="" pct={row.pct} most={most}
      onClick={row.one ? (isPin) => act(row.one!.candidate, isPin) : undefined} />)}
  </section>;
}

function Row({ name, tag, memory, pct, most, onClick }:
    { name: string; tag: string; memory: string; pct: number; most: number; onClick?: (isPin: boolean) => void }) {
  const inside = <><span className="n" title={name}>{name}{tag && <em>{tag}</em>}</span><span className="m num">{memory}</span>
    <span className={pct < 0 ? "d num good" : "d num bad"}>{change(pct)}</span>
    <span className="b" aria-hidden="true"><i style={{ width: `${Math.max(1, Math.min(100, (100 * Math.abs(pct)) / most))}%` }} /></span></>;
  return onClick ? <button className="lv" onClick={(event) => onClick(event.shiftKey)} title="Click: use it. Shift-click: pin it to compare">{inside}</button>
    : <div className="lv">{inside}</div>;
}

// The one sentence: what limits, and by how much.
function Finding({ s, trials }: { s: Simulated; trials: Trials }) {
  const [loss] = lossesOf(s);
  const hidden = s.limits.length > 0;
  if (loss && loss.ms / s.step_ms > 0.12)
    return <>The step waits <b>{time(loss.ms)} for {kLosses[loss.id]}</b>, {Math.round(100 * loss.ms / s.step_ms)} % of its time.</>;
  if (trials.first) {
    const { number, pct_per_pct } = trials.first, name = kNumbers.find(([of]) => of.test(number))?.[1] ?? number;
    return <><b>{name}</b> limit this step: 1 % faster, and it is {Math.abs(pct_per_pct).toFixed(2)} % shorter.
      {loss && <> The largest loss is {kLosses[loss.id]}, {time(loss.ms)}.</>}</>;
  }
  return hidden ? <>{Math.round(100 * s.compute_ms / s.step_ms)} % of the step is computing.</> : null;
}
