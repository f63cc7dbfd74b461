import { useStudio } from "../studio";

export function MemoryBars() {
  const { answer } = useStudio();
  return <section className="blk" id="memorybars"><h2>Memory by pipeline stage</h2>{answer ? null : null}</section>;
}
