// View Step: layout, time, and what would make it faster. On a phone one column in the order of the questions.
import { GpuPicture } from "./cluster/GpuPicture";
import { AnswerBand } from "./AnswerBand";
import { Budget } from "./Budget";
import { FileButton } from "./Drop";
import { LayoutPanel } from "./LayoutPanel";
import { Levers } from "./Levers";
import { MemoryBars } from "./memory/MemoryBars";
import { DoesNotFit, NotPossible, Starting } from "./States";
import { useStudio } from "./studio";
import { Switches } from "./Switches";
import { Timeline } from "./timeline/Timeline";
import { useIsSmall } from "./useIsSmall";

export function StepView() {
  const { answer, open, lists } = useStudio();
  const isSmall = useIsSmall();
  const unfit = answer && <DoesNotFit answer={answer} />;
  const all = <p className="all q"><button className="link" onClick={() => open("settings")}>All {lists ? lists.keys.length : ""} settings</button> · <FileButton /></p>;
  return <>
    <AnswerBand />
    <NotPossible /><Starting />
    {isSmall
      ? <main className="step small"><div className="col"><Budget />{unfit}<Levers /><Switches /><Timeline /><MemoryBars /><LayoutPanel />{all}<GpuPicture /></div></main>
      : <main className="step"><div className="col left"><LayoutPanel />{all}<GpuPicture /></div>
          <div className="col centre"><Budget />{unfit}<Timeline /><MemoryBars /></div>
          <div className="col right"><Levers /><Switches /></div></main>}
  </>;
}
