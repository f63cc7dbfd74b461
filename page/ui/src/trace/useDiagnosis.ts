// Asks for the diagnosis of the profile against the newest state.
import { useEffect, useState } from "react";
import { isProblem } from "../answers";
import { ask } from "../ask";
import { slow } from "../engine";
import { type State, writeState } from "../state";
import type { DiagnoseAnswer } from "./diagnosis";
import type { TraceFile } from "./file";

export function useDiagnosis(trace: TraceFile | null, state: State): { answer: DiagnoseAnswer | null; problem: string | null; isBusy: boolean } {
  const [known, setKnown] = useState<{ key: string; answer: DiagnoseAnswer | null; problem: string | null; trace: TraceFile | null }>({ key: "", answer: null, problem: null, trace: null });
  const key = writeState(state);
  useEffect(() => {
    if (!trace) return;
    let isWanted = true;
    void ask<DiagnoseAnswer>(slow, "diagnose", state, { trace: trace.name }, [{ name: trace.name, bytes: trace.bytes }]).then((got) => {
      if (isWanted) setKnown(isProblem(got) ? { key, answer: null, problem: got.error, trace } : { key, answer: got, problem: null, trace });
    });
    return () => { isWanted = false; };
  }, [trace, key]);
  const isOfTrace = known.trace === trace;
  return { answer: isOfTrace ? known.answer : null, problem: isOfTrace ? known.problem : null, isBusy: trace !== null && (known.key !== key || !isOfTrace) };
}
