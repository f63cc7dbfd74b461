// What a step loses, by cause.
import type { Simulated } from "./answers";

export interface Loss { id: string; name: string; ms: number }

// Returns what a step loses, the largest first; parts that are no more than a ten-thousandth are left out.
export function lossesOf(s: Simulated): Loss[] {
  const stages = s.layout.pp > 1;
  const all: Loss[] = [
    { id: "ep", name: "exposed EP all-to-all", ms: s.exposed_ms.ep }, { id: "tp", name: "exposed TP", ms: s.exposed_ms.tp },
    { id: "cp", name: "exposed CP", ms: s.exposed_ms.cp }, { id: "pp", name: "exposed PP send/recv", ms: s.exposed_ms.pp },
    { id: "dp", name: "exposed DP", ms: s.exposed_ms.dp }, { id: "stall", name: "launch-order stalls", ms: s.queue_wait_ms },
    { id: "host", name: "waiting for a core", ms: s.core_wait_ms },
    { id: "bubble", name: stages ? "pipeline bubble" : "waiting for other GPUs", ms: s.bubble_ms },
  ];
  return all.filter((one) => one.ms / s.step_ms > 1e-4).sort((a, b) => b.ms - a.ms);
}
