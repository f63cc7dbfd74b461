import { useStudio } from "../studio";

export function GpuPicture() {
  const { answer } = useStudio();
  return <section className="blk" id="gpupicture"><h2>GPUs</h2>{answer ? null : null}</section>;
}
