// The five answers: step with its interval, throughput, MFU, memory, and the run over all tokens.
import { Button, Dialog, DialogTrigger, Popover } from "react-aria-components";
import type { StepAnswer } from "./answers";
import { NumberWord, readCount } from "./controls";
import { count, digits, gib, kGiB, scaled, timeOf } from "./format";
import { platformName, profileName } from "./names";
import { precisionOf } from "./precision";
import { Term } from "./Term";
import { useStudio } from "./studio";
import type { Interval } from "./trials";
import { useIsSmall } from "./useIsSmall";

const joined = ([value, unit]: [string, string]) => unit ? `${value} ${unit}` : value;

export function AnswerBand() {
  const { answer, isBusy, problem, address, answered, trials } = useStudio();
  if (!answer) return <Skeleton />;
  const isStale = isBusy || problem !== null || answered !== address.state;
  return <section className={isStale && (isBusy || problem) ? "answers stale" : "answers"} aria-label="answer" aria-busy={isBusy}>
    <StepCell answer={answer} interval={trials.interval} />
    <Throughput answer={answer} />
    <Mfu answer={answer} />
    <Memory answer={answer} />
    <Run answer={answer} />
  </section>;
}

const Skeleton = () => <section className="answers" aria-label="answer" aria-busy="true">
  {["Step", "Throughput", "MFU", "Memory", "Run"].map((name) => <div key={name}><h2>{name}</h2><span className="bone" /></div>)}
</section>;

// Returns the two ends of an interval in the unit of its middle.
function range(low_ms: number, high_ms: number, unit: string): string {
  const scale = unit === "s" ? 1000 : unit === "ms" ? 1 : 1e-3;
  return `${digits(low_ms / scale)} – ${digits(high_ms / scale)} ${unit}`;
}

function StepCell({ answer, interval }: { answer: StepAnswer; interval: Interval | null }) {
  const { step_ms } = answer.simulate;
  const [value, unit] = timeOf(step_ms);
  const low = interval?.step_low_ms, high = interval?.step_high_ms;
  const from = interval?.interval_from, known = from?.published;
  return <div><h2>Step</h2>
    <div className="v num"><output id="answer-step" data-ms={step_ms} title={`${step_ms} ms`}>{value}<span className="u">{unit}</span></output>
      {low && high ? <small>{range(low, high, unit)}</small> : null}</div>
    <div className="s">{low && high ? <Glyph low={low} high={high} at={step_ms} /> : null}
      <DialogTrigger>
        <Button className="term">{known ? `80 %; ${known.mean_abs_error_pct.toFixed(1)} % off in ${known.steps} published ${known.steps === 1 ? "step" : "steps"}` : interval ? "not held against published steps" : "how sure"}</Button>
        <Popover className="pop" placement="bottom start"><Dialog className="about" aria-label="How sure">
          <h2>How sure</h2>
          {known ? <p>{known.steps} published {known.steps === 1 ? "step" : "steps"} of {profileName(answer.profile)} on {platformName(answer.platform)} in this precision: predictions
            are {known.mean_abs_error_pct.toFixed(1)} % off on average.</p> : <p>No published step of this framework on this GPU is known to Stretto, so nothing says how far it is off.</p>}
          {from && from.causes.length > 0 && <><p>The interval holds four of five steps. It is as wide as these numbers make it:</p>
            <dl>{from.causes.slice(0, 5).map(({ cause, half_width_pct }) => <div key={cause}><dt className="mono">{cause}</dt><dd className="num">± {half_width_pct.toFixed(1)} %</dd></div>)}</dl></>}
          {answer.simulate.notes.map((note) => <p key={note} className="note">{note}</p>)}
        </Dialog></Popover>
      </DialogTrigger></div></div>;
}

function Glyph({ low, high, at }: { low: number; high: number; at: number }) {
  const first = at - (at - low) * 1.6, last = at + (high - at) * 1.6, x = (value: number) => 100 * (value - first) / (last - first);
  return <svg className="glyph" viewBox="0 0 100 14" preserveAspectRatio="none" aria-hidden="true">
    <line x1="0" x2="100" y1="7" y2="7" stroke="var(--line2)" />
    <rect x={x(low)} width={x(high) - x(low)} y="4.5" height="5" rx="2.5" fill="var(--bwd)" opacity=".55" />
    <circle cx={x(at)} cy="7" r="3.6" fill="var(--ink)" /></svg>;
}

function Throughput({ answer: { simulate } }: { answer: StepAnswer }) {
  const [value, unit] = scaled(simulate.tokens_per_s);
  return <div><h2>Throughput</h2><div className="v num" title={`${simulate.tokens_per_s} tokens/s`}>{value}<span className="u">{unit} tokens/s</span></div>
    <div className="s num">{count(simulate.tokens_per_s_per_gpu)} a GPU</div></div>;
}

function Mfu({ answer }: { answer: StepAnswer }) {
  const { mfu, tflops_per_gpu, peak_tflops_per_gpu } = answer.simulate;
  return <div><h2><Term id="mfu" name="MFU">MFU</Term></h2><div className="v num">{mfu === null ? "–" : (100 * mfu).toFixed(1)}<span className="u">%</span></div>
    <div className="s num">{count(tflops_per_gpu)} of {count(peak_tflops_per_gpu)} TFLOP/s, {precisionOf(answer).name}</div></div>;
}

function Memory({ answer: { simulate: s } }: { answer: StepAnswer }) {
  const over = s.predicted_peak_bytes - s.device_bytes;
  const [word, kind] = s.memory_verdict === "fits" ? ["fits", ""] : s.memory_verdict === "tight" ? ["tight", "warn"]
    : [over > 0 ? `${gib(over)} GiB too much` : "does not fit", "bad"];
  const share = Math.min(1, s.predicted_peak_bytes / Math.max(s.device_bytes, s.predicted_peak_bytes));
  const device = Math.min(1, s.device_bytes / Math.max(s.device_bytes, s.predicted_peak_bytes));
  return <div><h2>Memory, fullest GPU <span className={`chip ${kind}`}>{word}</span></h2>
    <div className="v num">{gib(s.predicted_peak_bytes)}<span className="u">of {(s.device_bytes / kGiB).toFixed(1)} GiB</span></div>
    <div className="s"><span className="gauge" aria-hidden="true"><i style={{ width: `${100 * Math.min(share, device)}%` }} />
      {share > device && <i className="over" style={{ width: `${100 * (share - device)}%` }} />}</span>
      <span className="num">{over > 0 ? `${gib(over)} GiB too much` : `${gib(-over)} GiB free`}, {s.fullest_stage}</span></div></div>;
}

function Run({ answer: { simulate: s } }: { answer: StepAnswer }) {
  const { address, change } = useStudio();
  const isSmall = useIsSmall();
  const hours = address.tokens / s.tokens_per_s / 3600, gpuHours = hours * s.ranks, cost = gpuHours * address.price;
  const [length, unit] = hours >= 48 ? [digits(hours / 24), "days"] : hours >= 1 ? [digits(hours), "hours"] : [digits(hours * 60), "minutes"];
  const tokens = <NumberWord className="field" label="tokens of the run" value={address.tokens} write={(x) => `${x >= 1e12 ? `${Number((x / 1e12).toPrecision(4))} T` : joined(scaled(x))} tokens`} read={(text) => readCount(text)}
    onChange={(tokens) => change({ tokens })} />;
  const price = <NumberWord className="field" label="dollars a GPU-hour" value={address.price} write={(x) => `$${x.toFixed(2)}`} read={(text) => Number(text.replace(/[$\s]/g, "")) || null}
    onChange={(price) => change({ price })} />;
  return <div><h2>Run of {tokens}{!isSmall && <> at {price} a GPU-hour</>}</h2>
    <div className="v num">{length}<span className="u">{unit}</span><small>${joined(scaled(cost)).replace(" B", " bn")}</small></div>
    <div className="s num">{joined(scaled(gpuHours))} GPU-hours{isSmall ? <> at {price}</> : ", failures not counted"}</div></div>;
}
