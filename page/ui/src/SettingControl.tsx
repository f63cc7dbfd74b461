// The control of one key of a scenario, by its kind.
import { useState } from "react";
import { Switch } from "react-aria-components";
import type { Key } from "./answers";
import { wordOf } from "./names";
import { useStudio } from "./studio";

export function SettingControl({ of, value }: { of: Key; value: string | number | boolean | undefined }) {
  const { setting } = useStudio();
  const [text, setText] = useState<string | null>(null);
  const id = `key-${of.key}`, describedBy = `${id}-meaning`;
  if (of.kind === "boolean")
    return <Switch className="switch" aria-label={of.name} aria-describedby={describedBy} isSelected={value === true} data-key={of.key}
      onChange={(isOn) => setting(of.key, String(isOn))}><span className="track" aria-hidden="true" /></Switch>;
  if (of.kind === "word")
    return <select id={id} aria-label={of.name} aria-describedby={describedBy} value={String(value ?? "")} onChange={(event) => setting(of.key, event.target.value)}>
      {[...new Set([String(value ?? ""), ...of.choices])].map((word) => <option key={word} value={word}>{word ? (wordOf(word) === word ? word : `${word} (${wordOf(word)})`) : "none"}</option>)}</select>;
  const shown = text ?? (value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));
  const commit = () => {
    if (text !== null && text !== String(value ?? "")) setting(of.key, text === "" ? null : text);
    setText(null);
  };
  return <input id={id} aria-label={of.name} aria-describedby={describedBy} value={shown} inputMode={of.kind === "text" ? "text" : "decimal"}
    onChange={(event) => setText(event.target.value)} onBlur={commit} onKeyDown={(event) => { if (event.key === "Enter") commit(); if (event.key === "Escape") setText(null); }} />;
}
