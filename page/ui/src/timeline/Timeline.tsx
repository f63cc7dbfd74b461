import { useStudio } from "../studio";

export function Timeline() {
  const { answer } = useStudio();
  return <section className="blk" id="timeline"><h2>One step</h2>{answer ? null : null}</section>;
}
