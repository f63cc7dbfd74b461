// The bar at the top: views, the field that finds everything, and what one does with a state.
import { Button, Menu, MenuItem, MenuTrigger, Popover } from "react-aria-components";
import type { Form } from "./copying";
import { useStudio } from "./studio";
import { kViews, type View } from "./state";

export const viewNames: Record<View, string> = { step: "Step", search: "Search", compare: "Compare", trace: "Trace", learn: "Learn" };
export const forms: { id: Form; name: string }[] = [
  { id: "command", name: "Command" }, { id: "toml", name: "Scenario as TOML" }, { id: "megatron", name: "Megatron-LM flags" },
  { id: "json", name: "Prediction as JSON" }, { id: "sentence", name: "One sentence" }, { id: "link", name: "Link" },
];
const isMac = /Mac|iPhone|iPad/.test(navigator.platform);

export function Header() {
  const { address, show, open, pin, copy } = useStudio();
  return <header className="top">
    <a className="brand" href="#" aria-label="Stretto, start"><Mark />Stretto</a>
    <nav className="tabs" aria-label="views">
      {kViews.map((view) => <button key={view} className={view === address.view ? "tab on" : "tab"} aria-current={view === address.view ? "page" : undefined}
        onClick={() => show(view)}>{viewNames[view]}{view === "compare" && address.pins.length > 0 && <span className="chip plain">{address.pins.length + 1}</span>}</button>)}
    </nav>
    <span className="grow" />
    <button className="ghost wide" onClick={() => open("palette")}><kbd>{isMac ? "⌘K" : "Ctrl K"}</kbd> Find a model, GPU or setting</button>
    <button className="btn" id="pin" onClick={() => pin()}>Pin <kbd className="wide">P</kbd></button>
    <MenuTrigger>
      <Button className="btn wide" id="copy">Copy…</Button>
      <Popover className="pop"><Menu aria-label="Copy" className="choices" onAction={(form) => copy(form as Form)}>
        {forms.map(({ id, name }) => <MenuItem key={id} id={id} className="choice">{name}</MenuItem>)}</Menu></Popover>
    </MenuTrigger>
    <button className="btn dark" id="share" onClick={() => copy("link")}>Share<span className="wide"> link</span></button>
  </header>;
}

const Mark = () => <svg width="22" height="16" viewBox="0 0 22 16" aria-hidden="true"><rect x="0" y="1" width="14" height="3.4" rx="1" />
  <rect x="4" y="6.3" width="14" height="3.4" rx="1" opacity=".62" /><rect x="8" y="11.6" width="14" height="3.4" rx="1" opacity=".34" /></svg>;
