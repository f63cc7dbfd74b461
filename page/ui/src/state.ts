// A scenario as the address holds it: #scenario=llama3-70b&platform=h200-sxm&gpus=128&parallel.tensor_model_parallel_size=8&pin=…
// `preset`, `config` (a config.json) and `toml` (a scenario) may stand in place of `scenario`; a `pin` is another state.

export const kSources = ["scenario", "preset", "config", "toml"] as const;
export type Source = (typeof kSources)[number];

export interface State {
  source: Source;
  name: string;      // of the scenario or preset, or the text of the file
  platform: string;  // "": the scenario's
  profile: string;   // "": the scenario's
  gpus: number;      // 0: the scenario's; otherwise data parallelism makes up this number
  set: Record<string, string>;  // "section.key" -> value
  label?: string;    // of a pin
}
export const kViews = ["step", "search", "compare", "trace", "learn"] as const;
export type View = (typeof kViews)[number];
export interface Address {
  state: State;
  pins: State[];
  view: View;
  page: number;     // of view Learn, from 1
  tokens: number;   // of the run
  price: number;    // of a GPU-hour
}

export const kStart: State = { source: "scenario", name: "llama3-70b", platform: "", profile: "", gpus: 0, set: {} };
export const kTokens = 1e12, kPrice = 2.5;
export const kMostPins = 4;

export function parseState(text: string): State {
  const query = new URLSearchParams(text);
  const source = kSources.find((one) => query.has(one)) ?? "scenario";
  const set: Record<string, string> = {};
  for (const [key, value] of query) if (key.includes(".")) set[key] = value;
  const state: State = { source, name: query.get(source) ?? "", platform: query.get("platform") ?? "",
                         profile: query.get("profile") ?? "", gpus: Number(query.get("gpus") ?? 0) || 0, set };
  const label = query.get("label");
  return label ? { ...state, label } : state;
}

export function writeState(state: State): string {
  const query = new URLSearchParams([[state.source, state.name]]);
  if (state.platform) query.set("platform", state.platform);
  if (state.profile) query.set("profile", state.profile);
  if (state.gpus) query.set("gpus", String(state.gpus));
  for (const [key, value] of Object.entries(state.set)) query.set(key, value);
  if (state.label) query.set("label", state.label);
  return query.toString();
}

export function parseAddress(hash: string): Address {
  const [own, ...others] = hash.replace(/^#/, "").split("&pin=");
  const query = new URLSearchParams(own);
  const state = parseState(own);
  const view = kViews.find((one) => one === query.get("view")) ?? "step";
  return { state: state.name ? state : kStart, pins: others.slice(0, kMostPins).map((one) => parseState(decodeURIComponent(one))),
           view, page: Number(query.get("page")) || 1, tokens: Number(query.get("tokens")) || kTokens,
           price: Number(query.get("price")) || kPrice };
}

export function writeAddress({ state, pins, view, page, tokens, price }: Address): string {
  const more = new URLSearchParams();
  if (view !== "step") more.set("view", view);
  if (view === "learn" && page !== 1) more.set("page", String(page));
  if (tokens !== kTokens) more.set("tokens", String(tokens));
  if (price !== kPrice) more.set("price", String(price));
  const text = more.toString();
  return "#" + [writeState(state) + (text ? `&${text}` : ""), ...pins.map((pin) => "pin=" + encodeURIComponent(writeState(pin)))].join("&");
}

// Returns the state with a setting changed; null: as the scenario has it. The number of GPUs stays where a size of the layout
// changes, so data parallelism gives way; a chosen data-parallel size decides the number of GPUs instead.
export function withSetting(state: State, key: string, value: string | null, gpusNow: number): State {
  const set = { ...state.set };
  if (value === null) delete set[key];
  else set[key] = value;
  if (key === "parallel.data_parallel_size") return { ...state, set, gpus: 0 };
  const isSize = /^parallel\.(tensor|pipeline|context)_.*parallel_size$/.test(key) && !key.includes("virtual");
  if (!isSize) return { ...state, set };
  delete set["parallel.data_parallel_size"];
  return { ...state, set, gpus: state.gpus || gpusNow };
}
