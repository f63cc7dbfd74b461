// The precision of matrix multiplies as one word for the three keys that say it.
import type { StepAnswer } from "./answers";
import type { State } from "./state";

const kPrecisions = [
  { id: "bf16", name: "bf16", format: "none", recipe: "", fp4: "none", hint: "" },
  { id: "delayed", name: "fp8 delayed", format: "hybrid", recipe: "delayed", fp4: "none", hint: "H100 or later" },
  { id: "tensorwise", name: "fp8 tensorwise", format: "hybrid", recipe: "tensorwise", fp4: "none", hint: "H100 or later" },
  { id: "blockwise", name: "fp8 blockwise", format: "e4m3", recipe: "blockwise", fp4: "none", hint: "H100 or later" },
  { id: "mxfp8", name: "mxfp8", format: "e4m3", recipe: "mxfp8", fp4: "none", hint: "B200 or later" },
  { id: "nvfp4", name: "nvfp4", format: "none", recipe: "", fp4: "e2m1", hint: "B200 or later" },
] as const;
export const precisionChoices = kPrecisions.map(({ id, name, hint }) => ({ id, name, hint }));

export function precisionOf({ values }: StepAnswer): { id: string; name: string } {
  const format = String(values["training.fp8_format"] ?? "none"), fp4 = String(values["training.fp4_format"] ?? "none");
  const recipe = String(values["training.fp8_recipe"] ?? "");
  if (fp4 !== "none" && fp4 !== "") return { id: "nvfp4", name: "nvfp4" };
  if (format !== "none" && format !== "") return kPrecisions.find((one) => one.recipe === recipe) ?? { id: recipe, name: `fp8 ${recipe}` };
  const precision = String(values["training.precision"] ?? "bf16");
  return { id: precision, name: precision };
}

export function withPrecision(state: State, id: string): State {
  const one = kPrecisions.find((other) => other.id === id);
  if (!one) return state;
  const set = { ...state.set };
  delete set["training.fp8_recipe"];
  set["training.fp8_format"] = one.format;
  set["training.fp4_format"] = one.fp4;
  if (one.recipe) set["training.fp8_recipe"] = one.recipe;
  return { ...state, set };
}
