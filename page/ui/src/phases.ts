// How the computing time splits into forward, backward and weight gradients, which the strip of the step says.
import { createContext, useContext } from "react";

export interface Phases { forward_ms: number; backward_ms: number; wgrad_ms: number; other_ms: number }
export const PhasesContext = createContext<Phases | null>(null);
export const usePhases = () => useContext(PhasesContext);

const kPs = 1e9;  // in a millisecond

// Returns null where the strip does not say it. `computing` is [[phase, picoseconds]], the mean over the GPUs.
export function phasesOf(strip: { computing?: [string, number][] }): Phases | null {
  if (!strip.computing) return null;
  const phases: Phases = { forward_ms: 0, backward_ms: 0, wgrad_ms: 0, other_ms: 0 };
  for (const [phase, ps] of strip.computing) {
    const key = phase === "forward" || phase === "recompute" ? "forward_ms" : phase === "dgrad" || phase === "backward" ? "backward_ms"
      : phase === "wgrad" || phase === "weight gradient" ? "wgrad_ms" : "other_ms";
    phases[key] += ps / kPs;
  }
  return phases;
}
