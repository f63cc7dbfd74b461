import type { StepAnswer } from "../answers";

// Returns a layout as "tp 4, pp 4 × 5 chunks, dp 2".
export function layoutLine({ simulate: { layout: l }, values }: StepAnswer): string {
  const ep = Number(values["parallel.expert_model_parallel_size"] ?? 1);
  return [`tp ${l.tp}`, `pp ${l.pp}${l.vp > 1 ? ` × ${l.vp}` : ""}`, l.cp > 1 ? `cp ${l.cp}` : "", ep > 1 ? `ep ${ep}` : "", `dp ${l.dp}`].filter(Boolean).join(", ");
}
