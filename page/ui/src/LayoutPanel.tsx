// The layout by hand: each size with a smaller and a larger legal value; the number of GPUs stays, data parallelism gives way.
import { Button, Tooltip, TooltipTrigger } from "react-aria-components";
import { Picker } from "./controls";
import { change, count, time } from "./format";
import { wordOf } from "./names";
import { useStudio } from "./studio";
import { type Candidate, withCandidate } from "./trials";

interface Size { key: string; name: string; short: string; colour: string }
const kSizes: Size[] = [
  { key: "parallel.tensor_model_parallel_size", name: "Tensor", short: "tp", colour: "--tp" },
  { key: "parallel.context_parallel_size", name: "Context", short: "cp", colour: "--cp" },
  { key: "parallel.pipeline_model_parallel_size", name: "Pipeline", short: "pp", colour: "--pp" },
  { key: "parallel.virtual_pipeline_model_parallel_size", name: "chunks a stage", short: "vp", colour: "" },
  { key: "parallel.expert_model_parallel_size", name: "Expert", short: "ep", colour: "--ep" },
  { key: "parallel.data_parallel_size", name: "Data", short: "dp", colour: "--dp" },
  { key: "training.micro_batch_size", name: "Micro-batch", short: "mbs", colour: "" },
];
const kWords = [
  { key: "training.recompute_granularity", name: "Recompute" }, { key: "parallel.data_parallel_sharding_strategy", name: "Optimizer" },
  { key: "parallel.pipeline_schedule", name: "Schedule" },
];

export function LayoutPanel() {
  const { answer, lists, show, setting } = useStudio();
  if (!answer) return null;
  const { layout: l, ranks } = answer.simulate, { values } = answer;
  const hasExperts = Number(values["model.num_moe_experts"] ?? 0) > 0;
  const sizes = kSizes.filter((one) => one.short !== "ep" || hasExperts);
  const product = l.tp * l.cp * l.pp * l.dp;
  return <section className="blk" id="layout" aria-label="layout">
    <h2>Layout <span className="r">by hand · <button className="link" onClick={() => show("search")}>search</button></span></h2>
    <div className="lay">
      {sizes.map((one) => <Stepper key={one.key} size={one} value={Number(values[one.key] ?? 1)} />)}
      {kWords.map(({ key, name }) => {
        const choices = lists?.keys.find((one) => one.key === key)?.choices ?? [];
        const value = String(values[key] ?? "");
        return <div className="k row" key={key}><span className="name"><i />{name}</span>
          <Picker className="sel" label={name} value={value} text={wordOf(value)} onChoose={(id) => setting(key, id)}
            choices={choices.map((word) => ({ id: word, name: wordOf(word), hint: wordOf(word) === word ? "" : word }))} /></div>;
      })}
    </div>
    <p className="sum"><span className="num">{l.tp} × {l.cp} × {l.pp} × {l.dp} = <b>{count(product)} GPUs</b></span>
      <span className={product === ranks ? "chip" : "chip bad"}>{product === ranks ? "✓ used" : `${count(ranks - product)} unused`}</span></p>
  </section>;
}

function Stepper({ size, value }: { size: Size; value: number }) {
  const { trials, setting, address } = useStudio();
  const isData = size.short === "dp";
  // The neighbours that may be legal come from the predictor; before they are known, and for data parallelism, factors of two.
  const neighbours = trials.candidates.filter((one) => one.key === size.key).map((one) => ({ one, to: Number(one.change.split(" -> ")[1]) }));
  const of = (up: boolean): { to: number; one?: Candidate } | null => {
    const found = neighbours.find(({ to }) => (up ? to > value : to < value));
    if (found) return trials.refused.has(found.one.id) ? null : found;
    if (neighbours.length > 0 && !isData) return null;
    return up ? { to: value * 2 } : value % 2 === 0 ? { to: value / 2 } : null;
  };
  const isSet = address.state.set[size.key] !== undefined;
  return <div className="k row">
    <span className="name"><i style={size.colour ? { background: `var(${size.colour})` } : undefined} />{size.name}<em>{size.short}</em></span>
    <span className="stepper" role="group" aria-label={`${size.name} ${size.short}`}>
      <Step label={`smaller ${size.short}`} sign="−" next={of(false)} onPress={(to) => setting(size.key, String(to))} />
      <output className={isSet ? "num set" : "num"} id={`size-${size.short}`}>{value}</output>
      <Step label={`larger ${size.short}`} sign="+" next={of(true)} onPress={(to) => setting(size.key, String(to))} />
    </span></div>;
}

function Step({ label, sign, next, onPress }: { label: string; sign: string; next: { to: number; one?: Candidate } | null; onPress: (to: number) => void }) {
  const { trials, answer, address, go } = useStudio();
  const got = next?.one && trials.results.get(next.one.id);
  return <TooltipTrigger delay={250} closeDelay={0}>
    <Button aria-label={`${label}${next ? `: ${next.to}` : ""}`} isDisabled={!next} onPress={() => {
      if (next?.one && answer) go(withCandidate(address.state, answer, next.one));
      else if (next) onPress(next.to);
    }}>{sign}</Button>
    <Tooltip className="tip" placement="top">{next ? got ? `${next.to}: ${time(got.step_ms)}, ${change(got.change_pct)}` : `${next.to}` : ""}</Tooltip>
  </TooltipTrigger>;
}
