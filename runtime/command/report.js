"use strict";
// The page of `ftrun report`, and with data that comes from the server, of `ftrun watch --http`. All text from logs goes
// through textContent; nothing is made of strings of HTML.
const SVG = "http://www.w3.org/2000/svg", state = { axis: "step", log: false, raw: true, hidden: new Set(), differences: null };
let data = null, redraws = [], toSize = [];

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [name, to] of Object.entries(value)) element.style.setProperty(name, to);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter(child => child !== null && child !== undefined && child !== ""));
  return element;
}
const h = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const s = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
const code = text => h("code", {}, text);

// ── numbers as text ──
function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "not finite";
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (Number.isInteger(value) && size < 1e15) return String(value).replace(/\B(?=(\d{3})+$)/g, "\u2009");
  if (size >= 1e6 || size < 1e-3) return value.toExponential(Math.max(0, digits - 1)).replace(/\.?0+e/, "e").replace("e+", "e");
  return String(Number(value.toPrecision(digits)));
}
function short(value) {
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-4)) return value.toExponential(1).replace("e+", "e").replace(".0e", "e");
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (size >= unit) return String(Number((value / unit).toPrecision(4))) + letter;
  return String(Number(value.toPrecision(6)));
}
function duration(seconds) {
  if (seconds >= 1e8) return number(seconds / 86400) + " days";
  const whole = Math.round(seconds), two = n => String(n).padStart(2, "0");
  if (seconds < 10) return number(seconds, 3) + " s";
  if (whole < 3600) return Math.floor(whole / 60) + ":" + two(whole % 60) + " min";
  return Math.floor(whole / 3600) + ":" + two(Math.floor(whole / 60) % 60) + ":" + two(whole % 60) + " h";
}
function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (value >= 1024 && unit < 5) { value /= 1024; unit++; }
  return number(value, 3) + " " + units[unit];
}
const time = us => us >= 1e6 ? number(us / 1e6, 3) + " s" : us >= 1000 ? number(us / 1000, 3) + " ms" : number(us, 3) + " µs";
const along = value => state.axis === "step" ? "step " + number(value) : duration(value);

// ── axes ──
function ticks(low, high, most) {
  const span = high - low;
  if (!(span > 0) || !isFinite(span)) return [low];
  const raw = span / most, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(k => k * power).find(k => k >= raw) || raw, list = [];
  if (!(step > 0)) return [low];
  for (let i = Math.ceil(low / step); i * step <= high && list.length < 20; i++) list.push(i * step);
  return list;
}
function timeTicks(high, most) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800];
  const step = steps.find(k => high / k <= most);
  if (high < 10 || !step) return ticks(0, high, most);
  return Array.from({ length: Math.floor(high / step) + 1 }, (_, i) => i * step);
}
const timeLabel = seconds => seconds === 0 ? "0" : seconds < 60 ? short(seconds) + " s" : seconds < 3600 ? short(seconds / 60) + " min" : seconds < 172800 ? short(seconds / 3600) + " h" : short(seconds / 86400) + " d";

// ── curves ──
const colour = run => "c" + run.index % 8;
const key = curve => curve.kind + "/" + curve.split + "/" + curve.name;
const points = curve => curve.points.filter(p => p[2] !== null);
const visible = () => data.runs.filter(run => !state.hidden.has(run.path));
function listNames() {
  const seen = [];
  for (const run of data.runs) for (const curve of run.curves) if (!seen.includes(curve.name)) seen.push(curve.name);
  const last = ["lr", "grad_norm", "loss_scale", "skipped_steps", "samples_per_s", "data_wait"], rank = name => name === "loss" ? -1 : last.indexOf(name) + 1;
  return seen.map((name, i) => [rank(name), i, name]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(entry => entry[2]);
}
// A step's own numbers are left out where they are the means too.
function curvesOf(run, name) {
  const all = run.curves.filter(curve => curve.name === name), mean = all.find(curve => curve.kind === "mean");
  const same = mean && all.some(c => c.kind === "step" && c.points.length === mean.points.length && c.points.every((p, i) => p[2] === mean.points[i][2]));
  return all.filter(c => !(same && c.kind === "mean") && !(mean && !same && !state.raw && c.kind === "step"));
}
const isFaint = (curve, curves) => curve.kind === "step" && curves.some(c => c.kind === "mean");
const kindText = (curve, curves) => curve.kind === "mean" ? "mean since the line before" : curve.kind === "eval" ? curve.split || "evaluation" : curves.some(c => c.kind === "mean") ? "single steps" : curve.split || "train";

const TITLES = { lr: "learning rate", grad_norm: "norm of the gradients", samples_per_s: "samples per second", data_wait: "data wait", loss_scale: "loss scale", skipped_steps: "skipped steps" };
function chart(name) {
  const svg = s("svg", { class: "plot", tabindex: 0, role: "img" }), reading = h("p", { class: "reading", "aria-live": "polite" }), keys = h("p", { class: "keys" });
  const card = h("section", { class: "card" }, h("h3", {}, (TITLES[name] || name) + (name === "data_wait" ? ", ms a step" : "")), keys, svg, reading);
  const scale = name === "data_wait" ? 1000 : 1, view = { at: null };
  const at = p => state.axis === "step" ? p[0] : p[1];
  function draw() {
    const width = Math.max(220, svg.clientWidth || 420), height = 210, left = 52, right = 12, top = 10, bottom = 24;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    svg.replaceChildren();
    let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity, dropped = false;
    view.lines = [];
    for (const run of visible()) {
      const curves = curvesOf(run, name);
      for (const curve of curves) {
        view.lines.push({ run, curve, curves });
        for (const p of [...curve.points, ...curve.faults]) { x0 = Math.min(x0, at(p)); x1 = Math.max(x1, at(p)); }
        for (const p of points(curve)) {
          const value = p[2] * scale;
          if (state.log && !(value > 0)) { dropped = true; continue; }
          y0 = Math.min(y0, value); y1 = Math.max(y1, value);
        }
      }
    }
    if (x0 > x1) { svg.append(s("text", { x: left, y: 40 }, "nothing to show: no run is chosen")); keys.replaceChildren(); view.x = null; return; }
    if (state.axis === "time" || x0 < x1 * 0.2) x0 = 0;
    if (x0 === x1) { x0 -= 0.5; x1 += 0.5; }
    const log = state.log && y0 > 0 && y0 <= y1;
    if (y0 > y1) { y0 = 0; y1 = 1; }
    if (y0 === y1) { const pad = Math.abs(y0) * 0.1 || 0.5; y0 -= log ? 0 : pad; y1 += pad; }
    const lift = log ? Math.log : v => v, a = lift(y0), b = lift(y1), pad = (b / 2 - a / 2) * 0.1 || 1e-300;
    const low = a - pad, high = b + pad, tall = height - top - bottom;
    const X = v => left + (v - x0) / (x1 - x0) * (width - left - right);
    const Y = v => { const share = (lift(v) / 2 - low / 2) / (high / 2 - low / 2); return top + tall - Math.max(0, Math.min(1, isFinite(share) ? share : 0)) * tall; };
    view.x = v => X(v); view.back = px => x0 + (px - left) / (width - left - right) * (x1 - x0); view.range = [x0, x1]; view.width = width; view.tall = [top, top + tall];
    const marks = log ? logTicks(y0, y1) : ticks(low, high, 5);
    for (const v of marks) svg.append(s("line", { class: "grid", x1: left, x2: width - right, y1: Y(v), y2: Y(v) }), s("text", { x: left - 6, y: Y(v) + 4, "text-anchor": "end" }, short(v)));
    const xs = state.axis === "step" ? ticks(x0, x1, width / 90).filter(Number.isInteger) : timeTicks(x1, width / 90);
    for (const v of xs) svg.append(s("text", { x: X(v), y: height - 7, "text-anchor": X(v) > width - 30 ? "end" : "middle" }, state.axis === "step" ? short(v) : timeLabel(v)));
    svg.append(s("line", { class: "axis", x1: left, x2: width - right, y1: top + tall, y2: top + tall }));
    for (const run of visible()) {
      const group = s("g", { class: colour(run) });
      for (const mark of run.resumed) if (X(at(mark)) >= left) group.append(s("line", { class: "resumed", x1: X(at(mark)), x2: X(at(mark)), y1: top, y2: top + tall }, s("title", {}, run.name + " was resumed here")));
      if (name === "loss") for (const mark of run.saved) group.append(s("path", { class: "saved", d: `M${X(at(mark))},${top + tall - 6}l4,6h-8z` }, s("title", {}, run.name + ": checkpoint of step " + number(mark[0]))));
      svg.append(group);
    }
    const cursor = s("g", {});
    for (const { run, curve, curves } of view.lines.sort((one, other) => isFaint(other.curve, other.curves) - isFaint(one.curve, one.curves))) {
      const group = s("g", { class: colour(run) }), few = curve.points.length < 80;
      let path = "", open = false;
      for (const p of curve.points) {
        const value = p[2] === null ? null : p[2] * scale;
        if (value === null || (log && !(value > 0))) { open = false; continue; }
        path += (open ? "L" : "M") + X(at(p)).toFixed(1) + "," + Y(value).toFixed(1);
        open = true;
      }
      if (path) group.append(s("path", { class: "curve" + (isFaint(curve, curves) ? " faint" : "") + (curve.kind === "eval" ? " eval" : ""), d: path }));
      if (curve.kind === "eval" ? few : curve.points.length === 1) for (const p of points(curve)) if (!log || p[2] > 0) group.append(s("circle", { class: "dot", r: 3.2, cx: X(at(p)), cy: Y(p[2] * scale) }));
      for (const [step, seconds, count] of curve.faults) {
        const x = X(state.axis === "step" ? step : seconds);
        group.append(s("path", { class: "fault", d: `M${x - 3.5},${top}l7,7m-7,0l7,-7` }, s("title", {}, `${run.name}, ${kindText(curve, curves)}: ${count} not finite from step ${number(step)}`)));
      }
      svg.append(group);
    }
    for (const run of visible()) if (run.state === "failed" && name === "loss") svg.append(s("line", { class: "failed", x1: X(at([run.step, run.time])), x2: X(at([run.step, run.time])), y1: top, y2: top + tall }, s("title", {}, run.name + " failed: " + run.end)));
    svg.append(cursor);
    view.cursor = cursor;
    drawKeys(dropped && state.log && !log);
    svg.setAttribute("aria-label", describe());
    if (view.at !== null) read(view.at);
  }
  function drawKeys(noLog) {
    const seen = new Map();
    let faults = 0;
    for (const { curve, curves } of view.lines) {
      seen.set(kindText(curve, curves), (isFaint(curve, curves) ? "faint " : "") + (curve.kind === "eval" ? "eval" : ""));
      for (const fault of curve.faults) faults += fault[2];
    }
    keys.replaceChildren(...[...seen].map(([text, type]) => h("span", {}, s("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, s("line", { class: "curve " + type, x1: 0, x2: 26, y1: 5, y2: 5 })), text)),
      faults ? h("span", { class: "bad" }, `× ${number(faults)} not finite`) : "", noLog ? h("span", {}, "not all above 0: linear") : "");
  }
  function describe() {
    const parts = view.lines.filter(line => line.curve.kind !== "step" || !isFaint(line.curve, line.curves)).slice(0, 12).map(({ run, curve, curves }) => {
      const list = points(curve);
      return list.length ? `${run.name}, ${kindText(curve, curves)}: from ${number(list[0][2] * scale)} to ${number(list[list.length - 1][2] * scale)}` : "";
    });
    return `${TITLES[name] || name} by ${state.axis}. ${parts.filter(Boolean).join("; ")}. Arrow keys read values.`;
  }
  function read(value) {
    if (!view.x) return;
    view.at = value;
    const parts = [];
    let shown = null;
    for (const { run, curve, curves } of view.lines) {
      if (isFaint(curve, curves)) continue;
      const list = curve.points;
      let from = 0, to = list.length - 1;
      if (to < 0) continue;
      while (to - from > 1) { const middle = from + to >> 1; if (at(list[middle]) <= value) from = middle; else to = middle; }
      const near = Math.abs(at(list[to]) - value) < Math.abs(at(list[from]) - value) ? list[to] : list[from];
      if (shown === null || Math.abs(at(near) - value) < Math.abs(shown - value)) shown = at(near);
      parts.push(h("span", { class: colour(run) }, h("i", { class: "swatch" }), (data.runs.length > 1 ? run.name + " " : "") + kindText(curve, curves) + " ", h("b", {}, near[2] === null ? "not finite" : number(near[2] * scale)), at(near) !== shown ? " at " + along(at(near)) : ""));
    }
    if (shown === null) return;
    const x = view.x(shown);
    view.cursor.replaceChildren(s("line", { class: "cursor", x1: x, x2: x, y1: view.tall[0], y2: view.tall[1] }));
    reading.replaceChildren(h("span", {}, along(shown)), ...parts.slice(0, 16));
  }
  function clear() { view.at = null; if (view.cursor) view.cursor.replaceChildren(); reading.replaceChildren(); }
  svg.addEventListener("pointermove", event => { if (view.x) read(view.back((event.clientX - svg.getBoundingClientRect().left) * view.width / svg.getBoundingClientRect().width)); });
  svg.addEventListener("pointerleave", () => { if (document.activeElement !== svg) clear(); });
  svg.addEventListener("blur", clear);
  svg.addEventListener("keydown", event => {
    if (!view.x || !["ArrowLeft", "ArrowRight", "Home", "End", "Escape"].includes(event.key)) return;
    event.preventDefault();
    if (event.key === "Escape") return clear();
    const all = [...new Set(view.lines.flatMap(line => line.curve.points.map(at)))].sort((p, q) => p - q);
    if (!all.length) return;
    const here = view.at === null ? -1 : all.reduce((best, v, i) => Math.abs(v - view.at) < Math.abs(all[best] - view.at) ? i : best, 0);
    const hop = Math.max(1, Math.round(all.length / 100)) * (event.shiftKey ? 10 : 1);
    const next = { ArrowLeft: here < 0 ? all.length - 1 : here - hop, ArrowRight: here + (here < 0 ? 1 : hop), Home: 0, End: all.length - 1 }[event.key];
    read(all[Math.max(0, Math.min(all.length - 1, next))]);
  });
  redraws.push(draw);
  return card;
}
function logTicks(low, high) {
  const list = [], from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high)), every = Math.max(1, Math.ceil((to - from) / 6));
  for (let e = from; e <= to; e += every) for (const k of to - from <= 2 ? [1, 2, 5] : [1]) if (k * 10 ** e >= low && k * 10 ** e <= high) list.push(k * 10 ** e);
  return list.length > 1 ? list : [low, high];
}

// ── tables ──
function table(head, rows, options = {}) {
  const cell = (tag, value, i) => h(tag, { class: (typeof value === "number" || (options.numbers || []).includes(i)) && i > 0 ? "n" : undefined, scope: tag === "th" ? "row" : undefined }, value instanceof Node ? value : typeof value === "number" ? number(value) : String(value ?? ""));
  const body = rows.map(row => h("tr", { class: row.differs ? "differs" : undefined }, row.cells.map((value, i) => cell(i || options.plain ? "td" : "th", value, i))));
  return h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": options.label || "table" }, h("table", { class: options.class }, h("thead", {}, h("tr", {}, head.map((text, i) => h("th", { scope: "col", class: (options.numbers || []).includes(i) ? "n" : undefined }, text)))), h("tbody", {}, body)));
}
const headerOf = run => new Map(run.header.map(([name, value]) => [name, value]));
const swatch = run => h("span", { class: colour(run) }, h("i", { class: "swatch" }), run.name);
const lastOf = (run, kind, name, split) => { const c = run.curves.find(c => c.kind === kind && c.name === name && (split === undefined || c.split === split)); const list = c ? c.points : []; return list.length ? list[list.length - 1][2] : undefined; };

function stateOf(run) {
  if (run.state === "failed") return h("span", { class: "bad" }, "failed: " + run.end);
  if (run.state === "ended") return run.end || "ended";
  if (run.state === "empty") return "no line of a log yet";
  if (!data.live) return "no end in the log: it was running, or killed" + (run.last ? `; last line ${new Date(run.last * 1000).toLocaleString()}` : "");
  const age = run.last ? Math.max(0, Math.round(Date.now() / 1000 - run.last)) : null, left = secondsLeft(run);
  return age === null ? "running, or killed" : age > 60 ? `running, or killed: no line for ${duration(age)}` : `running: last line ${duration(age)} ago` + (left ? `, about ${duration(Math.max(1, Math.round(left)))} to go` : "");
}
// By the pace of the newest lines.
function secondsLeft(run) {
  const points = run.curves.find(c => c.kind === "step" && c.name === "loss")?.points || [], total = headerOf(run).get("total_steps");
  if (points.length < 2 || !(total > run.step)) return 0;
  const last = points[points.length - 1], first = points[Math.max(0, points.length - 40)];
  return last[0] > first[0] ? (total - run.step) * (last[1] - first[1]) / (last[0] - first[0]) : 0;
}
function overview() {
  const rows = data.runs.map(run => {
    const header = headerOf(run), total = header.get("total_steps"), loss = lastOf(run, "mean", "loss") ?? lastOf(run, "step", "loss"), valid = lastOf(run, "eval", "loss", "valid");
    return { cells: [swatch(run), stateOf(run), number(run.step) + (total ? " of " + number(total) : ""), duration(run.time), loss === undefined ? "" : number(loss), valid === undefined ? "" : number(valid), header.get("model") ?? "", header.get("parameters") ?? "", header.get("device") ?? ""] };
  });
  const notes = [];
  for (const run of data.runs) {
    if (run.unreadable) notes.push(`${run.name}: ${number(run.unreadable)} lines are none of a log and are left out; the first is line ${number(run.first_unreadable)}.`);
    if (run.left_out) notes.push(`${run.name}: more curves than are shown; the first 256 are.`);
    if (run.resumed.length) notes.push(`${run.name}: went on ${run.resumed.length === 1 ? "once" : run.resumed.length + " times"} from a checkpoint (dotted lines); time leaves out what was between.`);
    if (run.state !== "empty" && !run.header.length) notes.push(`${run.name}: the log has no header, so its settings are not known.`);
  }
  return [table(["run", "state", "steps", "time", "loss", "valid loss", "model", "parameters", "device"], rows, { numbers: [4, 5, 7], label: "runs" }), ...notes.map(text => h("p", { class: "small soft" }, text))];
}

function settings() {
  const skip = new Set(["time", "start_time", "first_step"]), maps = data.runs.map(headerOf), names = [];
  for (const map of maps) for (const name of map.keys()) if (!names.includes(name) && !skip.has(name)) names.push(name);
  if (!names.length) return missing("No log has a header. ftrun writes one as the first line of every log of JSON lines.");
  const rows = names.map(name => {
    const shown = value => name === "artifact" && typeof value === "string" ? value.replace(/^.*\/ftrun-\w{6}\//, "") : value; // a .ft file is compiled into a folder of the run's own
    const values = maps.map(map => map.has(name) ? shown(map.get(name)) : undefined), differs = values.some(value => JSON.stringify(value) !== JSON.stringify(values[0]));
    return { differs, cells: [name, ...values.map(value => value === undefined ? "—" : value === "" ? "" : typeof value === "number" ? String(value) : value)] };
  });
  const differing = rows.filter(row => row.differs), several = data.runs.length > 1;
  if (state.differences === null) state.differences = several && differing.length > 0;
  const place = h("div", {}), show = () => place.replaceChildren(table(["setting", ...data.runs.map(swatch)], state.differences ? differing : rows, { label: "settings" }));
  show();
  const box = h("label", {}, h("input", { type: "checkbox", checked: state.differences, onchange: event => { state.differences = event.target.checked; show(); } }), ` only the ${differing.length} that differ`);
  if (!several) return h("details", {}, h("summary", {}, `${rows.length} settings and facts`), place);
  return h("div", {}, h("p", {}, differing.length ? box : "All settings are the same."), place);
}

// ── evaluations ──
function heat(of, run) {
  const side = Math.ceil(of.rows / of.block), across = Math.ceil(of.columns / of.block), edge = 30, cell = Math.max(3, Math.min(40, Math.floor(460 / Math.max(side, across))));
  const svg = s("svg", { class: "heat", viewBox: `0 0 ${edge + across * cell + 4} ${edge + side * cell + 4}`, width: edge + across * cell + 4, role: "img" });
  let all = 0, right = 0, worst = [0, 0, 0];
  for (let i = 0; i < side; i++) {
    const row = of.values.slice(i * across, (i + 1) * across), sum = row.reduce((a, b) => a + (b || 0), 0);
    row.forEach((value, j) => {
      all += value || 0;
      if (i === j) right += value || 0; else if (value > worst[2]) worst = [i, j, value];
      const share = sum > 0 && value > 0 ? value / sum : 0;
      if (share > 0) svg.append(s("rect", { class: "cell", x: edge + j * cell, y: edge + i * cell, width: cell, height: cell, "fill-opacity": (0.06 + 0.94 * share).toFixed(3) }, s("title", {}, `row ${i * of.block}, column ${j * of.block}: ${number(value)} (${number(100 * share, 3)} % of the row)`)));
      if (cell >= 26 && value) svg.append(s("text", { class: share > 0.55 ? "on" : "in", x: edge + (j + 0.5) * cell, y: edge + (i + 0.5) * cell + 4 }, short(value)));
    });
  }
  const every = Math.max(1, Math.ceil(16 / cell));
  for (let i = 0; i < Math.max(side, across); i += every) {
    if (i < side) svg.append(s("text", { x: edge - 4, y: edge + (i + 0.5) * cell + 4, "text-anchor": "end" }, String(i * of.block)));
    if (i < across) svg.append(s("text", { x: edge + (i + 0.5) * cell, y: edge - 5, "text-anchor": "middle" }, String(i * of.block)));
  }
  svg.append(s("rect", { class: "frame", x: edge, y: edge, width: across * cell, height: side * cell }));
  svg.setAttribute("aria-label", `${of.name} of ${run.name}: ${number(right)} of ${number(all)} on the diagonal; most beside it: row ${worst[0] * of.block}, column ${worst[1] * of.block}, ${number(worst[2])}`);
  const square = of.rows === of.columns && of.block === 1 && of.values.every(value => value !== null && value >= 0);
  return h("div", {}, h("p", { class: "small soft" }, `Row: class; column: what it was taken for. Darker: a larger share of the row.${of.block > 1 ? ` A square stands for ${of.block} × ${of.block} entries.` : ""}`),
    h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": of.name }, svg), square ? perClass(of, all) : "");
}
function perClass(of, all) {
  const n = of.rows, rows = [];
  let macro = 0, counted = 0;
  for (let i = 0; i < n; i++) {
    let row = 0, column = 0;
    for (let j = 0; j < n; j++) { row += of.values[i * n + j]; column += of.values[j * n + i]; }
    const hit = of.values[i * n + i], precision = column ? hit / column : undefined, recall = row ? hit / row : undefined, f1 = row + column ? 2 * hit / (row + column) : undefined;
    if (f1 !== undefined) { macro += f1; counted++; }
    rows.push({ cells: [String(i), row, ...[precision, recall, f1].map(value => value === undefined ? "—" : value.toFixed(4))] });
  }
  return h("details", { open: n <= 20 }, h("summary", {}, `by class; mean F1 ${counted ? (macro / counted).toFixed(4) : "—"}`), table(["class", "samples", "precision", "recall", "F1"], rows, { numbers: [1, 2, 3, 4], label: "by class" }));
}
function rowTable(of) {
  const top = Math.max(...of.values.map(value => value ?? 0), 1e-300);
  const rows = of.values.slice(0, 256).map((value, i) => ({ cells: [String(i), value === null ? "not finite" : value, h("div", { class: "track c0" }, h("i", { style: { width: Math.max(0, Math.min(100, 100 * (value ?? 0) / top)) + "%" } }))] }));
  return h("div", {}, table(["entry", of.name, ""], rows, { numbers: [1], label: of.name, class: "bars entries" }), of.columns > 256 ? h("p", { class: "small soft" }, `The first 256 of ${number(of.columns)}; the log has all.`) : "");
}
function evaluations() {
  const parts = [], runs = visible(), names = [];
  for (const run of runs) for (const curve of run.curves) if (curve.kind === "eval" && !names.some(([split, name]) => split === curve.split && name === curve.name)) names.push([curve.split, curve.name]);
  if (!names.length && !runs.some(run => run.tables.length)) return missing("No evaluation is in the log. ", code("eval every 1 epoch"), " in ", code("train { }"), " and a ", code("valid = …"), " in ", code("data { }"), " make them.");
  if (names.length) {
    const rows = names.map(([split, name]) => ({ cells: [(split ? split + " " : "") + name, ...runs.flatMap(run => {
      const curve = run.curves.find(c => c.kind === "eval" && c.split === split && c.name === name), list = curve ? points(curve) : [];
      if (!curve) return ["—", ""];
      const best = list.reduce((a, b) => (/loss|error|perplexity|bits/.test(name) ? b[2] < a[2] : b[2] > a[2]) ? b : a, list[0] || [0, 0, null]);
      return [number(curve.points[curve.points.length - 1][2]), list.length > 1 ? `${number(best[2])} at step ${number(best[0])}` : ""];
    })] }));
    parts.push(h("section", { class: "card" }, table(["metric", ...runs.flatMap(run => [swatch(run), /* */ "best"])], rows, { label: "evaluations" }), h("p", { class: "small soft" }, "The newest evaluation, and the best: the least of a loss, an error or a perplexity, the greatest of other metrics.")));
  }
  let tables = 0;
  const cards = [];
  for (const run of runs) for (const of of run.tables) {
    tables++;
    if (tables <= 24) cards.push(h("section", { class: "card" }, h("h3", {}, `${of.name}, ${of.split || "evaluation"} after step ${number(of.step)} `, data.runs.length > 1 ? swatch(run) : ""), of.rows ? heat(of, run) : rowTable(of)));
  }
  if (tables) parts.push(h("div", { class: "charts" }, cards));
  if (tables > 24) parts.push(missing(`The first 24 of ${tables} tables.`));
  if (!tables) parts.push(missing("A confusion matrix is here where the model has ", code("metric confusion = confusion(logits, label)"), "; ", code("precision"), ", ", code("recall"), " and ", code("f1"), " may be by class too."));
  return h("div", {}, parts);
}

// ── where the time goes ──
function bars(rows, unit) {
  const most = Math.max(...rows.map(row => row.parts.reduce((a, b) => a + b.value, 0)), 1e-300), all = rows.reduce((sum, row) => sum + row.parts.reduce((a, b) => a + b.value, 0), 0) || 1;
  return rows.map(row => {
    const sum = row.parts.reduce((a, b) => a + b.value, 0);
    return { cells: [row.name, unit(sum), number(100 * sum / all, 3) + " %", h("div", { class: "track" }, row.parts.filter(part => part.value > 0).map(part => h("i", { class: part.colour, title: part.name || undefined, style: { width: 100 * part.value / most + "%" } })))] };
  });
}
const PHASES = { forward: "c0", backward: "c1", both: "c3", recomputed: "c4", update: "c2", none: "c7", "": "c7" };
function times(of) {
  const rows = of.rows.map(([label, layer, phase, work, us, count, flops, moved]) => ({ label, layer, phase, work, us, count, flops, moved })), layers = new Map();
  const all = rows.reduce((sum, row) => sum + row.us, 0) + of.left_out;
  for (const row of rows) {
    const name = row.layer || (row.phase === "update" ? "update" : "(no layer)"), phases = layers.get(name) || new Map();
    phases.set(row.phase, (phases.get(row.phase) || 0) + row.us);
    layers.set(name, phases);
  }
  const sum = phases => [...phases.values()].reduce((a, b) => a + b, 0), order = [...layers].sort((a, b) => sum(b[1]) - sum(a[1]));
  const phases = [...new Set(rows.map(row => row.phase))];
  const kernel = row => ({ name: row.label, parts: [{ name: row.phase, value: row.us, colour: PHASES[row.phase] || "c7" }] });
  const head = name => [name, "time", "share", ""], options = label => ({ numbers: [1, 2], label, class: "bars" });
  const kernels = count => table(head("kernel"), bars(rows.slice(0, count).map(kernel), time), options("time by kernel"));
  return h("section", { class: "card" }, h("h3", {}, `${of.model ? of.model + " " : ""}${of.device ? "on " + of.device : ""}`), h("p", { class: "small soft" }, of.kind === "bench" ? `${of.path}: a step takes ${number(of.step_ms)} ms, its kernels ${time(all)}.` : `${of.path}: means of ${number(of.steps)} traced steps; the kernels of one take ${time(all)}.`),
    h("p", { class: "keys" }, phases.map(phase => h("span", { class: PHASES[phase] || "c7" }, h("i", { class: "swatch" }), phase === "both" ? "forward and backward" : phase || "other"))),
    h("h3", {}, "by layer"), table(head("layer"), bars(order.slice(0, 40).map(([name, parts]) => ({ name, parts: [...parts].sort((a, b) => Object.keys(PHASES).indexOf(a[0]) - Object.keys(PHASES).indexOf(b[0])).map(([phase, value]) => ({ name: phase, value, colour: PHASES[phase] || "c7" })) })), time), options("time by layer")),
    h("h3", {}, "by kernel"), kernels(12), rows.length > 12 ? h("details", {}, h("summary", {}, `all ${number(rows.length)} kernels`), kernels(400)) : "");
}

// ── memory and graph of a step ──
function memory(plan) {
  const total = plan.memory.reduce((sum, [, value]) => sum + value, 0);
  const rows = bars(plan.memory.filter(([, value]) => value > 0).map(([name, value], i) => ({ name, parts: [{ name, value, colour: "c" + i % 8 }] })), bytes);
  const parts = [h("p", {}, `${bytes(total || plan.all)} in all, known before the run.`), rows.length ? table(["for", "bytes", "share", ""], rows, { numbers: [1, 2], label: "memory", class: "bars" }) : ""];
  if (plan.in_use && plan.in_use.length) parts.push(memoryPicture(plan));
  else if (plan.step_count > plan.steps.length) parts.push(missing(`The step has ${number(plan.step_count)} kernels, too many to draw; `, code("ftc model.ft --memory=plan.svg"), " draws its memory."));
  return h("section", { class: "card" }, h("h3", {}, `${plan.model} for ${plan.target}`), ...parts);
}
function memoryPicture(plan) {
  const svg = s("svg", { class: "plot", tabindex: 0, role: "img" }), reading = h("p", { class: "reading", "aria-live": "polite" });
  const peak = Math.max(...plan.in_use), at = plan.in_use.indexOf(peak), n = plan.in_use.length, view = { step: null };
  svg.setAttribute("aria-label", `Memory for temporary values over the ${n} kernels of a step: at most ${bytes(peak)}, in ${plan.steps[at].label}. Arrow keys read values.`);
  function draw() {
    const width = Math.max(240, svg.clientWidth || 600), height = 280, left = 66, right = 8, top = 8, bottom = 22, most = Math.max(plan.place_bytes, peak, 1);
    const X = i => left + i / n * (width - left - right), Y = v => height - bottom - v / most * (height - top - bottom);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`); svg.setAttribute("height", height); svg.replaceChildren();
    for (const v of [0, 0.25, 0.5, 0.75, 1]) svg.append(s("line", { class: "grid", x1: left, x2: width - right, y1: Y(v * most), y2: Y(v * most) }), s("text", { x: left - 6, y: Y(v * most) + 4, "text-anchor": "end" }, v ? bytes(v * most) : "0"));
    for (const v of ticks(0, n, width / 90).filter(Number.isInteger)) svg.append(s("text", { x: X(v), y: height - 6, "text-anchor": "middle" }, String(v)));
    const boxes = plan.boxes.map(([first, last, offset, size]) => s("rect", { class: "box", x: X(first).toFixed(1), width: Math.max(0.8, X(last + 1) - X(first)).toFixed(1), y: Y(offset + size).toFixed(1), height: Math.max(0.5, Y(offset) - Y(offset + size)).toFixed(1) }));
    svg.append(...boxes, s("path", { class: "level", d: plan.in_use.map((v, i) => `${i ? "L" : "M"}${X(i).toFixed(1)},${Y(v).toFixed(1)}H${X(i + 1).toFixed(1)}`).join("") }));
    const cursor = s("g", {});
    svg.append(cursor);
    view.read = step => {
      view.step = step = Math.max(0, Math.min(n - 1, step));
      boxes.forEach((box, i) => box.classList.toggle("hit", plan.boxes[i][0] === step));
      cursor.replaceChildren(s("line", { class: "cursor", x1: X(step + 0.5), x2: X(step + 0.5), y1: top, y2: height - bottom }));
      reading.replaceChildren(h("span", {}, `kernel ${step}`), h("b", {}, bytes(plan.in_use[step])), " in use; " + plan.steps[step].label);
    };
    view.back = event => { const box = svg.getBoundingClientRect(); view.read(Math.floor(((event.clientX - box.left) * width / box.width - left) / (width - left - right) * n)); };
  }
  svg.addEventListener("pointermove", event => view.back && view.back(event));
  svg.addEventListener("keydown", event => {
    const hops = { ArrowLeft: -1, ArrowRight: 1, Home: -n, End: n };
    if (!(event.key in hops)) return;
    event.preventDefault();
    view.read(view.step === null ? (hops[event.key] > 0 ? 0 : n - 1) : view.step + hops[event.key]);
  });
  redraws.push(draw);
  return h("div", {}, h("p", { class: "small soft" }, `Over the kernels of a step: each rectangle is a value at its place in memory, for as long as it is needed; the line is what is in use, at most ${bytes(peak)} of the ${bytes(plan.place_bytes)} that all runs of kernels share.${plan.is_cut ? " Of the values only the first are drawn." : ""}`), svg, reading);
}
function graph(plan) {
  const n = plan.steps.length, row = 24, rail = matchMedia("(max-width: 40rem)").matches ? 54 : 94;
  if (!n) return missing(`The step has ${number(plan.step_count)} kernels, too many to list.`);
  const svg = s("svg", { width: rail, height: n * row, "aria-hidden": "true" }), arcs = [], users = plan.steps.map(() => []);
  plan.steps.forEach((step, i) => step.of.forEach(j => users[j].push(i)));
  plan.steps.forEach((step, i) => step.of.forEach(j => {
    const y1 = j * row + row / 2, y2 = i * row + row / 2, x = rail - 6, reach = Math.min(rail - 8, 8 + 11 * Math.log2(i - j + 1));
    const arc = s("path", { class: "arc", d: `M${x},${y1}C${x - reach},${y1 + Math.min(row, (y2 - y1) / 4)} ${x - reach},${y2 - Math.min(row, (y2 - y1) / 4)} ${x},${y2}` });
    arcs.push([j, i, arc]);
    svg.append(arc);
  }));
  const items = plan.steps.map((step, i) => h("li", { id: `step${plan.index}-${i}`, role: "option", "aria-selected": "false", class: PHASES[step.phase] || "c7", onclick: () => choose(i), onpointerenter: () => choose(i) }, h("i", { class: "swatch" }), step.label));
  const list = h("ol", { role: "listbox", "aria-label": "kernels of a step in their order" }, items), reading = h("p", { class: "reading", "aria-live": "polite" }), box = h("div", { class: "steps", tabindex: 0, role: "group", "aria-label": `graph of the step of ${plan.model}; arrow keys go through its kernels` }, svg, list);
  let chosen = -1;
  function choose(i) {
    chosen = i;
    const near = new Set([...plan.steps[i].of, ...users[i]]);
    items.forEach((item, k) => { item.classList.toggle("on", k === i); item.classList.toggle("near", near.has(k)); item.setAttribute("aria-selected", String(k === i)); });
    for (const [from, to, arc] of arcs) { const on = from === i || to === i; arc.classList.toggle("on", on); if (on) svg.append(arc); }
    const step = plan.steps[i];
    reading.replaceChildren(h("span", {}, `${i}: ${step.work}${step.phase === "none" ? "" : ", " + step.phase}`), h("span", {}, `${short(step.flops)}FLOP, ${bytes(step.bytes)} moved`), h("span", {}, `reads what ${step.of.length ? step.of.join(", ") : "none"} made; read by ${users[i].length ? users[i].slice(0, 12).join(", ") : "none"}`));
  }
  box.addEventListener("keydown", event => {
    const hops = { ArrowUp: -1, ArrowDown: 1, PageUp: -12, PageDown: 12, Home: -n, End: n };
    if (!(event.key in hops)) return;
    event.preventDefault();
    choose(Math.max(0, Math.min(n - 1, chosen + hops[event.key])));
    items[chosen].scrollIntoView({ block: "nearest" });
  });
  const phases = [...new Set(plan.steps.map(step => step.phase))];
  return h("section", { class: "card" }, h("h3", {}, `${plan.model} for ${plan.target}: ${number(n)} kernels of a step${plan.stages > 1 ? ", stage 0 of " + plan.stages : ""}`), h("p", { class: "keys" }, phases.map(phase => h("span", { class: PHASES[phase] || "c7" }, h("i", { class: "swatch" }), phase === "both" ? "forward and backward" : phase === "none" ? "other" : phase))), box, reading,
    h("p", { class: "small soft" }, "Lines lead from a kernel to those that read what it made. ", code("ftc model.ft --emit=html -o graph.html"), " shows the graph of operations, pass by pass."));
}

function missing(...parts) { return h("p", { class: "soft" }, ...parts); }

// ── layers ──
const LAYERS = [["parameters", "Weights, gradients and updates", ["|weight|", "|gradient|", "update / weight", "zero gradients", "not finite"], [1, 2, 3]],
  ["values", "What layers give", ["mean", "deviation", "largest size", "zeros", "not finite"], [1, 3]]];
const isShare = title => title === "zeros" || title === "zero gradients" || title === "not finite";
// Sizes on a common logarithmic scale, shares from 0 to 1: darker is more.
function strip(row, at, title, steps, low, high) {
  const width = Math.max(2, Math.min(12, Math.floor(200 / steps.length))), values = row[at + 1];
  const depth = value => isShare(title) ? value : value > 0 && high > low ? (Math.log(value) - Math.log(low)) / (Math.log(high) - Math.log(low)) : value > 0 ? 0.5 : 0;
  return s("svg", { class: "heat strip", viewBox: `0 0 ${steps.length * width} 14`, width: steps.length * width, height: 14, role: "img", "aria-label": `${title} of ${row[0]} over steps ${number(steps[0])} to ${number(steps[steps.length - 1])}: ${number(values[0])} at first, ${number(values[values.length - 1])} at last` },
    values.map((value, i) => value === null ? "" : s("rect", { class: "cell", x: i * width, y: 0, width, height: 14, "fill-opacity": (0.05 + 0.95 * Math.max(0, Math.min(1, depth(value)))).toFixed(3) }, s("title", {}, `step ${number(steps[i])}: ${number(value)}`))),
    s("rect", { class: "frame", x: 0, y: 0, width: steps.length * width, height: 14 }));
}
function layersOf(run, [key, title, titles, drawn]) {
  const rows = run.layers[key], steps = run.layers.steps;
  if (!rows.length) return "";
  const ranges = titles.map((_, k) => { const all = rows.flatMap(row => row[k + 1]).filter(value => value !== null && value > 0); return [Math.min(...all), Math.max(...all)]; });
  const shown = (value, k) => value === null || value === undefined ? "—" : isShare(titles[k]) ? number(100 * value, 3) + " %" : number(value, 3);
  const cells = rows.map(row => ({ cells: [row[0], ...titles.flatMap((text, k) => { const last = shown(row[k + 1][steps.length - 1], k); return drawn.includes(k) ? [last, strip(row, k, text, steps, ...ranges[k])] : [last]; })] }));
  const head = ["", ...titles.flatMap((text, k) => drawn.includes(k) ? [text, "over steps"] : [text])];
  return h("section", { class: "card" }, h("h3", {}, title + " ", data.runs.length > 1 ? swatch(run) : ""), h("p", { class: "small soft" }, `At step ${number(steps[steps.length - 1])}; strips from step ${number(steps[0])} on, darker is more: sizes on one logarithmic scale for all rows, shares from 0 to 100 %.`),
    table(head, cells, { numbers: head.map((text, i) => text === "over steps" ? -1 : i), label: title, class: "layers" }), run.layers.left_out ? h("p", { class: "small soft" }, "There are more rows than are shown; the first 1000 are.") : "");
}
function layers() {
  const parts = visible().filter(run => run.layers).flatMap(run => LAYERS.map(of => layersOf(run, of)));
  return parts.length ? parts : missing("No log has statistics by layer. ", code("log { layers = 100 steps; jsonl }"), " in ", code("train { }"), ", or ", code("ftrun --layers 100 --log-jsonl FILE"), ", writes gradients, updates and what layers give, every so many steps.");
}

// What part of the time of a step was waiting: both are means since the line before.
function waiting() {
  const parts = [];
  for (const run of visible()) {
    const wait = run.curves.find(c => c.name === "data_wait" && c.kind === "step"), rate = run.curves.find(c => c.name === "samples_per_s" && c.kind === "step"), batch = headerOf(run).get("batch");
    if (!wait || !rate || !(batch > 0)) continue;
    const rates = new Map(points(rate).map(p => [p[0], p[2]])), shares = points(wait).filter(p => rates.get(p[0]) > 0).map(p => p[2] * rates.get(p[0]) / batch).sort((a, b) => a - b);
    if (shares.length) parts.push(h("li", {}, swatch(run), `: ${number(100 * Math.min(1, shares[shares.length >> 1]), 3)} % of a step's time in the median of the lines, ${number(100 * Math.min(1, shares[shares.length - 1]), 3)} % at most`));
  }
  return parts.length ? [h("p", {}, "Steps waited for their batches:"), h("ul", {}, parts)] : [missing("How long steps waited for their batches (", code("data_wait"), ") is in logs that ftrun writes.")];
}

// ── what models write ──
function written() {
  const parts = visible().filter(run => run.generated.length).map(run => h("div", {}, h("h3", {}, swatch(run)),
    table(["step", "text"], run.generated.map(([step, text]) => ({ cells: [number(step, 12), h("span", { class: "written" }, text)] })), { label: "What " + run.name + " writes" })));
  return parts.length ? parts : missing("No log has a text that a model wrote. ", code("log { prompt = \"Once \"; jsonl }"), " in ", code("train { }"), " lets a model of tokens go on with a text at every evaluation.");
}

// ── the page ──
function controls() {
  const radio = (value, text) => h("label", {}, h("input", { type: "radio", name: "axis", checked: state.axis === value, onchange: () => { state.axis = value; redraw(); } }), " " + text);
  const box = (name, text) => h("label", {}, h("input", { type: "checkbox", checked: state[name], onchange: event => { state[name] = event.target.checked; redraw(); } }), " " + text);
  const runs = data.runs.length > 1 ? h("fieldset", {}, h("legend", {}, "runs"), data.runs.map(run => h("label", { class: "run " + colour(run) }, h("input", { type: "checkbox", checked: !state.hidden.has(run.path), onchange: event => { event.target.checked ? state.hidden.delete(run.path) : state.hidden.add(run.path); redraw(); replaceSections(["evaluations", "generated", "waiting", "layers"]); } }), " ", h("i", { class: "swatch" }), run.name))) : "";
  return h("div", { class: "bar" }, runs, h("fieldset", {}, h("legend", {}, "by"), radio("step", "step"), radio("time", "time")), box("log", "logarithmic"), box("raw", "single steps"));
}
const sections = {
  runs: ["Runs", () => overview()],
  curves: ["Curves", () => { const names = listNames(); return names.length ? h("div", {}, controls(), h("div", { class: "charts" }, names.map(chart))) : missing("No log has a line of a step yet. ", code("log { jsonl; every=50 steps }"), " in ", code("train { }"), ", or ", code("ftrun --log-jsonl FILE"), ", writes one every so many steps."); }],
  evaluations: ["Evaluations", () => evaluations()],
  generated: ["What the model writes", () => written()],
  waiting: ["Data wait", () => waiting()],
  layers: ["Layer by layer", () => layers()],
  times: ["Where the time goes", () => data.times.length ? data.times.map(times) : missing("Not measured here: ", code("ftrun bench model.so --json bench.json"), ", then ", code("ftrun report RUN --times bench.json"), " shows time by kernel and by layer; so does a trace, ", code("ftrun model.so --trace trace.json"), ".")],
  memory: ["Memory over a step", () => data.plans.length ? data.plans.map(memory) : missing(code("ftrun report RUN --model model.so"), " shows what memory is for, and its use over the kernels of a step.")],
  graph: ["Graph of a step", () => data.plans.length ? data.plans.map(graph) : missing(code("ftrun report RUN --model model.so"), " shows the kernels of a step and what they read of each other.")],
  settings: ["Settings", () => settings()],
};
const places = {};
function replaceSections(names) { for (const name of names) places[name].replaceChildren(h("h2", { id: name }, sections[name][0]), ...[sections[name][1]()].flat()); }
function redraw() { for (const draw of redraws) draw(); }
function take(fresh) {
  data = fresh;
  data.runs.forEach((run, i) => { run.index = i; });
  data.plans.forEach((plan, i) => { plan.index = i; });
}
function build() {
  const main = document.getElementById("main"), live = h("p", { class: "small soft", id: "live", role: "status" });
  for (const name in sections) places[name] = h("section", { "aria-labelledby": name });
  main.replaceChildren(h("h1", {}, data.live ? "ftrun watch" : "ftrun report"), live, h("nav", { "aria-label": "sections" }, Object.entries(sections).map(([name, [title]]) => h("a", { href: "#" + name }, title))), ...Object.values(places));
  replaceSections(Object.keys(sections));
  document.title = data.runs.map(run => run.name).slice(0, 4).join(", ") + (data.live ? " · ftrun watch" : " · ftrun report");
  redraw();
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); } });
}

// ── live: asks once a second; what is looked at stays as it is ──
async function poll(tag) {
  const live = document.getElementById("live");
  try {
    const answer = await fetch("data.json", { cache: "no-store", headers: tag ? { "If-None-Match": tag } : {} });
    if (answer.status === 200) {
      const shape = data ? JSON.stringify([listNames(), data.runs.map(run => run.name)]) : "";
      take(await answer.json());
      tag = answer.headers.get("ETag");
      if (!places.runs) build();
      else if (JSON.stringify([listNames(), data.runs.map(run => run.name)]) !== shape) { redraws = []; replaceSections(Object.keys(sections)); redraw(); }
      else { replaceSections(["runs", "evaluations", "generated", "waiting", "layers"]); redraw(); }
    } else if (answer.status === 304) { if (places.runs) replaceSections(["runs"]); } else throw new Error("answer " + answer.status);
    const over = data.runs.every(run => run.state === "ended" || run.state === "failed");
    document.getElementById("live").textContent = over ? "All runs have ended." : "Live: follows the logs as they grow.";
  } catch (error) {
    const place = live || document.getElementById("main");
    place.textContent = "ftrun watch does not answer any more (" + error.message + "); this page asks again.";
  }
  setTimeout(poll, 1000, tag);
}
const embedded = document.getElementById("data");
if (embedded) {
  const read = JSON.parse(embedded.textContent);
  if (read.study !== undefined) showStudy(read); // report_study.js
  else if (read.sensitivity !== undefined) showSensitivity(read.sensitivity); // report_sensitivity.js
  else { take(read); build(); }
} else poll(null);
