// The question as a sentence whose words are its controls: the only place where model, GPUs, framework, batch and precision are chosen.
import { useEffect } from "react";
import { sentenceOf } from "./copying";
import { NumberWord, Picker, readCount } from "./controls";
import { count } from "./format";
import { modelName, platformName, platformShort, profileName } from "./names";
import { precisionChoices, precisionOf, withPrecision } from "./precision";
import type { State } from "./state";
import { useStudio } from "./studio";
import { publishedSteps } from "./accuracy";
import { useIsSmall } from "./useIsSmall";

const kDropped: Partial<Record<State["source"], string>> = { config: "the dropped config.json", toml: "the dropped scenario" };

export function Question() {
  const { address, answer, answered, lists, go, setting, trace } = useStudio();
  const { state, view } = address;
  const isSmall = useIsSmall();
  const values = answer?.values ?? {};
  const gpus = state.gpus || answer?.simulate.ranks || 0;
  const platform = state.platform || answer?.platform || "";
  const profile = state.profile || answer?.profile || "";
  const batch = Number(state.set["training.global_batch_size"] ?? values["training.global_batch_size"] ?? 0);
  const sequence = Number(state.set["model.seq_length"] ?? values["model.seq_length"] ?? 0);
  const precision = answer ? precisionOf(answer) : { id: "", name: "…" };
  const model = kDropped[state.source] ?? modelName(state.name);

  const models = [
    ...(lists?.scenarios ?? []).map((name) => ({ id: `scenario:${name}`, name: modelName(name), hint: name, group: "With a layout that was published or chosen" })),
    ...(lists?.presets ?? []).map((name) => ({ id: `preset:${name}`, name: modelName(name), hint: "sizes alone", group: "Models alone" })),
  ];
  const whole = (x: number) => (x ? count(x) : "…");
  const words = {
    model: <Picker label="model" value={`${state.source}:${state.name}`} text={model} choices={models} onChoose={(id) => {
      const [source, name] = [id.slice(0, id.indexOf(":")), id.slice(id.indexOf(":") + 1)];
      go({ source: source as State["source"], name, platform: state.platform, profile: "", gpus: 0, set: {} });
    }} />,
    gpus: <NumberWord label="number of GPUs" value={gpus} write={whole} read={readCount} onChange={(x) => {
      const set = { ...state.set };
      delete set["parallel.data_parallel_size"];
      go({ ...state, set, gpus: x });
    }} />,
    platform: <Picker label="GPU" value={platform} text={isSmall ? platformShort(platform) : platformName(platform) || "…"}
      choices={(lists?.platforms ?? []).map((name) => {
        const steps = publishedSteps(lists, profile, name);
        return { id: name, name: platformName(name), hint: steps ? `${steps} published steps` : "", words: name };
      })} onChoose={(platform) => go({ ...state, platform })} />,
    profile: <Picker label="framework" value={profile} text={answer || state.profile ? profileName(profile) : "…"} choices={(lists?.profiles ?? []).map((name) => ({
      id: name, name: profileName(name), hint: name }))} onChoose={(profile) => go({ ...state, profile })} />,
    batch: <NumberWord label="sequences a step" value={batch} write={whole} read={readCount} onChange={(x) => setting("training.global_batch_size", String(Math.round(x)))} />,
    sequence: <NumberWord label="tokens a sequence" value={sequence} write={whole} read={readCount} onChange={(x) => setting("model.seq_length", String(Math.round(x)))} />,
    precision: <Picker label="precision" value={precision.id} text={precision.name} choices={precisionChoices} onChoose={(id) => go(withPrecision(state, id))} />,
  };
  const start = view === "search" ? "Search layouts of" : view === "compare" ? "Variants of" : view === "trace" ? `${trace?.name ?? "A profile"} against` : "Train";
  const finding = answer ? sentenceOf(answered ?? state, answer, null) : "Stretto predicts the step of a training run";
  useEffect(() => { document.title = `${finding.split(";")[0]} – Stretto`; }, [finding]);
  return <section className="ask" aria-label="scenario">
    <h1 className="unseen">{finding}</h1>
    {isSmall
      ? <p>{words.model} on {words.gpus} × {words.platform} with {words.profile}, {words.batch} × {words.sequence} tokens, {words.precision}</p>
      : <p>{start} {words.model} on {words.gpus} × {words.platform} with {words.profile}, {words.batch} sequences of {words.sequence} tokens a step in {words.precision}.</p>}
  </section>;
}
