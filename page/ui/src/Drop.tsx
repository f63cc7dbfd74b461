// A file that is dropped anywhere, or chosen: a config.json of Hugging Face's or a scenario's TOML.
import { useEffect, useState } from "react";
import { useStudio } from "./studio";

export function useDrop() {
  const { go, say, show, address } = useStudio();
  const take = async (file: File | undefined) => {
    if (!file) return;
    const isConfig = file.name.endsWith(".json"), isScenario = file.name.endsWith(".toml");
    if (/\.(json\.gz|pt\.trace\.json|pftrace|nsys-rep|sqlite)$/.test(file.name)) return show("trace");
    if (!isConfig && !isScenario)
      return say({ text: `${file.name}: a config.json of Hugging Face's or a scenario's TOML is accepted here; for a script of Megatron-LM, NeMo or torchtitan use: stretto import ${file.name}` });
    let text = await file.text();
    if (isConfig) {
      try {
        text = JSON.stringify(JSON.parse(text));  // shorter in the address
      } catch { /* the predictor says what is wrong with it */ }
    }
    go({ source: isConfig ? "config" : "toml", name: text, platform: "", profile: "", gpus: 0, set: {} });
    say({ text: `Took ${file.name}`, undo: () => go(address.state) });
  };
  return take;
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
  return isOver ? <div className="drop-here">config.json or scenario.toml</div> : null;
}

export function FileButton() {
  const take = useDrop();
  return <label className="link file" title="a config.json of Hugging Face's or a scenario's TOML; or drop it anywhere">open a file<input type="file" id="drop" accept=".json,.toml" onChange={(event) => { void take(event.target.files?.[0]); event.target.value = ""; }} /></label>;
}
