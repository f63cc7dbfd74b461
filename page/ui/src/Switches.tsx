// Overlap switches with the effect of flipping each from here, before the click.
import { useState } from "react";
import { Switch } from "react-aria-components";
import type { Key, StepAnswer } from "./answers";
import { change, gibChange, kGiB } from "./format";
import { switchName } from "./names";
import { useStudio } from "./studio";
import { closedBy, switchesOf, type Trial } from "./trials";
import { useStill } from "./useStill";

const kShown = 6;
// Texts of the predictor have links and code as Markdown.
export const plain = (text: string) => text.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").replace(/`/g, "");

interface Row { key: string; isOn: boolean; trial?: Trial; refused?: string; closed: { why: string; needs: string } | null }

export function rowsOf(answer: StepAnswer, keys: Key[], results: Map<string, Trial>, refused: Map<string, string>): Row[] {
  const rows = switchesOf(answer, keys).map(({ key, isOn }) => {
    const trial = results.get(key);
    return { key, isOn, ...(trial ? { trial } : {}), ...(refused.has(key) ? { refused: refused.get(key)! } : {}), closed: isOn ? null : closedBy(answer, key) };
  });
  const size = (row: Row) => (row.closed ? -2 : row.refused ? -1 : row.trial ? Math.abs(row.trial.change_pct) : 0);
  return rows.sort((a, b) => size(b) - size(a));
}

export function Switches() {
  const { answer, lists, trials, setting, isBusy, announce } = useStudio();
  const [isWhole, setWhole] = useState(false);
  const [still, holders] = useStill(trials);
  if (!answer || !lists) return null;
  const places = new Map(rowsOf(answer, lists.keys, still.results, still.refused).map(({ key }, i) => [key, i]));
  const rows = rowsOf(answer, lists.keys, trials.results, trials.refused).sort((a, b) => places.get(a.key)! - places.get(b.key)!);
  const shown = isWhole ? rows : rows.slice(0, kShown);
  const tried = rows.filter((row) => row.trial || row.refused).length, open = rows.filter((row) => !row.closed).length;
  return <section className={isBusy ? "blk stale" : "blk"} id="overlap" aria-label="overlap switches" {...holders}>
    <h2>Overlap <span className="q">{tried < open ? `${tried} of ${open} switches tried` : "effect on the step, before you click"}</span></h2>
    {shown.map((row) => <SwitchRow key={row.key} row={row} onFlip={(isOn) => { announce(); setting(row.key, String(isOn)); }} />)}
    <p className="more q"><button className="link" aria-expanded={isWhole} onClick={() => setWhole(!isWhole)}>{isWhole ? "show fewer" : `${rows.length - shown.length} more`}</button>
      {!isWhole && "; those not possible here say why"}<kbd className="wide">O</kbd></p>
  </section>;
}

function SwitchRow({ row, onFlip }: { row: Row; onFlip: (isOn: boolean) => void }) {
  const { key, isOn, trial, closed, refused } = row;
  const [text, more, kind] = effect(row);
  return <div className="sw">
    <Switch aria-label={`${switchName(key)}, ${key.slice(key.indexOf(".") + 1)}`} isSelected={isOn} isDisabled={closed !== null && !isOn} onChange={onFlip} className="switch" data-key={key}>
      <span className="track" aria-hidden="true" /></Switch>
    <div className="n"><span title={switchName(key)}>{switchName(key)}</span><code>{key.slice(key.indexOf(".") + 1)}</code>
      {closed && <span className="why">needs {plain(closed.needs)}{closed.why && `: ${plain(closed.why)}`} <Opener needs={closed.needs} /></span>}
      {refused && <span className="why">{plain(refused)}</span>}</div>
    {!closed && <div className={`d num ${kind}`} title={trial ? `${trial.step_ms} ms` : undefined}>{text}<em>{more}</em></div>}
  </div>;
}

// Returns the effect, what it means, and its colour.
function effect({ isOn, trial, refused }: Row): [string, string, string] {
  if (refused) return ["", "not possible", "zero"];
  if (!trial) return ["…", "", "zero"];
  const text = change(trial.change_pct);
  if (text === "0") return ["0", isOn ? "if off" : "no gain", "zero"];
  if (isOn) return [text, trial.change_pct < 0 ? "faster if off" : "if off", trial.change_pct < 0 ? "good" : ""];
  if (trial.memory_verdict !== "fits") return [text, `${((trial.memory_bytes - trial.device_bytes) / kGiB).toFixed(1)} GiB too much`, "zero"];
  return trial.change_pct < 0 ? [text, gibChange(trial.memory_change_bytes), "good"] : [text, "slower", "bad"];
}

// A requirement that is one setting has a button that sets it.
function Opener({ needs }: { needs: string }) {
  const { lists, setting } = useStudio();
  const [, name, value] = plain(needs).match(/^(\w+) = (\w+)$/) ?? [];
  const key = lists?.keys.find((one) => one.name === name);
  return key && value ? <button className="link" onClick={() => setting(key.key, value)}>set {name} = {value}</button> : null;
}
