// The form: a control for every key of a scenario, made from the lists that the predictor has.

const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

// Texts of the lists have links and code as Markdown.
const plain = (text) => text.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").replace(/`/g, "");

// A value as --set takes it.
const textOf = (value) => (typeof value === "string" ? value : JSON.stringify(value));

const kSliderSteps = 12;  // 1, 2, 4, … 2048

class Form {
  #controls = new Map();  // key -> { row, show(value), gates }

  // `change(key, text)` is called for every change by hand; text null: as the scenario has it.
  constructor(lists, change, pinAll) {
    this.lists = lists;
    this.change = change;
    this.pinAll = pinAll;
    const first = new Set(lists.first);
    const rows = { first: document.getElementById("first"), overlap: document.getElementById("overlap"),
                   others: document.getElementById("others") };
    const byName = new Map(lists.keys.map((key) => [key.key, key]));
    for (const name of lists.first) rows.first.append(this.#row(byName.get(name), true));
    for (const key of lists.keys) {
      if (first.has(key.key)) continue;
      const isSwitch = key.section === "overlap" && key.kind === "boolean";
      if (key.section === "compare" || key.name === "preset" || key.name === "hf_config") continue;
      (isSwitch ? rows.overlap : rows.others).append(this.#row(key, false));
    }
    document.getElementById("search").addEventListener("input", ({ target }) => {
      for (const row of rows.others.children) row.hidden = !row.dataset.key.includes(target.value.trim());
    });
  }

  #row(key, isFirst) {
    const id = `key-${key.key}`, hint = `${id}-hint`;
    const row = make("div", { className: "key" });
    row.dataset.key = key.key;
    const undo = make("button", { type: "button", className: "undo", textContent: "undo", hidden: true });
    undo.setAttribute("aria-label", `undo the change of ${key.name}`);
    undo.addEventListener("click", () => this.change(key.key, null));
    const label = make("label", { htmlFor: id, textContent: key.name, title: plain(key.meaning) });
    const tell = (text) => this.change(key.key, text);
    let input, show, extra = [];
    if (key.kind === "boolean") {
      input = make("input", { type: "checkbox", id });
      input.addEventListener("change", () => tell(String(input.checked)));
      label.prepend(input);
      show = (value) => (input.checked = value === true);
    } else if (key.kind === "word") {
      input = make("select", { id }, ...key.choices.map((word) => make("option", { value: word, textContent: word || "none" })));
      input.addEventListener("change", () => tell(input.value));
      show = (value) => (input.value = value ?? "");
      if (isFirst && key.choices.length > 2) {
        const all = make("button", { type: "button", className: "undo", textContent: "pin all" });
        all.setAttribute("aria-label", `pin a variant for every ${key.name}`);
        all.addEventListener("click", () => this.pinAll(key));
        extra = [all];
      }
    } else {
      const isNumber = key.kind === "integer" || key.kind === "number";
      input = make("input", { type: isNumber ? "number" : "text", id, step: key.kind === "integer" ? "1" : "any" });
      if (isNumber && key.least !== null) input.min = key.least;
      input.addEventListener("change", () => tell(input.value === "" ? null : input.value));
      show = (value) => (input.value = value === undefined ? "" : textOf(value));
    }
    const about = make("p", { className: "meaning", id: hint, textContent: plain(key.meaning) });
    input.setAttribute("aria-describedby", hint);
    if (isFirst && key.kind === "integer") {
      const slider = make("input", { type: "range", min: "0", max: String(kSliderSteps - 1), step: "1" });
      slider.setAttribute("aria-label", `${key.name}, powers of two`);
      slider.addEventListener("input", () => {
        input.value = String(2 ** Number(slider.value));
        slider.setAttribute("aria-valuetext", input.value);
        tell(input.value);
      });
      const showInput = show;
      show = (value) => {
        showInput(value);
        slider.value = String(Math.round(Math.log2(Math.max(1, value ?? 1))));
        slider.setAttribute("aria-valuetext", String(value));
      };
      row.append(make("div", { className: "head" }, label, undo), make("div", { className: "pair" }, slider, input), about);
    } else {
      row.append(make("div", { className: "head" }, label, ...extra, undo), ...(key.kind === "boolean" ? [] : [input]), about);
    }
    about.hidden = isFirst;  // the label's title and the input's description have it
    const gates = make("div", { id: `${id}-gates` });
    row.append(gates);
    this.#controls.set(key.key, { row, show, undo, gates, name: key.name, isFirst, isSwitch: key.kind === "boolean" });
    return row;
  }

  // Shows the values that act, which keys were changed, and the gates of every switch.
  show(answer, set) {
    const byKnob = new Map();
    for (const gate of answer.gates) byKnob.set(gate.knob, [...(byKnob.get(gate.knob) ?? []), gate]);
    for (const [key, control] of this.#controls) {
      control.show(answer.values[key]);
      // Sizes and words of experts are for models that have some.
      if (control.isFirst && /\.(expert|moe)_/.test(key)) control.row.hidden = !answer.values["model.num_moe_experts"];
      // A switch that stands for other keys has no value of its own.
      if (control.isSwitch) control.row.hidden = answer.values[key] === undefined;
      this.mark(key, set.has(key));
      const gates = byKnob.get(control.name) ?? [];
      control.gates.replaceChildren(...gates.map((gate) => make("p", {
        className: gate.open ? "gate" : "gate closed",
        textContent: `${gate.open ? "open" : "closed"}: needs ${plain(gate.needs)}` +
          (gate.open || !gate.why ? "" : `. ${plain(gate.why)}`) + (gate.source ? ` (${gate.source})` : "") })));
    }
  }

  mark(key, isChanged) {
    const control = this.#controls.get(key);
    if (!control) return;
    control.row.classList.toggle("changed", isChanged);
    control.undo.hidden = !isChanged;
  }
}
