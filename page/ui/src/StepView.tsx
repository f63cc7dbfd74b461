// View Step: layout, time, and what would make it faster. On a phone one column in the order of the questions.
import { GpuPicture } from "./cluster/GpuPicture";
import { AnswerBand } from "./AnswerBand";
import { Budget } from "./Budget";
import { FileButton, Took } from "./Drop";
import { forms, viewNames } from "./Header";
import { LayoutPanel } from "./LayoutPanel";
import { Levers } from "./Levers";
import { MemoryBars } from "./memory/MemoryBars";
import { DoesNotFit, NotPossible, Starting } from "./States";
import { useStudio } from "./studio";
import { Switches } from "./Switches";
import { Timeline } from "./timeline/Timeline";
import { useIsSmall } from "./useIsSmall";

export function StepView() {
  const { answer, open, lists, show, copy, problem } = useStudio();
  const kind = problem ? "step stale" : "step";
  const isSmall = useIsSmall();
  const unfit = answer && <DoesNotFit answer={answer} />;
  const all = <p className="all q"><button className="link" onClick={() => open("settings")}>All {lists ? lists.keys.length : ""} settings</button> · <FileButton /></p>;
  const more = <section className="blk more-of" aria-label="more"><h2>More</h2>
    <p className="acts">{(["search", "compare", "trace", "learn"] as const).map((view) => <button key={view} className="btn" onClick={() => show(view)}>{viewNames[view]}</button>)}
      <button className="btn" onClick={() => open("palette")}>Find anything</button></p>
    <p className="acts">{forms.map(({ id, name }) => <button key={id} className="btn" onClick={() => copy(id)}>Copy: {name}</button>)}</p></section>;
  return <>
    <AnswerBand />
    <NotPossible /><Took /><Starting />
    {isSmall
      ? <main className={`${kind} small`}><div className="col"><Budget />{unfit}<Levers /><Switches /><Timeline /><MemoryBars /><LayoutPanel />{all}<GpuPicture />{more}</div></main>
      : <main className={kind}><div className="col left"><LayoutPanel />{all}<GpuPicture /></div>
          <div className="col centre"><Budget />{unfit}<Timeline /><MemoryBars /></div>
          <div className="col right"><Levers /><Switches /></div></main>}
  </>;
}
