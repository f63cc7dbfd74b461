// Texts that people take with them.
import { isProblem, type StepAnswer, type Texts } from "./answers";
import { ask } from "./ask";
import { slow } from "./engine";
import { digits, gib, time } from "./format";
import { modelName, platformShort } from "./names";
import type { State } from "./state";
import type { Interval } from "./trials";

export type Form = "command" | "toml" | "megatron" | "json" | "sentence" | "link";

// Returns the answer in one sentence.
export function sentenceOf(state: State, { simulate: s, platform }: StepAnswer, interval: Interval | null): string {
  const range = interval?.step_low_ms && interval.step_high_ms ? ` (${digits(interval.step_low_ms / 1000)}–${digits(interval.step_high_ms / 1000)} s)` : "";
  const model = state.source === "scenario" || state.source === "preset" ? modelName(state.name) : "This model";
  return `${model} on ${s.ranks} ${platformShort(platform)}: ${time(s.step_ms)} a step${range}` +
    `${s.mfu === null ? "" : `, MFU ${(100 * s.mfu).toFixed(1)} %`}, ${gib(s.predicted_peak_bytes)} of ${(s.device_bytes / 2 ** 30).toFixed(1)} GiB; predicted by Stretto`;
}

// Returns a state in one of the forms. Throws Error where it has none.
export async function textOf(form: Form, state: State, answer: StepAnswer | null, interval: Interval | null): Promise<string> {
  if (form === "link") return location.href;
  if (form === "json" && answer) return JSON.stringify(answer.simulate, null, 2);
  if (form === "sentence" && answer) return sentenceOf(state, answer, interval);
  const texts = await ask<Texts>(slow, "texts", state);
  if (isProblem(texts)) throw new Error(texts.error);
  if (form === "toml") return texts.toml;
  if (form === "megatron") {
    if (texts.megatron.error) throw new Error(texts.megatron.error);
    return [...(texts.megatron.notes ?? []).map((note) => `# ${note}\n`), texts.megatron.text ?? ""].join("");
  }
  return texts.command;
}
