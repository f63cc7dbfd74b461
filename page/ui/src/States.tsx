// The first seconds, a predictor that does not answer, a state that is not possible, a step that does not fit.
import { useEffect, useState } from "react";
import type { StepAnswer } from "./answers";
import { divisorsNear } from "./divisors";
import { gib, time } from "./format";
import { changeName } from "./names";
import { useStudio } from "./studio";
import type { Lever } from "./Levers";
import { withCandidate } from "./trials";

const kSlow = 5000, kTooSlow = 20000;

// Says what is going on before the first answer: a line after 5 s, and what to do after 20 s.
export function Starting() {
  const { answer, problem, slowSince, retry, copyCommand } = useStudio();
  const [now, setNow] = useState(performance.now());
  useEffect(() => {
    const tick = setInterval(() => setNow(performance.now()), 1000);
    return () => clearInterval(tick);
  }, []);
  if (problem || slowSince === null) return null;
  const waited = now - slowSince;
  if (answer && waited < kSlow) return null;
  return <p className="starting" role="status">
    {waited < kSlow ? "Starting the predictor. It runs in this page; nothing leaves it."
      : waited < kTooSlow ? "Still computing. This browser is slow; it takes about 10 s."
      : <>The predictor has not answered. <button className="link" onClick={retry}>Try again</button> · <button className="link" onClick={copyCommand}>Copy the command instead</button></>}
  </p>;
}

const kExpected = /got (\S+)/;

// The setting that is not possible, why, and what goes instead. The last answer stays on the screen, grey.
export function NotPossible() {
  const { problem, address, answered, go, undo, retry, lists } = useStudio();
  if (!problem) return null;
  const isStopped = problem.startsWith("the predictor");
  const key = Object.keys(address.state.set).find((one) => problem.includes(one) || problem.includes(one.slice(one.indexOf(".") + 1)));
  const withoutIt = () => {
    const set = { ...address.state.set };
    delete set[key!];
    go({ ...address.state, set });
  };
  const listed = key ? lists?.keys.find((one) => one.key === key)?.choices ?? [] : [];
  const words = [...divisorsNear(problem), ...listed.filter((word) => word && !kExpected.exec(problem)?.[1]?.includes(word)).slice(0, 3)];
  return <div className="problem" role="alert" id="problem"><p><b>{problem}</b></p>
    <p className="acts">
      {key && !isStopped && <button className="btn dark" onClick={withoutIt}>Leave {key.slice(key.indexOf(".") + 1)} as it was</button>}
      {key && words.map((word) => <button key={word} className="btn" onClick={() => go({ ...address.state, set: { ...address.state.set, [key]: word } })}>Use {word}</button>)}
      {answered && <button className="btn" onClick={() => undo(answered)}>Undo</button>}
      {isStopped && <button className="btn dark" onClick={retry}>Try again</button>}
    </p></div>;
}

// What makes a step fit that does not, with the step and the memory of each.
export function DoesNotFit({ answer }: { answer: StepAnswer }) {
  const { trials, go, address } = useStudio();
  const s = answer.simulate;
  if (s.memory_verdict === "fits") return null;
  const over = s.predicted_peak_bytes - s.device_bytes;
  const fitting: Lever[] = trials.candidates.map((candidate) => ({ candidate, trial: trials.results.get(candidate.id)! }))
    .filter(({ candidate, trial }) => trial && candidate.kind !== "platform" && trial.memory_verdict === "fits")
    .sort((a, b) => a.trial.step_ms - b.trial.step_ms).slice(0, 3);
  return <section className="blk unfit" aria-label="how it would fit">
    <h2>{over > 0 ? `${gib(over)} GiB too much for one GPU` : "Tight: the free memory is below what the prediction may be off"} <span className="q">what makes it fit</span></h2>
    {fitting.map(({ candidate, trial }) => <button className="lv" key={candidate.id} onClick={() => go(withCandidate(address.state, answer, candidate), true)}>
      <span className="n">{changeName(candidate.key, candidate.change)}</span><span className="m num">{gib(trial.memory_bytes)} GiB</span><span className="d num">{time(trial.step_ms)}</span></button>)}
    {fitting.length === 0 && <p className="q">{trials.isDone ? "No single setting makes it fit; Search tries all layouts." : "Trying settings …"}</p>}
  </section>;
}
