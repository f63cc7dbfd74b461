// Steps of other settings, from here: they come one by one in a worker of their own after the answer, and stop when the state changes.
// `isNewest`: no newer state waits for its answer.
import { useEffect, useState } from "react";
import { isProblem, type Key, type StepAnswer } from "./answers";
import { ask } from "./ask";
import { slow, trial } from "./engine";
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

// Returns the order of trying: what changes most as a rule comes first.
const kOftenLarge = ["overlap.overlap_moe_expert_parallel_comm", "overlap.moe_shared_expert_overlap", "overlap.tp_comm_overlap", "overlap.fsdp_comm_overlap"];
const urgency = (one: Candidate, { values }: StepAnswer): number =>
  kOftenLarge.includes(one.key) ? -1 : one.kind === "switch" ? (values[one.key] === true ? 0 : 4) : one.kind === "precision" ? 1 : one.kind === "platform" ? 3 : 2;

export function useTrials(answer: StepAnswer | null, state: State | null, isNewest: boolean, keys: Key[] | undefined): Trials {
  const [trials, setTrials] = useState<Trials>(kNone);
  const of = state ? writeState(state) : "";
  useEffect(() => {
    if (!answer || !state || !keys || !isNewest) return;
    let isWanted = true;
    const put = (part: Partial<Trials>) => isWanted && setTrials((before) => ({ ...(before.of === of ? before : { ...kNone, of }), ...part }));
    const run = async () => {
      await new Promise((resolve) => setTimeout(resolve, kRestMs));
      if (!isWanted) return;
      void ask<Interval>(slow, "interval", state).then((one) => isProblem(one) || put({ interval: one }));
      void ask<{ machines: Machine[]; first: Trials["first"] }>(slow, "hardware", state).then((one) => isProblem(one) || put(one));
      const found = await ask<{ changes: Omit<Candidate, "id">[] }>(trial, "changes", state);
      if (!isWanted || isProblem(found)) return;
      const isIdle = (key: string) => answer.values[key] !== true && closedBy(answer, key) !== null;
      const candidates: Candidate[] = [
        ...switchesOf(answer, keys).filter(({ key }) => !isIdle(key)).map(({ key, isOn }) => ({
          id: key, change: `${key} ${isOn} -> ${!isOn}`, key, kind: "switch" as const, set: [`${key}=${!isOn}`] })),
        ...found.changes.filter((one) => one.kind !== "switch").map((one) => ({ ...one, id: one.change })),
        ...kPlatforms.filter((one) => one !== answer.platform).map((one) => ({
          id: one, change: platformName(one), key: "platform", kind: "platform" as const, set: [], platform: one })),
      ];
      candidates.sort((a, b) => urgency(a, answer) - urgency(b, answer));
      put({ candidates });
      const results = new Map<string, Trial>(), refused = new Map<string, string>();
      for (const one of candidates) {
        const got = await ask<Trial>(trial, "try", state, { with: one.set, with_platform: one.platform ?? "" });
        if (!isWanted) return;
        if (isProblem(got)) refused.set(one.id, got.error);
        else results.set(one.id, got);
        put({ results: new Map(results), refused: new Map(refused) });
      }
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
