// The state of the page, which its address holds, and what is shown of it.
//   #scenario=llama3-70b&platform=h200-sxm&profile=torchtitan&gpus=128&parallel.tensor_model_parallel_size=8&pin=…
// `preset`, `config` (a config.json) and `toml` (a scenario) may stand in place of `scenario`; a `pin` is another state.

const kMostPins = 4;
const quick = new Engine(), slow = new Engine();  // what a slider waits for, and what may take seconds
const byId = (id) => document.getElementById(id);
const kSources = ["scenario", "preset", "config", "toml"];

let lists = null, form = null, state = null, pins = [];  // pins: [{ state, answer, strip }]
let newest = null;  // the state that is computed last
let current = { answer: null, strip: null, texts: null };

const parseState = (text) => {
  const query = new URLSearchParams(text);
  const source = kSources.find((one) => query.has(one)) ?? "scenario";
  const one = { source, name: query.get(source) ?? "", platform: query.get("platform") ?? "",
                profile: query.get("profile") ?? "", gpus: Number(query.get("gpus") ?? 0), set: new Map() };
  for (const [key, value] of query) if (key.includes(".")) one.set.set(key, value);
  return one;
};

const writeState = (one) => {
  const query = new URLSearchParams([[one.source, one.name]]);
  if (one.platform) query.set("platform", one.platform);
  if (one.profile) query.set("profile", one.profile);
  if (one.gpus) query.set("gpus", one.gpus);
  for (const [key, value] of one.set) query.set(key, value);
  return query.toString();
};

const copyOf = (one) => ({ ...one, set: new Map(one.set) });

const writeAddress = () =>
  history.replaceState(null, "", "#" + [writeState(state), ...pins.map((pin) => "pin=" + encodeURIComponent(writeState(pin.state)))].join("&"));

// ---- asking ----

const started = new Map();  // [source and name] -> files

// Returns the files that a state names, and the scenario as a request names it.
async function filesOf(one) {
  if (one.source === "scenario") return { scenario: one.name, files: [] };
  const key = one.source + "\n" + one.name;
  if (!started.has(key)) {
    if (one.source === "toml") {
      started.set(key, [{ name: "scenario.toml", text: one.name }]);
    } else {
      const config = one.source === "config" ? [{ name: "config.json", text: one.name }] : [];
      const text = await quick.ask({ what: "start", model: config.length ? "config.json" : one.name }, config);
      const start = JSON.parse(text);
      if (start.error) throw new Error(start.error);
      started.set(key, [...config, { name: "scenario.toml", text: start.toml }]);
    }
  }
  return { scenario: "scenario.toml", files: started.get(key) };
}

// Returns the answer to `what` about a state as text.
async function askText(engine, what, one) {
  try {
    const { scenario, files } = await filesOf(one);
    const set = [...(one.profile ? [["profile", one.profile]] : []), ...one.set].map(([key, value]) => `${key}=${value}`);
    return await engine.ask({ what, scenario, platform: one.platform, gpus: one.gpus, set }, files);
  } catch (problem) {
    return JSON.stringify({ error: problem.message });
  }
}
const askAbout = async (engine, what, one) => JSON.parse(await askText(engine, what, one));

// ---- showing ----

const tableOf = ({ headers, cells }) => make("table", {},
  make("thead", {}, make("tr", {}, ...headers.map((text) => make("th", { textContent: text, scope: "col" })))),
  make("tbody", {}, ...cells.map((row) => make("tr", {}, ...row.map((text) => make("td", { textContent: text }))))));

const barRow = (name, parts, whole, text) => make("div", { className: "row" }, make("span", { textContent: name }),
  make("div", { className: "bar" }, ...parts.map(({ size, colour, title }) => {
    const part = make("span", { title });
    part.style.cssText = `width: ${Math.max(0, (100 * size) / whole)}%; background: ${colour}`;
    return part;
  })), make("span", { textContent: text }));

const share = (x) => `${(100 * x).toFixed(1)} %`;
const gib = (bytes) => `${(bytes / 2 ** 30).toFixed(2)} GiB`;

function showTime(result) {
  byId("time").replaceChildren(...result.limits.filter(({ share: x }) => x >= 0.0005).map(({ what, share: x }) =>
    barRow(what, [{ size: x, colour: "var(--m0)", title: what }], 1, share(x))));
}

const kMemory = ["parameters", "gradients", "optimizer state", "activations and all other tensors",
                 "held by the allocator", "outside of tensors"];
function showMemory(result) {
  const rows = result.memory.map((stage) => {
    const sizes = [stage.parameter_bytes, stage.gradient_bytes, stage.optimizer_state_bytes];
    sizes.push(stage.allocated_bytes - sizes[0] - sizes[1] - sizes[2], stage.held_bytes, result.reserved_bytes);
    return { stage, sizes, all: stage.allocated_bytes + stage.held_bytes + result.reserved_bytes };
  });
  const whole = Math.max(result.device_bytes, ...rows.map((row) => row.all));
  const legend = make("ul", { className: "legend" }, ...kMemory.map((name, i) => {
    const box = make("i");
    box.style.background = `var(--m${i})`;
    return make("li", {}, box, name);
  }));
  byId("memory").replaceChildren(legend, ...rows.map(({ stage, sizes, all }) => barRow(stage.stage,
    sizes.map((size, i) => ({ size, colour: `var(--m${i})`, title: `${kMemory[i]}: ${gib(size)}` })), whole,
    `${gib(all)}${all > result.device_bytes ? ", too much" : ""}`)),
    make("p", { className: "hint", textContent: `The device has ${gib(result.device_bytes)}; ` +
      `${share(result.device_bytes / whole)} of the width.` }), make("div", { className: "table" }, tableOf(current.answer.shown.memory)));
}

const variants = () => [{ state, ...current, name: "this one" }, ...pins.map((pin, i) => ({ ...pin, name: `pin ${i + 1}` }))];
const labelOf = (one) => [one.source === "config" ? "config.json" : one.source === "toml" ? "dropped TOML" : one.name, one.platform, one.profile,
  one.gpus ? `${one.gpus} GPUs` : "", ...[...one.set].map(([key, value]) => `${key.slice(key.indexOf(".") + 1)} ${value}`)]
  .filter(Boolean).join(", ");

function showVariants() {
  const all = variants();
  const strips = all.filter((one) => one.strip?.tracks);
  const longest = Math.max(1, ...strips.map((one) => one.strip.step_ps));
  byId("strips").replaceChildren(...all.map((one, i) => {
    const canvas = make("canvas");
    const caption = make("figcaption", {}, make("span", { textContent: `${one.name}: ${labelOf(one.state)}` }));
    if (one.answer?.simulate) caption.append(make("strong", { textContent: one.answer.headline[0].text }));
    if (one.answer?.error ?? one.strip?.error) caption.append(make("span", { textContent: one.answer?.error ?? one.strip.error }));
    if (i > 0) {
      const drop = make("button", { type: "button", textContent: "unpin" });
      drop.setAttribute("aria-label", `unpin variant ${i}`);
      drop.addEventListener("click", () => { pins.splice(i - 1, 1); writeAddress(); showVariants(); });
      const take = make("button", { type: "button", textContent: "go to it" });
      take.addEventListener("click", () => { state = copyOf(one.state); update(); });
      caption.append(take, drop);
    }
    const figure = make("figure", {}, caption);
    if (one.strip?.tracks) {
      figure.append(canvas);
      requestAnimationFrame(() => drawStrip(canvas, one.strip, lists.bars, longest));
    }
    return figure;
  }));
  const done = all.filter((one) => one.answer?.simulate);
  byId("variants").replaceChildren(...(done.length < 2 ? [] : [tableOf({
    headers: ["", ...done[0].answer.headline.map(({ what }) => what.split(":")[0]), "bubble"],
    cells: done.map((one) => [one.name, ...one.answer.headline.map(({ text }) => text),
                              one.answer.shown.summary.cells.find(([what]) => what === "bubble")?.[1] ?? ""]) })]));
}

function showAnswer(answer, isNewest) {
  byId("problem").hidden = !answer.error;
  byId("problem").textContent = answer.error ?? "";
  byId("result").classList.toggle("stale", Boolean(answer.error));
  if (answer.error) return;
  byId("result").hidden = false;
  if (isNewest) {  // a slider that has moved on stays where it is
    form.show(answer, state.set);
    byId("gpus").value = answer.simulate.ranks;
  }
  byId("headline").replaceChildren(...answer.headline.map(({ what, text }) =>
    make("div", {}, make("dt", { textContent: what }), make("dd", { textContent: text }))));
  byId("summary").replaceChildren(tableOf(answer.shown.summary));
  byId("notes").replaceChildren(...answer.simulate.notes.map((text) => make("li", { textContent: text })));
  showTime(answer.simulate);
  showMemory(answer.simulate);
}

function showTexts(texts) {
  byId("command").textContent = texts.command ?? texts.error;
  byId("toml").textContent = texts.toml ?? "";
  const flags = texts.megatron ?? {};
  byId("megatron").textContent = flags.error ?? [...(flags.notes ?? []).map((note) => `# ${note}\n`), flags.text ?? ""].join("");
  byId("json").textContent = JSON.stringify(current.answer.simulate, null, 2);
}

// ---- acting ----

const textsOf = newestOnly(async (one, isNewest) => {
  const texts = await askAbout(slow, "texts", one);
  if (isNewest()) showTexts(texts);
});

// A strip takes as long as several steps: it waits until the slider rests, so that it takes no processor from the next move.
const kRestMs = 250;
const stripOf = newestOnly(async ({ one, shown }) => {
  await new Promise((resolve) => setTimeout(resolve, kRestMs));
  if (one !== newest) return;
  shown.strip = await askAbout(slow, "strip", one);
  if (one === newest) showVariants();
});

const compute = newestOnly(async (one, isNewest) => {
  byId("status").textContent = "computing …";
  const begin = performance.now();
  const text = await askText(quick, "step", one);
  const answer = JSON.parse(text);
  current = { answer, text, strip: null };
  showAnswer(answer, isNewest());
  const ms = performance.now() - begin;
  window.stretto.shown = { text, ms, at: performance.now() };
  byId("status").textContent = answer.error ? "" : `${answer.headline.map(({ what, text }) => `${what} ${text}`).slice(0, 2).join(", ")}; ` +
    `computed in ${ms.toFixed(0)} ms`;
  if (!isNewest() || answer.error) return;
  textsOf(one);
  stripOf({ one, shown: current });
});

function update() {
  writeAddress();
  byId("source").value = state.source === "config" || state.source === "toml" ? "dropped" : `${state.source}:${state.name}`;
  byId("platform").value = state.platform;
  byId("profile").value = state.profile;
  byId("limits").hidden = true;
  newest = copyOf(state);
  return compute(newest);
}

function change(key, text) {
  if (text === null) state.set.delete(key);
  else state.set.set(key, text);
  if (key === "parallel.data_parallel_size") state.gpus = 0;
  form.mark(key, text !== null);
  update();
}

async function pin(one) {
  if (pins.length >= kMostPins) pins.shift();
  const made = { state: copyOf(one), answer: null, strip: null };
  pins.push(made);
  writeAddress();
  made.answer = await askAbout(slow, "step", made.state);
  if (!made.answer.error) made.strip = await askAbout(slow, "strip", made.state);
  showVariants();
}

async function pinAll(key) {
  const now = String(current.answer?.values?.[key.key] ?? "");
  pins = [];
  for (const word of key.choices.filter((one) => one !== now).slice(0, kMostPins)) {
    const other = copyOf(state);
    other.set.set(key.key, word);
    await pin(other);
  }
}

async function copy(text, button) {
  const name = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "The browser does not let a page copy; select the text";
  }
  setTimeout(() => (button.textContent = name), 1500);
}

function take(name, text) {
  state.source = name.endsWith(".json") ? "config" : "toml";
  if (state.source === "config") {
    try {
      text = JSON.stringify(JSON.parse(text));  // shorter in the address
    } catch { /* the predictor says what is wrong with it */ }
  }
  state.name = text;
  state.profile = "";
  state.set.clear();
  state.gpus = 0;
  update();
}

async function takeFile(file) {
  if (file) take(file.name, await file.text());
}

const option = (value, text = value) => make("option", { value, textContent: text });

async function begin() {
  window.stretto = {
    ask: (what, hash) => askText(quick, what, parseState(hash)),  // for tests
    go: (hash) => { state = parseState(hash); return update(); },
    engine: quick,
  };
  lists = JSON.parse(await quick.ask({ what: "lists" }));
  if (lists.error) {  // without lists there is no setting to change
    byId("status").textContent = "";
    byId("problem").hidden = false;
    byId("problem").textContent = lists.error.replace("The next change of a setting starts it anew.", "Load the page again to start it anew.");
    return;
  }
  const colours = new CSSStyleSheet();  // not an element, which the page's policy would refuse
  colours.replaceSync(lists.css);
  document.adoptedStyleSheets = [colours];
  form = new Form(lists, change, pinAll);
  const group = (label, ...children) => make("optgroup", { label }, ...children);
  byId("source").append(group("Scenarios", ...lists.scenarios.map((name) => option(`scenario:${name}`, name))),
    group("Models alone", ...lists.presets.map((name) => option(`preset:${name}`, name))),
    option("dropped", "the file that was dropped"));
  byId("source").lastChild.disabled = true;
  byId("platform").append(option("", "as the scenario says"), ...lists.platforms.map((name) => option(name)));
  byId("profile").append(option("", "as the scenario says"), ...lists.profiles.map((name) => option(name)));
  byId("legend").append(...lists.bars.map(({ name, colour }) => {
    const box = make("i");
    box.style.background = `var(--${colour})`;
    return make("li", {}, box, name);
  }));

  byId("source").addEventListener("change", ({ target }) => {
    const [source, name] = target.value.split(":");
    Object.assign(state, { source, name, profile: "", gpus: 0 });
    state.set.clear();
    update();
  });
  byId("platform").addEventListener("change", ({ target }) => { state.platform = target.value; update(); });
  byId("profile").addEventListener("change", ({ target }) => { state.profile = target.value; update(); });
  byId("gpus").addEventListener("change", ({ target }) => {
    state.gpus = Math.max(0, Math.trunc(Number(target.value)));
    state.set.delete("parallel.data_parallel_size");
    update();
  });
  byId("reset").addEventListener("click", () => { state.set.clear(); state.profile = ""; state.gpus = 0; update(); });
  byId("drop").addEventListener("change", ({ target }) => takeFile(target.files[0]));
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => { event.preventDefault(); takeFile(event.dataTransfer.files[0]); });
  byId("pin").addEventListener("click", () => pin(state));
  byId("link").addEventListener("click", ({ target }) => copy(location.href, target));
  for (const button of document.querySelectorAll("button.copy"))
    button.addEventListener("click", () => copy(byId(button.dataset.of).textContent, button));
  byId("ask-limits").addEventListener("click", async ({ target }) => {
    target.disabled = true;
    byId("limits").hidden = false;
    byId("limits-text").replaceChildren(make("p", { role: "status", textContent: "computing; this takes some dozen steps …" }));
    const answer = await askAbout(slow, "limits", state);
    target.disabled = false;
    byId("limits-text").replaceChildren(...(answer.error ? [make("p", { textContent: answer.error })] : [
      make("p", { textContent: answer.tables.path }),
      ...["changes", "machines", "numbers"].map((name) => make("div", { className: "table" }, tableOf(answer.tables[name])))]));
  });
  addEventListener("resize", () => showVariants());
  addEventListener("hashchange", () => restore());
  await restore();
}

// Takes the state of the address.
async function restore() {
  const [own, ...others] = location.hash.slice(1).split("&pin=");
  state = parseState(own);
  if (!state.name) Object.assign(state, { source: "scenario", name: lists.scenarios.includes("llama3-70b") ? "llama3-70b" : lists.scenarios[0] });
  pins = [];
  await update();
  for (const one of others) await pin(parseState(decodeURIComponent(one)));
}

begin();
