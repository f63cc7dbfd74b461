// On a phone: the parts of the answer, one tap away, and Compare.
import { useState } from "react";
import { useStudio } from "./studio";

const kTabs = [
  { id: "answer", name: "Answer", path: "M3 17h14M5 13V8m5 5V4m5 9v-3" }, { id: "levers", name: "Levers", path: "M4 5h12M4 10h8M4 15h4" },
  { id: "timeline", name: "Timeline", path: "M2 6h9M6 10h9M9 14h9" }, { id: "layout", name: "Layout", path: "M3 3h6v6H3zM11 3h6v6h-6zM3 11h6v6H3zM11 11h6v6h-6z" },
  { id: "compare", name: "Compare", path: "M3 6h13M3 10h9M3 14h11" },
];

export function TabBar() {
  const { show, address } = useStudio();
  const [at, setAt] = useState("answer");
  const on = address.view === "compare" ? "compare" : at;
  return <nav className="tabbar" aria-label="sections">{kTabs.map(({ id, name, path }) => <button key={id} className={id === on ? "on" : ""} aria-current={id === on ? "true" : undefined} onClick={() => {
    setAt(id);
    if (id === "compare") return show("compare");
    if (address.view !== "step") show("step");
    requestAnimationFrame(() => id === "answer" ? scrollTo({ top: 0 }) : document.getElementById(id)?.scrollIntoView({ block: "start" }));
  }}><svg viewBox="0 0 20 20" aria-hidden="true"><path d={path} /></svg>{name}</button>)}</nav>;
}
