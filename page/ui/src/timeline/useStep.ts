// The strip of a state, with its rows; the last one stays until the next has come.
import { useEffect, useMemo, useState } from "react";
import type { State } from "../state";
import { type Row, rowsOf, type StepStrip, stripOf } from "./strip";

export function useStep(state: State | null): { strip: StepStrip | null; rows: Row[]; problem: string | null } {
  const [strip, setStrip] = useState<StepStrip | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    if (!state) return;
    let isWanted = true;
    void stripOf(state).then((answer) => {
      if (!isWanted) return;
      if ("error" in answer) setProblem(`No timeline: ${answer.error}`);
      else { setStrip(answer); setProblem(null); }
    });
    return () => { isWanted = false; };
  }, [state]);
  const rows = useMemo(() => (strip ? rowsOf(strip) : []), [strip]);
  return { strip, rows, problem };
}
