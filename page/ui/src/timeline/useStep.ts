// The strip of a state, with its rows; the last one stays until the next has come.
import { useEffect, useMemo, useState } from "react";
import type { State } from "../state";
import { type Row, rowsOf, type StepStrip, stripOf } from "./strip";

const kRestMs = 250;  // a number that moves takes no processor from the next answer

export function useStep(state: State | null): { strip: StepStrip | null; rows: Row[]; problem: string | null } {
  const [strip, setStrip] = useState<StepStrip | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    if (!state) return;
    let isWanted = true;
    const wait = setTimeout(async () => {
      const answer = await stripOf(state);
      if (!isWanted) return;
      if ("error" in answer) setProblem(`No timeline: ${answer.error}`);
      else { setStrip(answer); setProblem(null); }
    }, kRestMs);
    return () => { isWanted = false; clearTimeout(wait); };
  }, [state]);
  const rows = useMemo(() => (strip ? rowsOf(strip) : []), [strip]);
  return { strip, rows, problem };
}
