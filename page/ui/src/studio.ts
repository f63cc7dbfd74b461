// The one state of the studio and what every component reads of it.
import { createContext, useContext } from "react";
import type { Lists, StepAnswer } from "./answers";
import type { Address, State, View } from "./state";

// A GPU by its pipeline stage and its number among all GPUs; an operation by its time, in picoseconds of the step.
export interface Selection { stage: number; gpu: number; from_ps?: number; to_ps?: number }

export interface Studio {
  address: Address;
  lists: Lists | null;           // null before the predictor has started
  answer: StepAnswer | null;     // the newest answer, which may belong to an older state: `answered`
  answered: State | null;
  problem: string | null;        // why the state has no answer
  isBusy: boolean;               // an answer takes longer than 150 ms
  go(state: State): void;             // to another scenario; one entry of history a settled change
  setting(key: string, value: string | null): void;
  show(view: View, page?: number): void;
  change(part: Partial<Address>): void;
  selection: Selection;
  select(selection: Selection): void;
}
export const StudioContext = createContext<Studio | null>(null);
export function useStudio(): Studio {
  return useContext(StudioContext)!;
}
