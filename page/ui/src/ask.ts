// Questions about a state.
import { type Engine, type File, quick } from "./engine";
import type { Problem } from "./answers";
import type { State } from "./state";

const started = new Map<string, File[]>();  // [source and name] -> files

interface Named { scenario: string; files: File[] }
const keyOf = (state: State) => state.source + "\n" + state.name;

// Returns the files that a state names, and the scenario as a request names it; null where they have yet to be made.
function knownFiles(state: State): Named | null {
  if (state.source === "scenario") return { scenario: state.name, files: [] };
  const files = started.get(keyOf(state));
  return files ? { scenario: "scenario.toml", files } : null;
}

async function filesOf(state: State): Promise<Named> {
  const key = keyOf(state);
  if (!started.has(key)) {
    if (state.source === "toml") {
      started.set(key, [{ name: "scenario.toml", text: state.name }]);
    } else {
      const config = state.source === "config" ? [{ name: "config.json", text: state.name }] : [];
      const start = JSON.parse(await quick.askText({ what: "start", model: config.length ? "config.json" : state.name }, config));
      if (start.error) throw new Error(start.error);
      started.set(key, [...config, { name: "scenario.toml", text: start.toml }]);
    }
  }
  return { scenario: "scenario.toml", files: started.get(key)! };
}

// Returns the answer to `what` about a state as text; `more` are further fields of the request, `further` files that it names.
export async function askText(engine: Engine, what: string, state: State, more: object = {}, further: File[] = []): Promise<string> {
  try {
    const { scenario, files } = knownFiles(state) ?? (await filesOf(state));
    const set = [...(state.profile ? [["profile", state.profile]] : []), ...Object.entries(state.set)].map(([key, value]) => `${key}=${value}`);
    return await engine.askText({ what, scenario, platform: state.platform, gpus: state.gpus, set, ...more }, [...files, ...further]);
  } catch (problem) {
    return JSON.stringify({ error: (problem as Error).message });
  }
}

export async function ask<T>(engine: Engine, what: string, state: State, more: object = {}, further: File[] = []): Promise<T | Problem> {
  return JSON.parse(await askText(engine, what, state, more, further));
}

// Returns the answer to a question that is about no state.
export async function askNow<T>(request: { what: string } & Record<string, unknown>): Promise<T | Problem> {
  return JSON.parse(await quick.askText(request));
}

// Calls `act` for the newest of all values that it is given while it is busy with an older one.
export function newestOnly<T>(act: (value: T, isNewest: () => boolean) => Promise<void>) {
  let busy = false, next: { value: T } | null = null;
  return async (value: T) => {
    next = { value };
    if (busy) return;
    busy = true;
    try {
      while (next !== null) {
        const now: { value: T } = next;
        next = null;
        await act(now.value, () => next === null);
      }
    } finally {
      busy = false;
    }
  };
}
