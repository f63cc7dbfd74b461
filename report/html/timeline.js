// Draws the timelines. The data (report/html.cpp):
//   phases  names, by number          works   texts such as "gemm 512x256x1024 nn"
//   colours [variable of the style, what it stands for]    kinds   of bars: [name, colour]
//   labels  [name, phase, work, colour]       steps   {title, layout, sides, operations: [name, kind, predicted ms, measured ms]}
//   side    {title, step, stages, all_bars, lanes, tracks, ranks, window, left_out}; all times are nanoseconds from
//           the step's beginning; window: [begin, end] of the operations that tracks have, null where they have all
//   stage   {role, rank, bars}, where bars are six numbers each: kind, micro-batch, chunk, distance from the end of the
//           bar before, time in which it computes, time in which it waits between that
//   track   {rank, role, slices}, where slices are five numbers each: label, lane, start, waiting for peers, duration
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const STRIDE = 5, BAR_STRIDE = 6, RIGHT = 16, ROW = 18, HEADING = 46, TRACK_GAP = 7, SIDE_GAP = 22;
  let gutter, lanes;  // where the drawing begins, and in front of it the names of lanes; draw() sets both

  const element = (name, properties, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };
  const time = (ns, digits = 3) => {
    const size = Math.abs(ns);
    if (size >= 1e9) return (ns / 1e9).toFixed(digits) + " s";
    if (size >= 1e6 || size === 0) return (ns / 1e6).toFixed(digits) + " ms";
    return (ns / 1e3).toFixed(digits) + " µs";
  };
  const number = (value) => (value === null ? "–" : value.toFixed(value < 1 ? 4 : 2));

  // ---- the page around the drawing ----

  const root = document.getElementById("timeline");
  const select = element("select", { id: "step" });
  data.steps.forEach((step, i) => select.append(element("option", { value: i, textContent: step.title })));
  const button = (text, label, action) => {
    const made = element("button", { type: "button", textContent: text, title: label, onclick: action });
    made.setAttribute("aria-label", label);
    return made;
  };
  const windowOf = () => step.sides.map((side) => side.window).find((window) => window !== null);
  const operationsButton = button("operations", "show the stretch whose operations this page has", () => show(...windowOf()));
  const help = "Drag to zoom into a stretch, Shift and drag to move; click, then the wheel zooms. Keys: + − ← → 0.";
  const canvas = element("canvas", { tabIndex: 0 });
  canvas.setAttribute("role", "img");
  const hint = element("div", { className: "hint", hidden: true });
  const notes = element("p", { className: "remark" });
  const where = element("p", { className: "remark" });  // the step's name and layout, which a narrow page breaks
  const operations = element("div", { className: "table" });
  const legend = element("ul", { className: "legend" });
  root.append(
    element("div", { className: "controls" }, element("label", { htmlFor: "step", textContent: "Step" }), select,
      button("+", "zoom in", () => zoom(0.5)), button("−", "zoom out", () => zoom(2)),
      button("whole step", "show the whole step", () => show(...whole())), operationsButton, element("span", { className: "help", textContent: help })),
    where, legend, element("div", { className: "lanes" }, canvas, hint), notes,
    element("details", {}, element("summary", { textContent: "the numbers: time of each operation in a step, mean over ranks" }),
      operations));

  // ---- what is shown ----

  let step, rows, headings, height, from, to, style, hovered = null, drag = null;

  // The bars of a stage with their starts and ends.
  const barsOf = (stage) => {
    const bars = [];
    let end = 0;
    for (let i = 0; i < stage.bars.length; i += BAR_STRIDE) {
      const [kind, microBatch, chunk, gap, computes, waits] = stage.bars.slice(i, i + BAR_STRIDE);
      bars.push({ kind, microBatch, chunk, computes, start: end + gap, end: end + gap + computes + waits });
      end += gap + computes + waits;
    }
    return bars;
  };
  const chunksOf = (side) => side.stages.some((stage) => stage.bars.some((value, i) => i % BAR_STRIDE === 2 && value > 0));

  // Operations of a stretch of the step are shown when it is no less than a tenth of what is in sight.
  const hasOperations = (side) => {
    if (side.window === null) return true;
    const seen = Math.min(to, side.window[1]) - Math.max(from, side.window[0]);
    return seen >= 0.1 * (to - from);
  };
  const sight = () => step.sides.map(hasOperations).join();
  let laidOut = "";

  // Rows of the drawing: the bars of each stage, then each lane of each track that has operations; sides below each other.
  const layOut = () => {
    laidOut = sight();
    rows = [];
    headings = [];
    let y = 0;
    for (const side of step.sides) {
      headings.push({ side, y });
      y += HEADING;
      const hasChunks = chunksOf(side);
      for (const stage of side.stages) {
        rows.push({ y, side, bars: barsOf(stage), hasChunks, name: stage.role, rank: stage.rank });
        y += ROW;
      }
      if (side.stages.length > 0) y += 2 * TRACK_GAP;
      for (const track of hasOperations(side) ? side.tracks : []) {
        const lanes = new Map();
        for (let i = 0; i < track.slices.length; i += STRIDE) {
          const lane = track.slices[i + 1];
          if (!lanes.has(lane)) lanes.set(lane, []);
          lanes.get(lane).push(i);
        }
        const role = new Set(side.tracks.map((t) => t.role)).size > 1 ? track.role + " " : "";
        for (const [lane, slices] of [...lanes].sort((a, b) => a[0] - b[0])) {
          rows.push({ y, side, track, slices, name: `${role}rank ${track.rank}`, lane: side.lanes[lane] });
          y += ROW;
        }
        y += TRACK_GAP;
      }
      y += SIDE_GAP;
    }
    height = y;
  };
  const whole = () => {
    let first = 0, last = 0;
    for (const side of step.sides) {
      last = Math.max(last, side.step);
      for (const row of rows)
        if (row.bars && row.side === side && row.bars.length > 0) {
          first = Math.min(first, row.bars[0].start);
          last = Math.max(last, row.bars[row.bars.length - 1].end);
        }
      for (const track of side.tracks)
        for (let i = 0; i < track.slices.length; i += STRIDE) {
          first = Math.min(first, track.slices[i + 2]);
          last = Math.max(last, track.slices[i + 2] + track.slices[i + 4]);
        }
    }
    return [first, Math.max(last, first + 1)];
  };

  const plotWidth = () => canvas.clientWidth - gutter - RIGHT;
  const xOf = (ns) => gutter + ((ns - from) / (to - from)) * plotWidth();
  const timeAt = (x) => from + ((x - gutter) / plotWidth()) * (to - from);

  const show = (a, b) => {
    const [first, last] = whole();
    const span = Math.min(Math.max(b - a, 100), last - first);
    from = Math.min(Math.max(a, first), last - span);
    to = from + span;
    if (sight() !== laidOut) layOut();
    draw();
  };
  const zoom = (factor, centre = (from + to) / 2) => show(centre - (centre - from) * factor, centre + (to - centre) * factor);

  // ---- drawing ----

  const readStyle = () => {
    const computed = getComputedStyle(document.documentElement);
    const of = (name) => computed.getPropertyValue(name).trim();
    const dark = (hex) => {
      const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
      return 0.299 * r + 0.587 * g + 0.114 * b < 140;
    };
    const fill = data.colours.map(([variable]) => of(variable));
    style = { fill, text: fill.map((hex) => (dark(hex) ? "#ffffff" : "#111111")), ink: of("--ink"), muted: of("--muted"),
      line: of("--line"), page: of("--page"), panel: of("--panel"), blue: of("--blue") };
  };
  const tickStep = () => {
    const raw = (to - from) / Math.max(2, plotWidth() / 110), power = 10 ** Math.floor(Math.log10(raw));
    return [1, 2, 5, 10].find((factor) => raw <= factor * power) * power;
  };

  const drawAxis = (g, heading, bottom) => {
    g.font = "600 13px system-ui, sans-serif";
    g.fillStyle = style.ink;
    g.textAlign = "left";
    g.fillText(`${heading.side.title}: ${time(heading.side.step)}`, 0, heading.y + 15);
    g.font = "11.5px system-ui, sans-serif";
    g.fillStyle = style.muted;
    g.strokeStyle = style.line;
    g.textAlign = "center";
    const tick = tickStep();
    const [unit, name] = tick >= 1e9 ? [1e9, "s"] : tick >= 1e5 ? [1e6, "ms"] : [1e3, "µs"];
    for (let t = Math.ceil(from / tick) * tick; t <= to; t += tick) {
      const x = xOf(t);
      g.beginPath();
      g.moveTo(x, heading.y + HEADING - 8);
      g.lineTo(x, bottom);
      g.stroke();
      const text = `${+(t / unit).toFixed(6)} ${name}`;
      if (x + g.measureText(text).width / 2 < canvas.clientWidth) g.fillText(text, x, heading.y + HEADING - 13);
    }
  };
  const drawSlice = (g, row, i) => {
    const s = row.track.slices, start = s[i + 2], end = start + s[i + 4];
    if (end < from || start > to) return;
    const [name, , , colour] = data.labels[s[i]];
    const x0 = Math.max(xOf(start), gutter - 1), x1 = Math.max(Math.min(xOf(end), gutter + plotWidth() + 1), x0 + 0.6);
    const moving = Math.min(Math.max(xOf(start + s[i + 3]), x0), x1);
    g.fillStyle = style.fill[colour];
    if (moving > x0) {
      g.globalAlpha = 0.35;
      g.fillRect(x0, row.y, moving - x0, ROW - 3);
      g.globalAlpha = 1;
    }
    const gap = x1 - moving > 3 ? 0.7 : 0;
    g.fillRect(moving, row.y, x1 - moving - gap, ROW - 3);
    if (hovered && hovered.label === s[i]) {
      g.strokeStyle = style.ink;
      g.lineWidth = 1.5;
      g.strokeRect(x0, row.y + 0.5, x1 - x0, ROW - 4);
      g.lineWidth = 1;
    }
    if (x1 - moving > 44) {
      g.save();
      g.beginPath();
      g.rect(moving, row.y, x1 - moving - 3, ROW);
      g.clip();
      g.fillStyle = style.text[colour];
      g.fillText(name.replace(/^h\.\d+ (.*) mb \d+$/, "$1"), moving + 4, row.y + 11.5);
      g.restore();
    }
  };
  // "12" or, with model chunks, "12.3".
  const barText = (row, bar) => (row.hasChunks ? `${bar.microBatch}.${bar.chunk}` : `${bar.microBatch}`);
  const isOfMicroBatch = (bar) => bar.kind < 3;
  // The first bar that ends after the time.
  const firstBar = (bars, time) => {
    let low = 0, high = bars.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (bars[middle].end <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  // A pass of a micro-batch may be several bars, with waits between them that are seen. Other bars stand alone.
  const goesOn = (bar, next) => isOfMicroBatch(bar) && bar.kind === next.kind && bar.microBatch === next.microBatch &&
    bar.chunk === next.chunk;
  // The bars that one is a part of.
  const passOf = (bars, i) => {
    let first = i, last = i;
    while (first > 0 && goesOn(bars[first - 1], bars[first])) --first;
    while (last + 1 < bars.length && goesOn(bars[last], bars[last + 1])) ++last;
    return [first, last];
  };
  // Solid: it computes. Pale: it waits; short waits, which are not seen apart, stand at the end of their bar.
  const drawBars = (g, row) => {
    const right = gutter + plotWidth(), within = (ns) => Math.min(Math.max(xOf(ns), gutter), right);
    g.textAlign = "center";
    for (let i = firstBar(row.bars, from); i < row.bars.length && row.bars[i].start < to; ++i) {
      const [first, last] = passOf(row.bars, i), pass = row.bars.slice(first, last + 1), bar = pass[0];
      const colour = data.kinds[bar.kind][1], x0 = within(bar.start), x1 = within(pass[pass.length - 1].end);
      const gap = x1 - x0 > 3 ? 0.7 : 0;
      g.fillStyle = style.fill[colour];
      g.globalAlpha = 0.3;
      g.fillRect(x0, row.y, x1 - x0 - gap, ROW - 3);
      g.globalAlpha = 1;
      for (const { start, computes } of pass) {
        const left = within(start);
        g.fillRect(left, row.y, Math.max(Math.min(within(start + computes), x1 - gap) - left, 0), ROW - 3);
      }
      if (hovered && hovered.bar && hovered.bar.kind === bar.kind && hovered.bar.microBatch === bar.microBatch &&
          hovered.bar.chunk === bar.chunk) {
        g.strokeStyle = style.ink;
        g.strokeRect(x0, row.y + 0.5, x1 - x0, ROW - 4);
      }
      const text = isOfMicroBatch(bar) ? barText(row, bar) : data.kinds[bar.kind][0];
      if (x1 - x0 > 6.5 * text.length + 4) {
        g.strokeStyle = style.fill[colour];
        g.lineWidth = 3;
        g.strokeText(text, (x0 + x1) / 2, row.y + 11.5);
        g.lineWidth = 1;
        g.fillStyle = style.text[colour];
        g.fillText(text, (x0 + x1) / 2, row.y + 11.5);
      }
      i = last;
    }
  };
  // Which stretch of the stages the operations below are of.
  const drawWindows = (g) => {
    for (const side of step.sides) {
      const stages = rows.filter((row) => row.bars && row.side === side);
      if (side.window === null || stages.length === 0) continue;
      const x0 = Math.max(xOf(side.window[0]), gutter), x1 = Math.min(xOf(side.window[1]), gutter + plotWidth());
      if (x1 <= x0) continue;
      const top = stages[0].y - 3, bottom = stages[stages.length - 1].y + ROW;
      g.strokeStyle = style.ink;
      g.strokeRect(x0 - 0.5, top, Math.max(x1 - x0, 2) + 1, bottom - top);
    }
  };
  const draw = () => {
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
    [gutter, lanes] = width < 700 ? [132, 66] : [212, 100];
    canvas.style.height = height + "px";
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const g = canvas.getContext("2d");
    g.scale(ratio, ratio);
    headings.forEach((heading, i) => drawAxis(g, heading, (i + 1 < headings.length ? headings[i + 1].y : height) - SIDE_GAP));
    g.font = "11.5px system-ui, sans-serif";
    let last = null;
    for (const row of rows) {
      if (row.bars) {
        g.textAlign = "left";
        g.fillStyle = style.ink;
        g.fillText(row.name, 0, row.y + 11.5, gutter - 8);
        drawBars(g, row);
        continue;
      }
      g.textAlign = "left";
      g.fillStyle = style.muted;
      g.fillText(row.lane, lanes, row.y + 11.5, gutter - lanes - 6);
      if (row.track !== last) {
        g.fillStyle = style.ink;
        g.fillText(row.name, 0, row.y + 11.5, lanes - 4);
      }
      last = row.track;
      for (const i of row.slices) drawSlice(g, row, i);
    }
    drawWindows(g);
    // Where the step begins and ends.
    g.strokeStyle = style.ink;
    g.setLineDash([4, 3]);
    headings.forEach((heading, i) => {
      for (const t of [0, heading.side.step])
        if (t >= from && t <= to) {
          g.beginPath();
          g.moveTo(xOf(t), heading.y + HEADING - 8);
          g.lineTo(xOf(t), (i + 1 < headings.length ? headings[i + 1].y : height) - SIDE_GAP);
          g.stroke();
        }
    });
    g.setLineDash([]);
    if (drag && drag.mode === "select") {
      g.globalAlpha = 0.2;
      g.fillStyle = style.blue;
      g.fillRect(Math.min(drag.x, drag.now), 0, Math.abs(drag.now - drag.x), height);
      g.globalAlpha = 1;
    }
  };

  // ---- pointing at an operation ----

  const find = (x, y) => {
    const row = rows.find((r) => y >= r.y && y < r.y + ROW - 2);
    if (!row || x < gutter) return null;
    if (row.bars) {
      const bar = row.bars[firstBar(row.bars, timeAt(x))];
      return bar && bar.start <= timeAt(x) ? { row, bar, label: null } : null;
    }
    const s = row.track.slices, slack = ((to - from) / plotWidth()) * 2, at = timeAt(x);
    let best = null;
    for (const i of row.slices) {
      const off = Math.max(s[i + 2] - at, at - s[i + 2] - s[i + 4], 0);
      if (off <= slack && (best === null || off < best.off)) best = { row, i, off, label: s[i] };
    }
    return best;
  };
  const describeBar = ({ row, bar }) => {
    const [kind] = data.kinds[bar.kind], of = row.hasChunks ? `, chunk ${bar.chunk}` : "";
    const [first, last] = passOf(row.bars, row.bars.indexOf(bar));
    const pass = row.bars.slice(first, last + 1), lasts = pass[pass.length - 1].end - pass[0].start;
    const computes = pass.reduce((sum, part) => sum + part.computes, 0);
    const waits = lasts > computes ? `, waits ${time(lasts - computes)} in between` : "";
    return [isOfMicroBatch(bar) ? `${kind} of micro-batch ${bar.microBatch}${of}` : kind,
      `${row.side.title}\n${row.name}, by rank ${row.rank}\nstarts ${time(pass[0].start)}, computes ${time(computes)}${waits}`];
  };
  const describe = ({ row, i, label }) => {
    const s = row.track.slices, [name, phase, work] = data.labels[label];
    const lines = [data.works[work], `${row.name}, ${row.lane}, ${data.phases[phase]}`,
      `starts ${time(s[i + 2])}, takes ${time(s[i + 4])}`];
    if (s[i + 3] > 0) lines.push(`waits for its peers ${time(s[i + 3])}, transfers ${time(s[i + 4] - s[i + 3])}`);
    for (const other of step.sides) {
      if (other === row.side) continue;
      const track = other.tracks.find((t) => t.rank === row.track.rank);
      for (let k = 0; track && k < track.slices.length; k += STRIDE)
        if (track.slices[k] === label) {
          lines.push(`${other.title}: starts ${time(track.slices[k + 2])}, takes ${time(track.slices[k + 4])}`);
          break;
        }
    }
    return [name, `${row.side.title}\n${lines.join("\n")}`];
  };
  const point = (event) => {
    const found = drag ? null : find(event.offsetX, event.offsetY);
    const changed = (found && (found.bar || found.label)) !== (hovered && (hovered.bar || hovered.label));
    hovered = found;
    hint.hidden = !found;
    if (found) {
      const [name, text] = found.bar ? describeBar(found) : describe(found);
      hint.replaceChildren(element("b", { textContent: name }), text);
      const left = event.offsetX + 16 + hint.offsetWidth > canvas.clientWidth ? event.offsetX - hint.offsetWidth - 12 : event.offsetX + 16;
      hint.style.left = Math.max(0, left) + "px";
      hint.style.top = event.offsetY + 18 + "px";
    }
    if (changed) draw();
  };

  // ---- moving about ----

  canvas.onpointerdown = (event) => {
    if (event.offsetX < gutter) return;
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    drag = { mode: event.shiftKey ? "move" : "select", x: event.offsetX, now: event.offsetX, from, to };
  };
  canvas.onpointermove = (event) => {
    if (drag) {
      drag.now = event.offsetX;
      const shift = ((drag.x - drag.now) / plotWidth()) * (drag.to - drag.from);
      if (drag.mode === "move") show(drag.from + shift, drag.to + shift);
      else draw();
    }
    point(event);
  };
  canvas.onpointerup = () => {
    const done = drag;
    drag = null;
    if (done && done.mode === "select" && Math.abs(done.now - done.x) > 4)
      show(timeAt(Math.max(Math.min(done.x, done.now), gutter)), timeAt(Math.max(done.x, done.now)));
    else draw();
  };
  canvas.onpointercancel = () => { drag = null; draw(); };
  canvas.onpointerleave = () => { hovered = null; hint.hidden = true; draw(); };
  canvas.ondblclick = () => show(...whole());
  canvas.addEventListener("wheel", (event) => {
    // Unless it was asked for, the wheel scrolls the page.
    if (document.activeElement !== canvas && !event.ctrlKey) return;
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const shift = (event.deltaX / plotWidth()) * (to - from);
      show(from + shift, to + shift);
    } else {
      zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY * 0.002))), timeAt(event.offsetX));
    }
  }, { passive: false });
  canvas.onkeydown = (event) => {
    const quarter = (to - from) / 4;
    const actions = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": () => show(...whole()),
      ArrowLeft: () => show(from - quarter, to - quarter), ArrowRight: () => show(from + quarter, to + quarter),
      Escape: () => canvas.blur() };
    if (!actions[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[event.key]();
  };

  // ---- choosing a step ----

  const table = () => {
    const measured = step.sides.length > 1;
    const head = ["operation", "kind", "predicted, ms", ...(measured ? ["measured, ms", "difference, ms"] : [])];
    const line = (cells, name) => element("tr", {}, ...cells.map((text, i) =>
      element(name, { textContent: text, className: i > 1 ? "n" : "" })));
    const body = step.operations.map(([name, kind, predicted, actual]) => {
      const difference = predicted === null || actual === null ? null : predicted - actual;
      const cells = [name, kind, number(predicted)];
      if (measured) cells.push(number(actual), difference === null ? "–" : (difference > 0 ? "+" : "") + difference.toFixed(3));
      return line(cells, "td");
    });
    operations.replaceChildren(element("table", {}, element("thead", {}, line(head, "th")), element("tbody", {}, ...body)));
  };
  const choose = () => {
    step = data.steps[select.value];
    canvas.setAttribute("aria-label", `Timelines of ${step.title}: ` +
      step.sides.map((side) => `${side.title} ${time(side.step)}`).join(", ") + ". The numbers are in the table below.");
    where.textContent = [step.title, step.layout].filter((text) => text).join(": ");
    const used = new Set();
    for (const side of step.sides) {
      for (const stage of side.stages)
        for (let i = 0; i < stage.bars.length; i += BAR_STRIDE) used.add(data.kinds[stage.bars[i]][1]);
      for (const track of side.tracks)
        for (let i = 0; i < track.slices.length; i += STRIDE) used.add(data.labels[track.slices[i]][3]);
    }
    legend.replaceChildren(...data.colours.flatMap(([variable, meaning], i) => used.has(i) ? [element("li", {}, element("i",
      { style: `background: var(${variable})` }), meaning)] : []));
    operationsButton.hidden = !windowOf();
    notes.textContent = step.sides.flatMap((side) => {
      const shown = [];
      if (side.tracks.length < side.ranks) shown.push(`${side.tracks.length} of ${side.ranks} ranks, the first of each role`);
      if (side.window !== null) shown.push(`the framed stretch, ${time(side.window[0])} to ${time(side.window[1])}; zoom into it`);
      return [...(side.left_out > 0 ? [`Left out of ${side.title} to keep this file small: ${side.left_out} operations; ` +
        `shown: ${shown.join("; ")}.`] : []),
        ...(side.all_bars ? [] : [`Left out of the stages of ${side.title}: all but their first bars.`])];
    }).join("\n");
    table();
    [from, to] = [0, Math.max(...step.sides.map((side) => side.step))];
    layOut();
    show(...whole());
  };
  select.onchange = choose;
  window.addEventListener("resize", draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readStyle(); draw(); });
  readStyle();
  select.value = data.steps.length - 1;  // the most ranks, the most overlap
  choose();
})();
