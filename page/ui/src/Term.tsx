// A word of the field with its meaning in two sentences, and its number here.
import type { ReactNode } from "react";
import { Button, Dialog, DialogTrigger, Popover } from "react-aria-components";

const kMeanings: Record<string, string> = {
  exposed: "Time in which a GPU's compute units have nothing to do, because they wait for data on its way from another GPU. Communication while something computes is hidden, and costs next to nothing.",
  bubble: "Time in which a GPU waits for another stage of the pipeline: at the beginning and the end of a step, and where stages are not equally long. More micro-batches, or more chunks a stage, make it shorter.",
  stall: "Time in which a kernel could run, but stands in a hardware queue after one that waits for a transfer. With CUDA_DEVICE_MAX_CONNECTIONS=1 all streams share one queue.",
  host: "Time in which a kernel waits until the CPU has a core free to launch it. CUDA graphs launch many kernels at once.",
  mfu: "Model FLOPs utilisation: the floating-point operations that the model needs, over those that the GPUs could do in this time at their dense peak. Recomputation counts for nothing.",
};
const kOf = (id: string) => (id in kMeanings ? id : "exposed");

export function Term({ id, name, here, children }: { id: string; name: string; here?: string; children: ReactNode }) {
  return <DialogTrigger><Button className="term" aria-label={`${name}: what it means`}>{children}</Button>
    <Popover className="pop" placement="bottom start"><Dialog className="about" aria-label={name}><h2>{name}</h2><p>{kMeanings[kOf(id)]}</p>
      {here && <dl><div><dt>here</dt><dd className="num">{here}</dd></div></dl>}</Dialog></Popover></DialogTrigger>;
}
