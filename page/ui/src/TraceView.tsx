// View Trace: reading a profile needs the command, which this view names.
import { useStudio } from "./studio";

export function TraceView() {
  const { address, copy } = useStudio();
  const name = address.state.source === "scenario" ? address.state.name : "scenario.toml";
  return <main className="page"><div className="prose">
    <h1>Why is my run slower than it could be?</h1>
    <p>Profile one step on one rank with the PyTorch profiler, then compare it with the prediction, kernel by kernel. The command reads the trace; this page does not.</p>
    <pre tabIndex={0}>{`stretto diagnose rank-0.json.gz ${name} --html why.html`}</pre>
    <p>It says in one line what the run loses, draws the way from the predicted to the measured step, shows both timelines, and lists what to try first with what each brings.</p>
    <p><button className="btn dark" onClick={() => copy("toml")}>Copy this scenario as TOML</button></p>
  </div></main>;
}
