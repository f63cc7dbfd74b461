// Ctrl-K: models, GPUs, settings, views and actions by any of their names.
import Fuse from "fuse.js";
import { type KeyboardEvent, useMemo, useState } from "react";
import { Dialog, Modal, ModalOverlay } from "react-aria-components";
import type { StepAnswer } from "./answers";
import { change } from "./format";
import { forms, viewNames } from "./Header";
import { modelName, platformName, profileName, switchName, wordOf } from "./names";
import { kViews } from "./state";
import { type Studio, useStudio } from "./studio";
import { plain } from "./Switches";

interface Entry { id: string; name: string; also: string; kind: string; hint: string; act: () => void }
const kMost = 9;

// Returns all that can be found.
function entriesOf(studio: Studio): Entry[] {
  const { lists, answer, address, go, show, open, pin, copy, trials } = studio;
  if (!lists) return [];
  const { state } = address;
  const hint = (key: string, { values }: StepAnswer) => {
    const value = values[key], trial = trials.results.get(key);
    if (typeof value !== "boolean") return value === undefined ? "" : wordOf(String(value));
    return `${value ? "on" : "off"}${trial ? ` · ${value ? "off" : "on"} ${change(trial.change_pct)}` : ""}`;
  };
  return [
    ...lists.scenarios.map((name) => ({ id: `s:${name}`, name: modelName(name), also: name.replace(/-/g, " "), kind: "model", hint: name,
      act: () => go({ source: "scenario", name, platform: state.platform, profile: "", gpus: 0, set: {} }) })),
    ...lists.presets.map((name) => ({ id: `p:${name}`, name: modelName(name), also: `${name.replace(/-/g, " ")} meta-llama`, kind: "model alone", hint: name,
      act: () => go({ source: "preset", name, platform: state.platform, profile: "", gpus: 0, set: {} }) })),
    ...lists.platforms.map((name) => ({ id: `g:${name}`, name: platformName(name), also: `${name} DGX HGX`, kind: "GPU", hint: name, act: () => go({ ...state, platform: name }, true) })),
    ...lists.profiles.map((name) => ({ id: `f:${name}`, name: profileName(name), also: name, kind: "framework", hint: name, act: () => go({ ...state, profile: name }, true) })),
    ...lists.keys.map((key) => ({ id: key.key, name: key.section === "overlap" && switchName(key.key) !== key.name ? switchName(key.key) : key.name,
      also: `${key.name} ${key.name.replace(/_/g, " ")} --${key.name.replace(/_/g, "-")} ${plain(key.meaning)}`, kind: "setting", hint: answer ? hint(key.key, answer) : "",
      act: () => open("settings", key.name) })),
    ...kViews.map((view) => ({ id: `v:${view}`, name: viewNames[view], also: "view go to", kind: "view", hint: `G ${viewNames[view][0]}`, act: () => show(view) })),
    ...forms.map((form) => ({ id: `c:${form.id}`, name: `Copy: ${form.name}`, also: "export clipboard", kind: "action", hint: "", act: () => copy(form.id) })),
    { id: "a:pin", name: "Pin this variant", also: "compare", kind: "action", hint: "P", act: () => pin() },
    { id: "a:settings", name: "All settings", also: "keys drawer", kind: "action", hint: "/", act: () => open("settings") },
    { id: "a:keys", name: "Keyboard", also: "shortcuts help", kind: "action", hint: "?", act: () => open("keys") },
    { id: "a:print", name: "Print", also: "pdf paper", kind: "action", hint: "", act: () => window.print() },
  ];
}

export function Palette() {
  const studio = useStudio();
  return <ModalOverlay className="shade top-shade" isOpen={studio.overlay === "palette"} onOpenChange={(isOpen) => studio.open(isOpen ? "palette" : null)} isDismissable>
    <Modal className="palette"><Dialog aria-label="Find"><Find studio={studio} /></Dialog></Modal>
  </ModalOverlay>;
}

function Find({ studio }: { studio: Studio }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const entries = useMemo(() => entriesOf(studio), [studio.lists, studio.answer, studio.trials]);
  const fuse = useMemo(() => new Fuse(entries, { keys: [{ name: "name", weight: 3 }, { name: "also", weight: 1 }, { name: "hint", weight: 1 }], threshold: 0.4, ignoreLocation: true,
    useTokenSearch: true } as object), [entries]);
  const found = (text.trim() ? fuse.search(text.trim(), { limit: kMost }).map(({ item }) => item) : entries.filter(({ kind }) => kind === "view" || kind === "action")).slice(0, kMost);
  const take = (entry: Entry | undefined) => {
    if (!entry) return;
    studio.open(null);
    entry.act();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") setAt(Math.min(found.length - 1, at + 1));
    else if (event.key === "ArrowUp") setAt(Math.max(0, at - 1));
    else if (event.key === "Enter") take(found[at]);
    else return;
    event.preventDefault();
  };
  return <>
    <input className="palette-input" role="combobox" aria-expanded="true" aria-controls="found" aria-activedescendant={found[at] ? `found-${at}` : undefined} aria-label="Find a model, GPU or setting"
      autoFocus placeholder="Find a model, GPU or setting" value={text} onChange={(event) => { setText(event.target.value); setAt(0); }} onKeyDown={onKeyDown} />
    <ul className="found" id="found" role="listbox" aria-label="found">{found.map((one, i) => <li key={one.id} id={`found-${i}`} role="option" aria-selected={i === at}
      onPointerMove={() => setAt(i)} onClick={() => take(one)}><span><b>{one.name}</b> <span className="q">{one.kind}</span></span><span className="q mono">{one.hint}</span></li>)}
      {found.length === 0 && <li role="option" aria-selected="false" className="q">Nothing has this name.</li>}</ul>
  </>;
}
