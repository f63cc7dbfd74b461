// The one state of the studio and what every component reads of it.
import { createContext, useContext } from "react";
import type { Lists, StepAnswer } from "./answers";
import type { Form } from "./copying";
import type { Address, State, View } from "./state";
import type { TraceFile } from "./trace/file";
import type { Trials } from "./trials";

// A GPU by its pipeline stage and its number among all GPUs; an operation by its time, in picoseconds of the step.
export interface Selection { stage: number; gpu: number; from_ps?: number; to_ps?: number }
export interface Toast { text: string; undo?: () => void }
export type Overlay = "palette" | "settings" | "keys" | null;

export interface Studio {
  address: Address;
  lists: Lists | null;           // null before the predictor has started
  answer: StepAnswer | null;     // the newest answer, which may belong to an older state: `answered`
  answered: State | null;
  problem: string | null;        // why the state has no answer
  isBusy: boolean;               // an answer takes longer than 150 ms
  slowSince: number | null;      // the time since which an answer is waited for
  trials: Trials;                // steps of other settings, from here
  go(state: State, isAnnounced?: boolean): void;  // to another scenario; one entry of history a settled change
  setting(key: string, value: string | null): void;
  announce(): void;              // the next answer is said in a toast with an undo
  undo(state: State): void;
  retry(): void;
  show(view: View, page?: number): void;
  change(part: Partial<Address>): void;
  pin(state?: State, label?: string): void;
  copy(form: Form): void;
  copyCommand(): void;
  say(toast: Toast): void;
  toast: Toast | null;
  took: { file: string; notes: string[] } | null;  // the file that was dropped last
  setTook(took: { file: string; notes: string[] }): void;
  trace: TraceFile | null;       // the profile that was dropped last
  setTrace(trace: TraceFile): void;
  overlay: Overlay;
  open(overlay: Overlay, find?: string): void;
  find: string;                  // what the drawer of settings begins with
  selection: Selection;
  select(selection: Selection): void;
}
export const StudioContext = createContext<Studio | null>(null);
export function useStudio(): Studio {
  return useContext(StudioContext)!;
}
