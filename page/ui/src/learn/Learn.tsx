// Six pages for a projector. A guess comes before the answer: the rows are covered until one is chosen.
import { useEffect, useLayoutEffect, useRef, useState } from "react";
import { useStudio } from "../studio";
import { Figure } from "./Figure";
import { kPages } from "./pages";
import { type Result, useResults } from "./results";
import { LearnLegend, Share } from "./Foot";
import "./learn.css";

const isDone = (answers: (object | null)[]): answers is Result[] => answers.length > 0 && answers.every((one) => one !== null && !("error" in one));

export function Learn() {
  const { address, show } = useStudio();
  const number = Math.min(kPages.length, Math.max(1, address.page)), page = kPages[number - 1];
  const [knob, setKnob] = useState(page.knob.start);
  const [guess, setGuess] = useState<number | null>(null);
  const main = useRef<HTMLElement>(null), figure = useRef<HTMLDivElement>(null);
  const [room, setRoom] = useState(480);
  useEffect(() => { setKnob(page.knob.start); setGuess(null); }, [page]);
  const at = knob < page.knob.values.length ? knob : page.knob.start;
  const rows = page.rows(at), first = page.rows(page.knob.start);
  const answers = useResults(rows.map((row) => ({ state: row.state, wantsWindow: row.span !== undefined })));
  const before = useResults(first.map((row) => ({ state: row.state, wantsWindow: row.span !== undefined })));
  const isChanged = at !== page.knob.start, isCovered = isChanged && guess === null;

  useEffect(() => {
    const key = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || (event.target as HTMLElement).closest("input, textarea, select, [role=combobox], [role=dialog]")) return;
      if (event.key === "ArrowRight" && number < kPages.length) show("learn", number + 1);
      else if (event.key === "ArrowLeft" && number > 1) show("learn", number - 1);
      else if (event.key === "f" || event.key === "F") void (document.fullscreenElement ? document.exitFullscreen() : main.current?.requestFullscreen());
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, [number, show]);
  useLayoutEffect(() => {
    const measure = () => setRoom(figure.current?.clientHeight ?? 480);
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(figure.current!);
    return () => watch.disconnect();
  }, [page]);

  const gap = 18, isNarrow = innerWidth <= 760;
  const height = isNarrow ? (page.rows(0)[0].span ? 96 : 74) : Math.floor(Math.max(44, Math.min(rows[0].span ? 190 : 104, (room - gap * (rows.length - 1) - 4) / rows.length)));
  const results = answers.map((one) => (one && !("error" in one) ? one : null));
  const longest = Math.max(1, ...results.map((one) => one?.strip.step_ps ?? 0)) * 1.005;
  // Spans of one page are equally long, so that their pictures have one scale.
  const lengths = results.map((one, i) => (one && rows[i].span ? rows[i].span!(one) : [0, 0])).map(([from, to]) => to - from);
  const isShared = number !== 6;
  const lead = isDone(before) ? page.lead(isDone(answers) && !isCovered ? answers : before) : null;
  const { before: ask, values, after } = page.knob;
  return <main className="learn" ref={main}>
    <p className="n"><span>{number} of {kPages.length}</span><span className="grow" /><span>{page.about}</span></p>
    <h1>{page.title}</h1>
    <p className="lead">{lead ?? <span className="q">Computing the steps of this page …</span>}</p>
    <div className="learn-figure" ref={figure}>
      {rows.map((row, i) => <Figure key={i} row={row} result={results[i]} problem={answers[i] && "error" in answers[i]! ? (answers[i] as { error: string }).error : null} height={height}
        longest={longest} length={isShared ? Math.max(1, ...lengths) : Math.max(1, lengths[i])} isCovered={isCovered} />)}
    </div>
    <div className="foot">
      <div className="question">{ask} <span className="knob" role="group" aria-label={`${ask} … ${after}`}>
        {values.map((value, i) => <button key={value} aria-pressed={i === at} className={i === at ? "on" : ""} onClick={() => { setKnob(i); setGuess(null); }}>{value}</button>)}</span> {after}
        {isCovered && <div className="guesses" role="group" aria-label="your guess">{page.guesses.map((text, i) => <button key={text} onClick={() => setGuess(i)}>{text}</button>)}</div>}
        {isChanged && guess !== null && isDone(answers) && isDone(before) && <div className="verdict" role="status">
          <b>{page.right(before, answers) === guess ? "Right" : "Not so"}</b>: {page.verdict(before, answers)}</div>}
      </div>
      <LearnLegend axes={page.legend} hasBackward={number !== 3 && number !== 4} />
    </div>
    <nav className="turn" aria-label="pages">
      {kPages.map((one, i) => <button key={one.title} aria-current={i === number - 1 ? "page" : undefined} title={one.title} onClick={() => show("learn", i + 1)}>{i + 1}</button>)}
      <span className="q keys"><kbd>←</kbd> <kbd>→</kbd> pages <kbd>F</kbd> full screen</span><span className="grow" />
      <Share page={page} rows={rows} main={main} number={number} />
    </nav>
  </main>;
}
