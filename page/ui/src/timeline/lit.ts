// The axis of the operation under the pointer: its group lights up in the picture of the GPUs.
import { useSyncExternalStore } from "react";
import type { Axis } from "./strip";

let lit: Axis | null = null;
const listeners = new Set<() => void>();

export function light(axis: Axis | null) {
  if (axis === lit) return;
  lit = axis;
  for (const listen of listeners) listen();
}
const subscribe = (listen: () => void) => {
  listeners.add(listen);
  return () => { listeners.delete(listen); };
};
export const useLit = (): Axis | null => useSyncExternalStore(subscribe, () => lit);
