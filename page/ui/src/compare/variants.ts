// The variants of Compare: the current state as A, and the pins.
import { useEffect, useState } from "react";
import { isProblem, type StepAnswer } from "../answers";
import { ask } from "../ask";
import { slow } from "../engine";
import { modelName, platformShort, sizeName, switchName, wordOf } from "../names";
import { kMostPins, type State, writeState } from "../state";
import { type StepStrip, stripOf } from "../timeline/strip";

export interface Variant { letter: string; state: State; name: string; answer: StepAnswer | null; strip: StepStrip | null; problem: string | null }

const valueText = (value: unknown): string => (value === true || value === "true" ? "on" : value === false || value === "false" ? "off" : wordOf(String(value)));

// Returns the name of a pin: its own, or what differs from the first. `values`: of the pin's answer, for what it leaves as it comes.
export function nameOf(state: State, base: State, values: Record<string, unknown> = {}): string {
  if (state.label) return state.label;
  const parts: string[] = [];
  if (state.source !== base.source || state.name !== base.name) parts.push(state.source === "scenario" || state.source === "preset" ? modelName(state.name) : "a dropped file");
  if (state.platform !== base.platform) parts.push(platformShort(state.platform) || "another GPU");
  if (state.profile !== base.profile) parts.push(state.profile || "another framework");
  if (state.gpus !== base.gpus) parts.push(`${state.gpus || "as many"} GPUs`);
  const precisions = ["training.fp8_format", "training.fp8_recipe", "training.fp4_format"];
  if (precisions.some((key) => state.set[key] !== base.set[key]))
    parts.push(state.set["training.fp4_format"] === "e2m1" ? "nvfp4" : state.set["training.fp8_format"] === "none" ? "bf16" : `fp8 ${state.set["training.fp8_recipe"] ?? ""} GEMMs`);
  for (const key of new Set([...Object.keys(state.set), ...Object.keys(base.set)]))
    if (state.set[key] !== base.set[key] && !precisions.includes(key)) parts.push(`${key.startsWith("overlap.") ? switchName(key) : sizeName(key)} ${valueText(state.set[key] ?? values[key] ?? "as it comes")}`);
  return parts.length ? parts.slice(0, 2).join(", ") : "The same settings";
}

// Settings that differ between the answers: [key, a text for each].
export function differencesOf(answers: (StepAnswer | null)[]): [string, string[]][] {
  const known = answers.filter((one) => one !== null);
  const keys = [...new Set(known.flatMap((one) => Object.keys(one.values)))];
  const rows: [string, string[]][] = [["GPU", answers.map((one) => (one ? platformShort(one.platform) : "–"))], ["framework", answers.map((one) => one?.profile ?? "–")]];
  for (const key of keys) rows.push([key, answers.map((one) => (one?.values[key] === undefined ? "–" : valueText(one.values[key])))]);
  return rows.filter(([, texts]) => new Set(texts.filter((_, i) => answers[i])).size > 1);
}

// Returns what a request says of a state besides `what`, for `ratio`.
const requestOf = (state: State) => ({ scenario: state.name, platform: state.platform, gpus: state.gpus,
  set: [...(state.profile ? [`profile=${state.profile}`] : []), ...Object.entries(state.set).map(([key, value]) => `${key}=${value}`)] });

// What a step saves of the time that a token takes in the first one, in percent, with its 80 % interval.
export interface Saving { saved_pct: number; saved_low_pct: number; saved_high_pct: number }

// Returns that of each state, as `stretto simulate A B` has it; null where there is none.
export function useSavings(states: State[], isReady: boolean): (Saving | null)[] {
  const [known, setKnown] = useState(new Map<string, Saving | null>());
  const [base, ...others] = states, keys = others.map((one) => `${writeState(base!)}\n${writeState(one)}`);
  useEffect(() => {
    if (!isReady) return;
    let isWanted = true;
    void (async () => {
      for (const [i, one] of others.entries()) {
        if (!isWanted || known.has(keys[i]!) || base!.source !== "scenario" || one.source !== "scenario") continue;
        const got = await ask<Saving>(slow, "ratio", base!, { other: requestOf(one) });
        if (isWanted) setKnown((before) => new Map(before).set(keys[i]!, isProblem(got) ? null : got));
      }
    })();
    return () => { isWanted = false; };
  }, [keys.join("\n\n"), isReady]);
  return [null, ...keys.map((key) => known.get(key) ?? null)];
}

export function useVariants(state: State, answer: StepAnswer | null, answered: State | null, pins: State[]): Variant[] {
  const [answers, setAnswers] = useState(new Map<string, StepAnswer | string>());
  const [strips, setStrips] = useState(new Map<string, StepStrip>());
  const all = [state, ...pins.slice(0, kMostPins)];
  const texts = all.map(writeState);
  useEffect(() => {
    let isWanted = true;
    void (async () => {
      for (const [i, one] of all.entries()) {
        if (!isWanted) return;
        const key = texts[i]!;
        if (i > 0 && !answers.has(key)) {
          const got = await ask<StepAnswer>(slow, "step", one);
          if (!isWanted) return;
          setAnswers((before) => new Map(before).set(key, isProblem(got) ? got.error : got));
          if (isProblem(got)) continue;
        }
        const strip = await stripOf(one);
        if (isWanted && !("error" in strip)) setStrips((before) => new Map(before).set(key, strip));
      }
    })();
    return () => { isWanted = false; };
  }, [texts.join("\n")]);
  return all.map((one, i) => {
    const got = i === 0 ? (answered && writeState(answered) === texts[0] ? answer : null) : answers.get(texts[i]!) ?? null;
    return { letter: "ABCDE"[i]!, state: one, name: i === 0 ? one.label ?? "As it is" : nameOf(one, state, typeof got === "string" ? {} : got?.values), answer: typeof got === "string" ? null : got,
             strip: strips.get(texts[i]!) ?? null, problem: typeof got === "string" ? got : null };
  });
}
