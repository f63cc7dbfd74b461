// A file that is dropped anywhere, or chosen: a config.json of Hugging Face's, a scenario's TOML, the settings of another program, or a
// profile.
import { useEffect, useState } from "react";
import { isProblem } from "./answers";
import { askNow } from "./ask";
import { useStudio } from "./studio";
import { isTrace, readTrace } from "./trace/file";

const kAccepts = ".json,.gz,.toml,.sh,.bash,.slurm,.sbatch,.txt,.log,.yaml,.yml,.py";

const kGpu = "h100-sxm";  // where a file says none

// Returns whether a TOML is a scenario: torchtitan's configurations have these sections instead.
const isScenario = (text: string) => !/^\s*\[(job|profiling|metrics|optimizer|checkpoint)\]/m.test(text);

export function useDrop() {
  const { go, say, show, address, setTook, setTrace } = useStudio();
  return async (file: File | undefined) => {
    if (!file) return;
    if (await isTrace(file)) {
      try {
        setTrace(await readTrace(file));
        show("trace");
      } catch (problem) {
        say({ text: (problem as Error).message });
      }
      return;
    }
    let text = await file.text();
    const took = (source: "config" | "toml", name: string, notes: string[]) => {
      const saysGpu = source === "config" || /^platform\s*=/m.test(name);
      go({ source, name, platform: saysGpu ? "" : kGpu, profile: "", gpus: 0, set: {} });
      setTook({ file: file.name, notes });
      say({ text: `Took ${file.name}${notes.length ? `, ${notes.length} notes` : ""}`, undo: () => go(address.state) });
    };
    if (file.name.endsWith(".json")) {
      try {
        text = JSON.stringify(JSON.parse(text));  // shorter in the address
      } catch { /* the predictor says what is wrong with it */ }
      return took("config", text, []);
    }
    if (file.name.endsWith(".toml") && isScenario(text)) return took("toml", text, []);
    const made = await askNow<{ toml: string; notes: string[] }>({ what: "import", name: file.name, text });
    if (isProblem(made)) return say({ text: `${file.name}: ${made.error}` });
    took("toml", made.toml, made.notes);
  };
}

export function Drop() {
  const take = useDrop();
  const [isOver, setOver] = useState(false);
  useEffect(() => {
    const over = (event: DragEvent) => { event.preventDefault(); setOver(true); };
    const leave = (event: DragEvent) => { if (!event.relatedTarget) setOver(false); };
    const drop = (event: DragEvent) => { event.preventDefault(); setOver(false); void take(event.dataTransfer?.files[0]); };
    addEventListener("dragover", over);
    addEventListener("dragleave", leave);
    addEventListener("drop", drop);
    return () => { removeEventListener("dragover", over); removeEventListener("dragleave", leave); removeEventListener("drop", drop); };
  });
  return isOver ? <div className="drop-here">config.json, scenario, a script of Megatron-LM, NeMo or torchtitan, or a profile</div> : null;
}

export function FileButton() {
  const take = useDrop();
  return <label className="link file" title="a config.json of Hugging Face's, a scenario's TOML, a script of Megatron-LM, NeMo or torchtitan, a profile; or drop it anywhere">open a file
    <input type="file" id="drop" accept={kAccepts} onChange={(event) => { void take(event.target.files?.[0]); event.target.value = ""; }} /></label>;
}

// Says which file the scenario is from, and what its reader noted.
export function Took() {
  const { took, address } = useStudio();
  if (!took || took.notes.length === 0 || address.state.source !== "toml") return null;
  return <details className="took"><summary>Took {took.file}: {took.notes.length} {took.notes.length === 1 ? "note" : "notes"}</summary><ul>{took.notes.map((note) => <li key={note}>{note}</li>)}</ul></details>;
}
