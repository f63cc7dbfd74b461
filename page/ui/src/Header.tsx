import { useStudio } from "./studio";
import { kViews, type View } from "./state";

const kNames: Record<View, string> = { step: "Step", search: "Search", compare: "Compare", trace: "Trace", learn: "Learn" };

export function Header() {
  const { address, show } = useStudio();
  return <header className="top">
    <a className="brand" href="#" aria-label="Stretto, start"><Mark />Stretto</a>
    <nav className="tabs" aria-label="views">
      {kViews.map((view) => <button key={view} className={view === address.view ? "tab on" : "tab"} aria-current={view === address.view ? "page" : undefined}
        onClick={() => show(view)}>{kNames[view]}</button>)}
    </nav>
    <span className="grow" />
  </header>;
}

const Mark = () => <svg width="22" height="16" viewBox="0 0 22 16" aria-hidden="true"><rect x="0" y="1" width="14" height="3.4" rx="1" />
  <rect x="4" y="6.3" width="14" height="3.4" rx="1" opacity=".62" /><rect x="8" y="11.6" width="14" height="3.4" rx="1" opacity=".34" /></svg>;
