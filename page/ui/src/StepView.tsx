import { GpuPicture } from "./cluster/GpuPicture";
import { MemoryBars } from "./memory/MemoryBars";
import { useStudio } from "./studio";
import { Timeline } from "./timeline/Timeline";

export function StepView() {
  const { answer, problem } = useStudio();
  return <main className="step">
    <div className="col left"><GpuPicture /></div>
    <div className="col centre">{problem && <p role="alert">{problem}</p>}
      {answer && <h2>{answer.headline[0].text}</h2>}
      <Timeline /><MemoryBars /></div>
    <div className="col right" />
  </main>;
}
