import { useEffect, useState } from "react";
import { isProblem } from "./answers";
import { CompareView } from "./compare/CompareView";
import { Drop } from "./Drop";
import { Header } from "./Header";
import { Learn } from "./learn/Learn";
import { useStudioModel } from "./model";
import { Palette } from "./Palette";
import { type Phases, PhasesContext, phasesOf } from "./phases";
import { Question } from "./Question";
import { SearchView } from "./search/SearchView";
import { Settings } from "./Settings";
import { StepView } from "./StepView";
import { stripOf } from "./timeline/strip";
import { type Studio, StudioContext } from "./studio";
import { TabBar } from "./TabBar";
import { Keys, ToastLine } from "./Toast";
import { TraceView } from "./TraceView";
import { useKeys } from "./useKeys";
import { useIsSmall } from "./useIsSmall";

const kRestMs = 250;  // the strip waits until a slider rests

function useStripPhases({ answer, answered, address }: Studio): Phases | null {
  const isNewest = answered === address.state;
  const [found, setFound] = useState<{ of: unknown; phases: Phases | null }>({ of: null, phases: null });
  useEffect(() => {
    if (!answer || !answered || !isNewest) return;
    let isWanted = true;
    const wait = setTimeout(async () => {
      const strip = await stripOf(answered);
      if (isWanted && !isProblem(strip)) setFound({ of: answer, phases: phasesOf(strip) });
    }, kRestMs);
    return () => { isWanted = false; clearTimeout(wait); };
  }, [answer, answered, isNewest]);
  return found.of === answer ? found.phases : null;
}

export function App() {
  const studio = useStudioModel();
  useKeys(studio);
  const isSmall = useIsSmall();
  const phases = useStripPhases(studio);
  const { view } = studio.address;
  return <StudioContext value={studio}><PhasesContext value={phases}>
    <Header />
    {view !== "learn" && <Question />}
    {view === "learn" ? <Learn /> : view === "compare" ? <CompareView /> : view === "search" ? <SearchView /> : view === "trace" ? <TraceView /> : <StepView />}
    {isSmall && <TabBar />}
    <Palette /><Settings /><Keys /><ToastLine /><Drop />
  </PhasesContext></StudioContext>;
}
