// View Trace: a profile against the predicted step, as `stretto diagnose` compares them.
import { FileButton } from "./Drop";
import { change, digits, time } from "./format";
import { useStudio } from "./studio";
import { findingOf, type Gap, sentence, wordsOf } from "./trace/diagnosis";
import { Timelines } from "./trace/Timelines";
import { useDiagnosis } from "./trace/useDiagnosis";
import { Waterfall } from "./trace/Waterfall";

const kTries = 5;

export function TraceView() {
  const { address, copy, trace } = useStudio();
  const { answer, problem, isBusy } = useDiagnosis(trace, address.state);
  const name = address.state.source === "scenario" ? address.state.name : "scenario.toml";
  const command = <pre tabIndex={0}>{`stretto diagnose ${trace?.name ?? "rank-0.json.gz"} ${name} --html why.html`}</pre>;
  if (!trace) return <main className="page"><div className="prose">
    <h1>Why is my run slower than it could be?</h1>
    <p>Profile one step on one rank with the PyTorch profiler, then drop its JSON here, gzip too, or <FileButton />. The page compares it with the prediction, kernel by kernel; it sends the file nowhere.</p>
    <p>It says in one line what the run loses, draws the way from the predicted to the measured step, shows both timelines, and lists what to try first with what each brings. The command does so, too, for several ranks and for Nsight Systems:</p>
    {command}
    <p><button className="btn dark" onClick={() => copy("toml")}>Copy this scenario as TOML</button></p>
  </div></main>;
  if (problem) return <main className="page"><div className="prose" id="trace-problem" role="alert">
    <h1>This profile is not explained</h1>
    <p>{problem}</p>
    <p>Change the scenario in the sentence above until it is that of the run, or <FileButton />.</p>
  </div></main>;
  if (!answer) return <main className="page"><div className="prose" aria-busy="true"><h1>Reading {trace.name}</h1><p>{digits(trace.bytes.length / 1e6)} MB: matching its kernels to the operations of the predicted step.</p></div></main>;
  const { diagnosis: d } = answer, late = d.measured_ms - d.predicted_ms;
  const isLate = late > 0;
  return <main className={isBusy ? "page stale" : "page"} id="trace">
    <dl className="sides">
      <div><dt>measured</dt><dd id="trace-measured" data-ms={d.measured_ms} title={`${d.measured_ms} ms`}>{time(d.measured_ms)}</dd></div>
      <div><dt>predicted</dt><dd title={`${d.predicted_ms} ms`}>{time(d.predicted_ms)}</dd></div>
      {d.whole_step && <div><dt>{isLate ? "too slow by" : "faster by"}</dt><dd className={isLate ? "bad" : "good"}>{time(Math.abs(late))} <small>{change(100 * late / d.predicted_ms)}</small></dd></div>}
      <div className="say"><dt className="unseen">finding</dt><dd style={{ font: "inherit", letterSpacing: 0, whiteSpace: "normal" }}><b>{findingOf(answer)}</b> {sentence(d.gaps.find((gap) => gap.gap_ms > 0)?.advice ?? "")}</dd></div>
    </dl>
    {d.whole_step && <Waterfall answer={answer} />}
    <Timelines answer={answer} />
    <Tries gaps={d.gaps} />
    <p className="q">{Math.round(100 * d.matched)} % of the kernels' time matched; rank {d.rank} is explained. {d.notes.join(" ")}</p>
    <details><summary>What the command prints</summary><pre tabIndex={0}>{answer.text}</pre></details>
  </main>;
}

function Tries({ gaps }: { gaps: Gap[] }) {
  const shown = gaps.filter((gap) => gap.gap_ms > 0 && gap.advice).slice(0, kTries);
  if (shown.length === 0) return null;
  return <section className="blk" aria-label="what to try"><h2>What to try <span className="q">largest first</span></h2>
    <div className="scroll"><table className="tries"><tbody>{shown.map((gap) => <tr key={gap.cause + gap.name}><th scope="row" className="num good">{"\u2212"}{time(gap.gap_ms)}</th><td>{wordsOf(gap.name)}</td><td>{sentence(gap.advice)}</td></tr>)}</tbody></table></div></section>;
}
