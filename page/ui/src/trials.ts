// Steps of other settings, from here: they come one by one from workers of their own after the answer, and stop when the state changes.
// `isNewest`: no newer state waits for its answer.
import { useEffect, useState } from "react";
import { isProblem, type Key, type StepAnswer } from "./answers";
import { ask } from "./ask";
import { type Engine, trying } from "./engine";
import { inOrder } from "./trialOrder";
import { platformName } from "./names";
import { type State, writeState } from "./state";

export interface Trial {
  step_ms: number; change_pct: number; memory_bytes: number; memory_change_bytes: number; device_bytes: number;
  memory_verdict: string; mfu: number | null;
}
export interface Candidate { id: string; change: string; key: string; kind: "layout" | "switch" | "precision" | "platform"; set: string[]; platform?: string }
export interface Machine { change: string; saved_pct: number; step_ms: number }
export interface Interval {
  step_low_ms: number | null; step_high_ms: number | null;
  interval_from: { causes: { cause: string; half_width_pct: number }[]; published: { steps: number; mean_abs_error_pct: number } | null } | null;
}

export interface Trials {
  of: string;                       // the state that they are of
  candidates: Candidate[];
  results: Map<string, Trial>;      // [id of a candidate]
  refused: Map<string, string>;     // [id] -> why
  machines: Machine[];
  first: { number: string; pct_per_pct: number } | null;
  interval: Interval | null;
  isDone: boolean;
}
const kNone: Trials = { of: "", candidates: [], results: new Map(), refused: new Map(), machines: [], first: null, interval: null, isDone: false };

const kRestMs = 250;  // a slider that moves takes no processor from the next answer
const kIntervalAt = 2, kMachinesAt = 8;  // places of the longer questions among the trials
const kAlone = 6;  // trials of the first worker before others join, because pictures are drawn meanwhile
let hasTried = false;
const kPlatforms = ["b300-sxm", "b200-sxm", "h200-sxm", "h100-sxm", "gb200-nvl72", "mi300x", "a100-80gb"];

// Returns the overlap switches of this answer: their keys, and whether they are on.
export const switchesOf = (answer: StepAnswer, keys: Key[]): { key: string; isOn: boolean }[] =>
  keys.filter((key) => key.section === "overlap" && key.kind === "boolean" && answer.values[key.key] !== undefined)
    .map((key) => ({ key: key.key, isOn: answer.values[key.key] === true }));

// Returns why a switch cannot act, "" where it can.
export function closedBy(answer: StepAnswer, key: string): { why: string; needs: string } | null {
  const name = key.slice(key.indexOf(".") + 1);
  const gate = answer.gates.find((one) => one.knob === name && !one.open);
  return gate ? { why: gate.why, needs: gate.needs } : null;
}

// Starts the first worker, which reads the platform while the page waits for its first answer.
export const warm = (state: State) => void ask(trying[0]!, "changes", state);

// Returns all single changes of an answer that are not what it has already, in the order of trying.
function candidatesOf(answer: StepAnswer, keys: Key[], changes: Omit<Candidate, "id">[]): Candidate[] {
  const isIdle = (key: string) => answer.values[key] !== true && closedBy(answer, key) !== null;
  const isNew = (text: string) => String(answer.values[text.slice(0, text.indexOf("="))]) !== text.slice(text.indexOf("=") + 1);
  return inOrder([
    ...switchesOf(answer, keys).filter(({ key }) => !isIdle(key)).map(({ key, isOn }) => ({
      id: key, change: `${key} ${isOn} -> ${!isOn}`, key, kind: "switch" as const, set: [`${key}=${!isOn}`] })),
    ...changes.filter((one) => one.kind !== "switch" && one.set.some(isNew)).map((one) => ({ ...one, id: one.change })),
    ...kPlatforms.filter((one) => one !== answer.platform).map((one) => ({
      id: one, change: platformName(one), key: "platform", kind: "platform" as const, set: [], platform: one })),
  ], answer.values);
}

export function useTrials(answer: StepAnswer | null, state: State | null, isNewest: boolean, keys: Key[] | undefined): Trials {
  const [trials, setTrials] = useState<Trials>(kNone);
  const of = state ? writeState(state) : "";
  useEffect(() => {
    if (!answer || !state || !keys || !isNewest) return;
    let isWanted = true;
    const put = (part: Partial<Trials>) => isWanted && setTrials((before) => ({ ...(before.of === of ? before : { ...kNone, of }), ...part }));
    const results = new Map<string, Trial>(), refused = new Map<string, string>();
    const attempt = (one: Candidate) => async (engine: Engine) => {
      const got = await ask<Trial>(engine, "try", state, { with: one.set, with_platform: one.platform ?? "" });
      if (isProblem(got)) refused.set(one.id, got.error);
      else results.set(one.id, got);
      put({ results: new Map(results), refused: new Map(refused) });
    };
    const further = (what: string) => async (engine: Engine) => {
      const got = await ask<Partial<Trials>>(engine, what, state);
      if (!isProblem(got)) put(what === "interval" ? { interval: got as Interval } : got);
    };
    const run = async () => {
      if (hasTried) await new Promise((resolve) => setTimeout(resolve, kRestMs));
      if (!isWanted) return;
      hasTried = true;
      const found = await ask<{ changes: Omit<Candidate, "id">[] }>(trying[0]!, "changes", state);
      if (!isWanted || isProblem(found)) return;
      const candidates = candidatesOf(answer, keys, found.changes), questions = candidates.map(attempt);
      put({ candidates });
      questions.splice(kIntervalAt, 0, further("interval"));
      questions.splice(kMachinesAt, 0, further("hardware"));
      let next = 0;
      const work = async (engine: Engine, most: number) => {
        while (isWanted && next < most) await questions[next++]!(engine);
      };
      await work(trying[0]!, Math.min(kAlone, questions.length));
      await Promise.all(trying.map((engine) => work(engine, questions.length)));
      put({ isDone: true });
    };
    void run();
    return () => { isWanted = false; };
  }, [of, answer, keys, isNewest]);
  return trials.of === of ? trials : kNone;
}

// Returns the state with the overrides of a candidate. Those that say what is so already are left out, and the number of GPUs
// stays as it is instead of a data-parallel size.
export function withCandidate(state: State, answer: StepAnswer, one: Candidate): State {
  if (one.platform) return { ...state, platform: one.platform };
  const set = { ...state.set };
  let gpus = state.gpus;
  for (const text of one.set) {
    const at = text.indexOf("="), key = text.slice(0, at), value = text.slice(at + 1);
    if (key === "parallel.data_parallel_size") {
      if (value !== String(answer.values[key])) { gpus = answer.simulate.ranks; delete set[key]; }
    } else if (String(answer.values[key]) !== value) set[key] = value;
    else if (key in set && key !== "training.global_batch_size") set[key] = value;
  }
  return { ...state, set, gpus };
}
