// View Search: every legal layout on the GPUs of the sentence; the best of them simulated, as `stretto plan` does it.
import { useEffect, useState } from "react";
import { count, gib, kGiB, percent, time } from "../format";
import { sizeName, wordOf } from "../names";
import { useStudio } from "../studio";
import { type Candidate, withCandidate } from "../trials";
import { useIsSmall } from "../useIsSmall";
import { fitting, kTiePct, type Point, sizeOf } from "./points";
import { Scatter } from "./Scatter";
import { useSearch } from "./useSearch";

const kColumns: [string, string][] = [["tp", "parallel.tensor_model_parallel_size"], ["pp", "parallel.pipeline_model_parallel_size"], ["vp", "parallel.virtual_pipeline_model_parallel_size"],
  ["cp", "parallel.context_parallel_size"], ["mbs", "training.micro_batch_size"], ["dp", "parallel.data_parallel_size"]];
const kShown = 10, kMostChips = 12;

export function SearchView() {
  const { address, answer, go, show, pin, change } = useStudio();
  const { found, isRunning, problem, seconds, start, stop } = useSearch();
  const [off, setOff] = useState<Record<string, string[]>>({});  // values that are not searched
  const isSmall = useIsSmall();
  const gpus = address.state.gpus || answer?.simulate.ranks || 0;
  const state = { ...address.state, gpus };
  const isReady = answer !== null;
  const begin = () => void start(state, found.axes.length && Object.values(off).some((one) => one.length)
    ? found.axes.filter(({ key }) => key !== "gpus").map(({ key, values }) => `${key}=${values.filter((one) => !off[key]?.includes(one)).join(",")}`) : null);
  useEffect(() => { if (isReady && !isRunning && found.combinations === 0) begin(); }, [isReady]);
  const values = answer?.values ?? {};
  const size = (one: Point, key: string) => sizeOf(one, key, Number(values[key] ?? 1));
  const name = (one: Point) => kColumns.filter(([short, key]) => short !== "mbs" && (short !== "vp" && short !== "cp" || size(one, key) > 1)).map(([short, key]) => `${short} ${size(one, key)}`).join(", ");
  const candidateOf = (one: Point): Candidate => ({ id: "", change: "", key: "", kind: "layout", set: one.set });
  const stateOf = (one: Point) => answer ? withCandidate(state, answer, candidateOf(one)) : state;
  const open = (one: Point, isPin: boolean) => {
    if (isPin) return pin(stateOf(one), name(one));
    go(stateOf(one));
    show("step");
  };
  const best = fitting(found.points), ties = best.filter((one) => one.step_ms <= best[0]!.step_ms * (1 + kTiePct / 100)).length;
  return <main className="step search" aria-busy={isRunning}>
    <div className="col left">
      <section className="blk"><h2>Search over</h2>
        {found.axes.filter(({ key, values }) => key !== "gpus" && values.length > 1).map(({ key, values }) => <Chips key={key} name={sizeName(key)} values={values} off={off[key] ?? []}
          onChange={(list) => setOff({ ...off, [key]: list })} />)}
        <p className="acts"><button className={isRunning ? "btn" : "btn dark"} id="search-start" onClick={isRunning ? stop : begin}>{isRunning ? "Stop" : "Search again"}</button></p></section>
      <section className="blk" aria-live="off"><h2><span className="num">{count(found.counts.slower + found.counts.does_not_fit + found.counts.refused + found.counts.predicted)} layouts</span><span className="r num">{seconds.toFixed(0)} s</span></h2>
        <Progress found={found} isRunning={isRunning} /></section>
    </div>
    <div className="col centre"><section className="blk"><h2>Step against memory <span className="q">each dot a layout; fast and small is bottom left</span></h2>
      {problem && <p className="problem" role="alert">{problem}</p>}
      <Scatter points={found.points} name={name} onOpen={open} isSmall={isSmall} />
      <div className="leg"><span><i className="round" style={{ background: "var(--ink)" }} />simulated, on the Pareto front</span><span><i className="round" style={{ background: "var(--bwd)" }} />simulated</span>
        {found.counts.slower > 0 && <span className="q">{count(found.counts.slower)} others cannot be faster: a lower bound of their step is above these</span>}</div></section></div>
    <div className="col right"><section className="blk"><h2>Best layouts <span className="q">{ties > 1 ? `${ties} tie` : ""}</span></h2>
      <div className="scroll"><table className="best num"><thead><tr>{kColumns.map(([short]) => <th key={short} scope="col">{short}</th>)}<th scope="col">step</th><th scope="col">GiB</th></tr></thead>
        <tbody>{best.slice(0, kShown).map((one, i) => <tr key={i} className={i ? "" : "on"}>{kColumns.map(([short, key], c) => c === 0
          ? <td key={short}><button className="link" aria-label={`open ${name(one)}`} onClick={(event) => open(one, event.shiftKey)}>{size(one, key)}</button></td> : <td key={short}>{size(one, key)}</td>)}
          <td>{time(one.step_ms, 4)}</td><td>{gib(one.memory_bytes)}</td></tr>)}</tbody></table></div>
      {best.length > 1 && <p className="say">{ties > 1 ? <>The first {ties} are <b>within {kTiePct} %</b>: predictions cannot rank them. </> : null}<Smaller best={best} ties={ties} /></p>}
      {best.length > 0 && <p className="acts"><button className="btn dark" onClick={() => open(best[0]!, false)}>Open the fastest</button>
        <button className="btn" onClick={() => { change({ pins: best.slice(0, 4).map((one) => ({ ...stateOf(one), label: name(one) })) }); show("compare"); }}>Pin 4 to compare</button></p>}
      {!isRunning && best.length === 0 && found.decided > 0 && <p className="say">No layout fits into {answer ? (answer.simulate.device_bytes / kGiB).toFixed(1) : ""} GiB. More GPUs, or recomputation, would help.</p>}
    </section></div>
  </main>;
}

// Says which of the tied layouts needs clearly less memory.
function Smaller({ best, ties }: { best: Point[]; ties: number }) {
  const tied = best.slice(0, ties), least = tied.reduce((a, b) => (b.memory_bytes < a.memory_bytes ? b : a), tied[0]!);
  const less = tied[0]!.memory_bytes - least.memory_bytes;
  return less > kGiB ? <>One of them needs <b>{gib(less)} GiB less</b> than the first and is {percent(least.step_ms / tied[0]!.step_ms - 1)} slower.</> : null;
}

function Chips({ name, values, off, onChange }: { name: string; values: string[]; off: string[]; onChange: (off: string[]) => void }) {
  return <div className="searched" role="group" aria-label={name}><span>{name}</span><div>{values.slice(0, kMostChips).map((value) => {
    const isOn = !off.includes(value);
    return <button key={value} className={isOn ? "chip-value on" : "chip-value"} aria-pressed={isOn} onClick={() => onChange(isOn ? (off.length + 1 < values.length ? [...off, value] : off) : off.filter((one) => one !== value))}>{wordOf(value)}</button>;
  })}</div></div>;
}

function Progress({ found, isRunning }: { found: ReturnType<typeof useSearch>["found"]; isRunning: boolean }) {
  const { slower, does_not_fit, refused, predicted } = found.counts;
  const rows = [["g1", slower, "cannot win: a lower bound is above the best"], ["badbg", does_not_fit, "do not fit"], ["line2", refused, "not possible"], ["ink", predicted, "simulated, all events"]] as const;
  const whole = Math.max(1, slower + does_not_fit + refused + predicted);
  return <>
    <div className="prog" role="progressbar" aria-label="search" aria-valuenow={found.decided} aria-valuemax={found.combinations || 1}>
      {rows.map(([colour, n]) => <i key={colour} style={{ width: `${100 * n / whole}%`, background: `var(--${colour})` }} />)}</div>
    {isRunning && <p className="q num">{found.combinations ? `${Math.round(100 * found.decided / found.combinations)} % of all combinations decided` : "starting"}</p>}
    <dl className="counts num">{rows.map(([colour, n, what]) => <div key={colour}><dt>{count(n)}</dt><dd>{what}{what === "not possible" && found.reasons.length > 0 && <details><summary>why</summary>
      {found.reasons.map(({ reason, layouts }) => <p key={reason}>{count(layouts)}: {reason}</p>)}</details>}</dd></div>)}</dl>
  </>;
}
