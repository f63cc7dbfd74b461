// What the predictor says of the rows of a page: each is a step, its strip, and where a picture needs them its operations.
import { useEffect, useState } from "react";
import type { Simulated, StepAnswer } from "../answers";
import { ask } from "../ask";
import { pictures } from "../timeline/engine";
import { kStart, type State, writeState } from "../state";
import { type Row as StripRow, rowsOf, type StepStrip, stripOf } from "../timeline/strip";
import { readWindow, type Window, type WindowAnswer } from "../timeline/window";

export interface Result { simulated: Simulated; strip: StepStrip; rows: StripRow[]; window: Window | null }
export type Answer = Result | { error: string };

const kMost = 8000;  // operations; the steps of the pages have at most a thousand

const known = new Map<string, Promise<Answer>>();
export function resultOf(state: State, wantsWindow: boolean): Promise<Answer> {
  const key = `${wantsWindow} ${writeState(state)}`;
  const found = known.get(key);
  if (found) return found;
  const answer = (async (): Promise<Answer> => {
    const step = await ask<StepAnswer>(pictures, "step", state);
    if ("error" in step) return step;
    const strip = await stripOf(state);
    if ("error" in strip) return strip;
    const window = wantsWindow ? await ask<WindowAnswer>(pictures, "window", state, { gpu: 0, from: -1e12, to: strip.step_ps, most: kMost }) : null;
    if (window && "error" in window) return window;
    return { simulated: step.simulate, strip, rows: rowsOf(strip), window: window && readWindow(window) };
  })();
  known.set(key, answer);
  void answer.then((one) => { if ("error" in one) known.delete(key); });
  return answer;
}

// Returns the answers of some states as they come; null for those that have not.
export function useResults(states: { state: State; wantsWindow: boolean }[]): (Answer | null)[] {
  const key = states.map(({ state }) => writeState(state)).join("\n");
  const [results, setResults] = useState<{ key: string; answers: (Answer | null)[] }>({ key: "", answers: [] });
  useEffect(() => {
    let isWanted = true;
    setResults({ key, answers: states.map(() => null) });
    void (async () => {
      for (const [i, { state, wantsWindow }] of states.entries()) {
        const answer = await resultOf(state, wantsWindow);
        if (!isWanted) return;
        setResults((before) => ({ key, answers: (before.key === key ? before.answers : states.map(() => null)).map((one, j) => (j === i ? answer : one)) }));
      }
    })();
    return () => { isWanted = false; };
  }, [key]);
  return results.key === key ? results.answers : states.map(() => null);
}

export const stateOf = (name: string, set: Record<string, string>, platform = "", profile = ""): State =>
  ({ ...kStart, name, platform, profile, set });

// Returns the start of the first operation with this name at or after a time, or the end of the last one before another.
export const startOf = (window: Window, name: string, after = -Infinity): number =>
  window.compute.find((op) => op.kind.name.startsWith(name) && op.start >= after)?.start ?? 0;
export const endOf = (window: Window, name: string): number =>
  window.compute.filter((op) => op.kind.name.startsWith(name)).at(-1)?.end ?? 0;
