// Controls that the sentence, the layout and the drawer share.
import { type PointerEvent, type ReactNode, useEffect, useRef, useState } from "react";
import { Autocomplete, Button, Dialog, DialogTrigger, Header, Input, ListBox, ListBoxItem, ListBoxSection, Popover, SearchField,
         useFilter } from "react-aria-components";

export interface Choice { id: string; name: string; hint?: string; group?: string; words?: string }

// A word that opens a list of choices with a field to search it. Escape closes it; arrows and Enter choose.
export function Picker({ label, value, text, choices, onChoose, className = "word" }:
    { label: string; value: string; text: ReactNode; choices: Choice[]; onChoose: (id: string) => void; className?: string }) {
  const { contains } = useFilter({ sensitivity: "base" });
  const groups = [...new Set(choices.map((one) => one.group ?? ""))];
  const fits = (id: string, text: string) => {
    const words = text.trim().split(/[\s\-_]+/);
    return words.every((word) => contains(id, word));
  };
  const item = (one: Choice) => <ListBoxItem key={one.id} id={one.id} textValue={`${one.name} ${one.id} ${one.words ?? ""}`} className="choice">
    <span>{one.name}</span>{one.hint && <span className="hint">{one.hint}</span>}</ListBoxItem>;
  return <DialogTrigger>
    <Button className={className} aria-label={`${label}: ${typeof text === "string" ? text : value}`}>{text}<i className="down" aria-hidden="true" /></Button>
    <Popover className="pop" placement="bottom start">
      <Dialog aria-label={label} className="list">
        {({ close }) => <Autocomplete filter={fits}>
          <SearchField aria-label={`Find ${label}`} autoFocus className="find"><Input placeholder={`Find ${label}`} /></SearchField>
          <ListBox aria-label={label} selectionMode="single" selectedKeys={[value]} className="choices"
            onSelectionChange={(keys) => { const [one] = [...(keys as Set<string>)]; if (one !== undefined) onChoose(one); close(); }}>
            {groups.length === 1 && !groups[0] ? choices.map(item) : groups.map((group) =>
              <ListBoxSection key={group} id={group}><Header className="group">{group}</Header>{choices.filter((one) => (one.group ?? "") === group).map(item)}</ListBoxSection>)}
          </ListBox>
        </Autocomplete>}
      </Dialog>
    </Popover>
  </DialogTrigger>;
}

const kDragPx = 28;  // of a drag for one step

// A number in the sentence: typed, dragged sideways, or stepped by the arrow keys; a step is a factor of 2, with Alt 1.1.
export function NumberWord({ label, value, write, read, onChange, className = "word" }:
    { label: string; value: number; write: (x: number) => string; read: (text: string) => number | null; onChange: (x: number) => void; className?: string }) {
  const [text, setText] = useState<string | null>(null);  // while it is typed
  const drag = useRef<{ x: number; from: number; isMoved: boolean } | null>(null);
  const shown = text ?? write(value);
  const commit = () => {
    const next = text === null ? null : read(text);
    setText(null);
    if (next !== null && next > 0 && next !== value) onChange(next);
  };
  const by = (up: boolean, fine: boolean) => onChange(fine ? Math.max(1, Math.round(value * (up ? 1.1 : 1 / 1.1))) : up ? value * 2 : Math.max(1, value / 2));
  const move = (event: PointerEvent) => {
    if (!drag.current) return;
    const steps = Math.trunc((event.clientX - drag.current.x) / kDragPx);
    if (steps === 0) return;
    drag.current.isMoved = true;
    const factor = event.altKey ? 1.1 : 2;
    const next = Math.max(1, Math.round(drag.current.from * factor ** steps));
    if (next !== value) onChange(next);
  };
  return <span className={`${className} n`}><span className="sized" data-text={shown}>
    <input role="spinbutton" aria-label={label} aria-valuenow={value} aria-valuetext={write(value)} inputMode="decimal" value={shown}
      size={1} onChange={(event) => setText(event.target.value)} onBlur={commit}
      onFocus={(event) => event.target.select()}
      onPointerDown={(event) => { drag.current = { x: event.clientX, from: value, isMoved: false }; }}
      onPointerMove={(event) => { if (event.buttons === 1 && event.pointerType === "mouse") move(event); }}
      onPointerUp={() => { drag.current = null; }}
      onKeyDown={(event) => {
        if (event.key === "Enter") commit();
        else if (event.key === "Escape") setText(null);
        else if (event.key === "ArrowUp" || event.key === "ArrowDown") { event.preventDefault(); setText(null); by(event.key === "ArrowUp", event.altKey); }
      }} /></span><i className="updown" aria-hidden="true">⇕</i></span>;
}

export const readCount = (text: string): number | null => {
  const [, digits, unit] = text.replace(/[,\s]/g, "").match(/^([\d.]+)([kKmMbBtT]?)(?:tokens)?$/) ?? [];
  if (digits === undefined) return null;
  const scale = { "": 1, k: 1e3, m: 1e6, b: 1e9, t: 1e12 }[unit!.toLowerCase()] ?? 1;
  const value = Number(digits) * scale;
  return Number.isFinite(value) ? value : null;
};

// Returns the width of an element that it is attached to.
export function useWidth<T extends HTMLElement>(): [(element: T | null) => void, number] {
  const [element, setElement] = useState<T | null>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!element) return;
    const observer = new ResizeObserver(([entry]) => setWidth(entry!.contentRect.width));
    observer.observe(element);
    setWidth(element.clientWidth);
    return () => observer.disconnect();
  }, [element]);
  return [setElement, width];
}

let measuring: CanvasRenderingContext2D | null = null;
export function textWidth(text: string, font = "500 11.5px Inter V, system-ui, sans-serif"): number {
  measuring ??= document.createElement("canvas").getContext("2d")!;
  measuring.font = font;
  return measuring.measureText(text).width;
}
