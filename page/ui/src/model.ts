// The studio's behaviour: the state in the address, the newest answer, what waits and what failed.
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import type { Lists, StepAnswer } from "./answers";
import { askText, newestOnly } from "./ask";
import { quick } from "./engine";
import { type Address, parseAddress, parseState, type State, withSetting, writeAddress, writeState } from "./state";
import type { Selection, Studio } from "./studio";

const kBusyMs = 150;    // an answer that takes longer dims the last one
const kSettledMs = 700; // changes closer than this are one entry of the history

declare global {
  // For tests: `shown` is the newest answer on the screen, `ask` asks as the page does, `go` opens an address.
  interface Window {
    stretto: { shown?: { text: string; ms: number; at: number }; ask: (what: string, hash: string) => Promise<string>;
               go: (hash: string) => Promise<void>; engine: typeof quick };
  }
}

interface Answered { answer: StepAnswer | null; state: State | null; problem: string | null }

export function useStudioModel(): Studio & { retry(): void; slowSince: number | null } {
  const [address, setAddress] = useState<Address>(() => parseAddress(location.hash));
  const [lists, setLists] = useState<Lists | null>(null);
  const [shown, setShown] = useState<Answered>({ answer: null, state: null, problem: null });
  const [isBusy, setBusy] = useState(false);
  const [slowSince, setSlowSince] = useState<number | null>(() => performance.now());
  const [selection, select] = useState<Selection>({ stage: 0, gpu: 0 });
  const newest = useRef(address);
  const lastPush = useRef(0);
  newest.current = address;

  const compute = useMemo(() => newestOnly<{ state: State; done?: () => void }>(async ({ state, done }) => {
    const begin = performance.now();
    setSlowSince(begin);
    const busy = setTimeout(() => setBusy(true), kBusyMs);
    const text = await askText(quick, "step", state);
    clearTimeout(busy);
    const answer = JSON.parse(text);
    setBusy(false);
    setSlowSince(null);
    window.stretto.shown = { text, ms: performance.now() - begin, at: performance.now() };
    setShown((before) => answer.error ? { ...before, problem: answer.error } : { answer, state, problem: null });
    done?.();
  }), []);

  const put = useCallback((next: Address, how: "push" | "replace" = "push") => {
    const now = performance.now();
    const text = writeAddress(next);
    if (text !== location.hash) {
      if (how === "replace" || now - lastPush.current < kSettledMs) history.replaceState(null, "", text);
      else history.pushState(null, "", text);
      lastPush.current = now;
    }
    const isNew = writeState(next.state) !== writeState(newest.current.state);
    newest.current = next;
    setAddress(next);
    if (isNew) void compute({ state: next.state });
  }, [compute]);

  useEffect(() => {
    window.stretto = {
      ask: (what, hash) => askText(quick, what, parseState(hash)),
      go: (hash) => new Promise((done) => {
        const next = { ...newest.current, state: parseState(hash) };
        newest.current = next;
        setAddress(next);
        history.replaceState(null, "", writeAddress(next));
        void compute({ state: next.state, done: () => setTimeout(done, 30) });
      }),
      engine: quick,
    };
    void compute({ state: newest.current.state });
    void quick.askText({ what: "lists" }).then((text) => {
      const answer = JSON.parse(text);
      if (!answer.error) setLists(answer);
    });
    const restore = () => {
      const next = parseAddress(location.hash);
      if (writeAddress(next) !== writeAddress(newest.current)) put(next, "replace");
    };
    addEventListener("popstate", restore);
    addEventListener("hashchange", restore);
    return () => { removeEventListener("popstate", restore); removeEventListener("hashchange", restore); };
  }, [compute, put]);

  return {
    address, lists, answer: shown.answer, answered: shown.state, problem: shown.problem, isBusy, slowSince, selection, select,
    go: (state) => put({ ...newest.current, state }),
    setting: (key, value) => put({ ...newest.current, state: withSetting(newest.current.state, key, value, shown.answer?.simulate.ranks ?? 0) }),
    show: (view, page = 1) => put({ ...newest.current, view, page }),
    change: (part) => put({ ...newest.current, ...part }),
    retry: () => void compute({ state: newest.current.state }),
  };
}
