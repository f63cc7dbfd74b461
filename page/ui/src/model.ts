// The studio's behaviour: the state in the address, the newest answer, what waits and what failed.
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import type { Lists, StepAnswer } from "./answers";
import { askText, newestOnly } from "./ask";
import { type Form, textOf } from "./copying";
import { quick } from "./engine";
import { time } from "./format";
import { type Address, kMostPins, parseAddress, parseState, type State, withSetting, writeAddress, writeState } from "./state";
import type { Overlay, Selection, Studio, Toast } from "./studio";
import type { TraceFile } from "./trace/file";
import { useTrials, warm } from "./trials";

const kBusyMs = 150;    // an answer that takes longer dims the last one
const kToastMs = 6000;
const kSettledMs = 700; // changes closer than this are one entry of the history

declare global {
  // For tests: `shown` is the newest answer on the screen, `ask` asks as the page does, `go` opens an address.
  interface Window {
    stretto: { shown?: { text: string; ms: number; at: number }; ask: (what: string, hash: string) => Promise<string>;
               go: (hash: string) => Promise<void>; engine: typeof quick };
  }
}

interface Answered { answer: StepAnswer | null; state: State | null; problem: string | null }

export function useStudioModel(): Studio {
  const [address, setAddress] = useState<Address>(() => parseAddress(location.hash));
  const [lists, setLists] = useState<Lists | null>(null);
  const [shown, setShown] = useState<Answered>({ answer: null, state: null, problem: null });
  const [isBusy, setBusy] = useState(false);
  const [slowSince, setSlowSince] = useState<number | null>(() => performance.now());
  const [selection, select] = useState<Selection>({ stage: 0, gpu: 0 });
  const [toast, setToast] = useState<Toast | null>(null);
  const [took, setTook] = useState<Studio["took"]>(null);
  const [trace, setTrace] = useState<TraceFile | null>(null);
  const [overlay, setOverlay] = useState<Overlay>(null);
  const [find, setFind] = useState("");
  const before = useRef<{ state: State; step_ms: number } | null>(null);  // of a change whose effect is announced
  const toastEnd = useRef(0);
  const newest = useRef(address);
  const lastPush = useRef(0);
  newest.current = address;

  const say = useCallback((next: Toast) => {
    setToast(next);
    clearTimeout(toastEnd.current);
    toastEnd.current = window.setTimeout(() => setToast(null), kToastMs);
  }, []);

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
    if (before.current && !answer.error) {
      const { state: last, step_ms } = before.current;
      before.current = null;
      say({ text: `${time(step_ms)} → ${time(answer.simulate.step_ms)}`, undo: () => put({ ...newest.current, state: last }) });
    }
    done?.();
  }), []);

  function put(next: Address, how: "push" | "replace" = "push") {
    const now = performance.now();
    const text = writeAddress(next);
    if (text !== location.hash) {
      if (how === "replace" || now - lastPush.current < kSettledMs) history.replaceState(null, "", text);
      else history.pushState(null, "", text);
      lastPush.current = now;
    }
    const isNew = writeState(next.state) !== writeState(newest.current.state);
    newest.current = next;
    if (isNew) void compute({ state: next.state });  // the predictor has the question before the page is drawn
    setAddress(next);
  }

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
      warm(newest.current.state);
    });
    const restore = () => {
      const next = parseAddress(location.hash);
      if (writeAddress(next) !== writeAddress(newest.current)) put(next, "replace");
    };
    addEventListener("popstate", restore);
    addEventListener("hashchange", restore);
    return () => { removeEventListener("popstate", restore); removeEventListener("hashchange", restore); };
  }, [compute]);  // put reads references alone

  const trials = useTrials(shown.answer, shown.state, shown.state === address.state, lists?.keys);
  const announce = () => {
    before.current = shown.answer ? { state: newest.current.state, step_ms: shown.answer.simulate.step_ms } : null;
  };
  const pin = (state: State = newest.current.state, label = "") => {
    const { pins } = newest.current;
    const made = label ? { ...state, label } : state;
    put({ ...newest.current, pins: [...pins, made].slice(-kMostPins) });
    say({ text: `Pinned${label ? `: ${label}` : ""}. ${Math.min(kMostPins, pins.length + 1)} to compare`, undo: () => put({ ...newest.current, pins }) });
  };
  const copy = (form: Form) => void textOf(form, newest.current.state, shown.answer, trials.interval).then((text) => navigator.clipboard.writeText(text))
    .then(() => say({ text: form === "link" ? "Link copied" : `Copied: ${form}` }), (problem) => say({ text: `Not copied: ${problem.message ?? problem}` }));

  return {
    address, lists, answer: shown.answer, answered: shown.state, problem: shown.problem, isBusy, slowSince, trials, selection, select, toast, say, took, setTook, trace, setTrace, overlay, find,
    go: (state, isAnnounced) => { if (isAnnounced) announce(); put({ ...newest.current, state }); },
    setting: (key, value) => put({ ...newest.current, state: withSetting(newest.current.state, key, value, shown.answer?.simulate.ranks ?? 0) }),
    announce,
    undo: (state) => put({ ...newest.current, state }),
    retry: () => void compute({ state: newest.current.state }),
    show: (view, page = 1) => put({ ...newest.current, view, page }),
    change: (part) => put({ ...newest.current, ...part }),
    pin, copy,
    copyCommand: () => {
      const { state } = newest.current;
      const set = Object.entries(state.set).map(([key, value]) => ` --set '${key}=${value}'`).join("");
      void navigator.clipboard.writeText(`stretto simulate ${state.name}${state.platform && ` --platform ${state.platform}`}${set}`).then(() => say({ text: "Copied: command" }));
    },
    open: (next, text = "") => { setFind(text); setOverlay(next); },
  };
}
