"use strict";
// The page of `ftrun report STUDY`: report.js, which has the helpers, calls showStudy. All text from the journal goes through
// textContent. Values far worse than the others stand at the edge of a plot, so that a few diverged trainings do not hide the rest.
function showStudy(study) {
  const several = study.goals.length > 1, goal = study.goals[0].name; // most plots show the first goal
  const dims = study.dims, trials = study.trials, sign = study.max ? -1 : 1, better = (a, b) => sign * (a - b);
  const complete = trials.filter(t => t.state === "complete" && t.value !== null), valued = trials.filter(t => t.value !== null && (t.state === "complete" || t.state === "pruned"));
  const best = trials.find(t => t.n === study.best), brushes = new Map(), chosen = [];
  const painters = [];
  let sort = { column: 0, falling: false };

  // ── values ──
  const ranked = [...complete].sort((a, b) => better(a.value, b.value)), rank = new Map(ranked.map((t, i) => [t.n, ranked.length > 1 ? i / (ranked.length - 1) : 0]));
  const tint = t => rank.has(t.n) ? `color-mix(in oklab, var(--c1) ${Math.round(100 * rank.get(t.n))}%, var(--c0))` : "var(--soft)";
  function span() {
    const from = ranked.length ? ranked : [...valued].sort((a, b) => better(a.value, b.value));
    if (!from.length) return [0, 1, false];
    const at = share => from[Math.min(from.length - 1, Math.floor(share * from.length))].value, first = from[0].value, last = from[from.length - 1].value;
    const bound = at(0.75) + 3 * (at(0.75) - at(0.25)), cut = from.length > 7 && better(last, bound) > 0 && bound !== at(0.75), worst = cut ? bound : last;
    let low = Math.min(first, worst), high = Math.max(first, worst);
    if (!(high > low)) { const pad = Math.abs(low) * 0.1 || 0.5; low -= pad; high += pad; }
    return [low, high, cut];
  }
  const [low, high, isCut] = span(), share = v => Math.max(0, Math.min(1, (v / 2 - low / 2) / (high / 2 - low / 2)));
  const isBeyond = v => v < low || v > high;

  // ── dimensions ──
  function place(dim, v) {
    if (dim.kind === "choice") return (v + 0.5) / dim.choices.length;
    const lift = dim.log ? Math.log : x => x, a = lift(dim.low), b = lift(dim.high);
    return b > a ? Math.max(0, Math.min(1, (lift(v) - a) / (b - a))) : 0.5;
  }
  const said = (dim, v) => v === null ? "—" : dim.kind === "choice" ? dim.choices[v] ?? "?" : short(v);
  function marks(dim, most) {
    if (dim.kind === "choice") { const every = Math.ceil(dim.choices.length / (most + 3)); return dim.choices.map((_, i) => i).filter(i => i % every === 0); }
    if (dim.low === dim.high) return [dim.low];
    if (!dim.log) return ticks(dim.low, dim.high, most).filter(v => dim.kind !== "int" || Number.isInteger(v));
    const powers = [];
    for (let p = Math.ceil(Math.log10(dim.low) - 1e-9); p <= Math.log10(dim.high) + 1e-9; p++) powers.push(10 ** p);
    return powers.length > 1 ? powers.filter((_, i) => i % Math.ceil(powers.length / (most + 2)) === 0) : [dim.low, dim.high];
  }
  const clipped = (text, most) => text.length > most ? text.slice(0, most - 1) + "…" : text;
  const tell = t => `trial ${t.n}: ` + (t.state === "failed" ? "failed" + (t.why ? ", " + t.why : "") : (t.value === null ? "no value yet" : (several && t.state === "complete" ? study.goals.map((one, g) => one.name + " = " + number(t.values[g], 6)).join(", ") : goal + " = " + number(t.value, 6))) + (t.state === "complete" ? "" : ", " + t.state)) + "\n" + dims.map((dim, d) => t.point[d] === null ? null : dim.name + " = " + said(dim, t.point[d])).filter(text => text).join("\n");
  const isChosen = t => [...brushes].every(([d, [a, b]]) => { const at = d === dims.length ? (t.value === null ? null : share(t.value)) : t.point[d] === null ? null : place(dims[d], t.point[d]); return at !== null && at >= a && at <= b; });
  function choose() {
    chosen.length = 0;
    for (const t of trials) if (isChosen(t)) chosen.push(t);
    for (const paint of painters) paint(new Set(chosen.map(t => t.n)));
    fillTable();
  }

  // ── history ──
  function frame(svg, width, height, left, right, top, bottom) {
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    svg.replaceChildren();
    const y = v => height - bottom - (0.03 + 0.94 * share(v)) * (height - top - bottom);
    for (const v of ticks(low, high, 5)) svg.append(s("line", { class: "grid", x1: left, x2: width - right, y1: y(v), y2: y(v) }), s("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, short(v)));
    svg.append(s("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
    return y;
  }
  function dot(t, x, y) {
    const title = s("title", {}, tell(t)), style = { "--run": tint(t) };
    if (t.state === "failed") return s("path", { class: "failed trial", d: `M${x - 4},${y - 4}l8,8m0,-8l-8,8` }, title);
    if (isBeyond(t.value)) return s("path", { class: "dot trial", style, d: t.value > high ? `M${x - 5},${y + 5}h10l-5,-9z` : `M${x - 5},${y - 5}h10l-5,9z` }, title);
    if (t.state === "pruned") return s("path", { class: "pruned trial", d: `M${x - 3.5},${y}h7m-3.5,-3.5v7` }, title);
    return s("circle", { class: "dot trial", style, cx: x, cy: y, r: t === best ? 6 : 4 }, title);
  }
  function history() {
    const svg = s("svg", { class: "plot", role: "img", "aria-label": "values of the trials in their order, and the best so far" });
    redraws.push(() => {
      const width = Math.max(260, svg.clientWidth || 900), height = 260, left = 58, right = 14, bottom = 26, top = 10, first = trials.length ? trials[0].n : 0, last = trials.length ? trials[trials.length - 1].n : 1;
      const y = frame(svg, width, height, left, right, top, bottom), x = n => left + 8 + (last > first ? (n - first) / (last - first) : 0.5) * (width - left - right - 16);
      for (const v of ticks(first, last, width / 90).filter(Number.isInteger)) svg.append(s("text", { x: x(v), y: height - 8, "text-anchor": "middle" }, short(v)));
      let record = null, path = "";
      for (const t of complete) {
        if (record !== null && better(t.value, record) >= 0) continue;
        path += record === null ? `M${x(t.n)},${y(t.value)}` : `H${x(t.n)}V${y(t.value)}`;
        record = t.value;
      }
      if (record !== null) svg.append(s("path", { class: "level", d: path + `H${x(last)}` }));
      const shown = trials.filter(t => t.state === "failed" || (t.value !== null && t.state !== "running")), nodes = shown.map(t => dot(t, x(t.n), t.state === "failed" ? height - bottom - 6 : y(t.value)));
      svg.append(...nodes);
      painters[0] = set => nodes.forEach((node, i) => node.classList.toggle("off", !set.has(shown[i].n)));
    });
    const key = (d, text, cls) => h("span", {}, s("svg", { viewBox: "0 0 26 10" }, s("path", { class: cls, d })), text);
    return h("section", { class: "card" }, h("p", { class: "keys" }, key("M8,5a4,4 0 1 0 8,0a4,4 0 1 0 -8,0", "complete, blue the best", "dot"), key("M9,5h8m-4,-4v8", "pruned, at the step where it ended", "pruned"), key("M9,1l8,8m0,-8l-8,8", "failed", "failed"), key("M0,5h26", "best so far", "level"), isCut ? key("M8,9h10l-5,-9z", "far worse: beyond the plot", "dot") : ""), svg);
  }

  // ── the front ──
  function front(g) {
    const svg = s("svg", { class: "plot front", role: "img", "aria-label": "the trials by two goals, and the front" }), slot = 1 + dims.length + g;
    const span = of => { const all = complete.map(t => t.values[of]), kept = ranges(all, study.goals[of].max); return kept; };
    function ranges(all, isMax) { // from the best to three quartiles' distance beyond the third: a diverged training does not flatten the rest
      const line = [...all].sort((a, b) => isMax ? b - a : a - b), at = share => line[Math.min(line.length - 1, Math.floor(share * line.length))];
      const bound = at(0.75) + 3 * (at(0.75) - at(0.25)), last = line[line.length - 1], worst = line.length > 7 && bound !== at(0.75) && (isMax ? last < bound : last > bound) ? bound : last;
      const ends = [Math.min(line[0], worst), Math.max(line[0], worst)], pad = (ends[1] - ends[0]) * 0.04 || Math.abs(ends[0]) * 0.1 || 0.5;
      return [ends[0] - pad, ends[1] + pad];
    }
    redraws.push(() => {
      const width = Math.max(260, svg.clientWidth || 900), height = 320, left = 66, right = 16, top = 12, bottom = 46;
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`); svg.setAttribute("height", height); svg.replaceChildren();
      const [x0, x1] = span(0), [y0, y1] = span(g), clamp = v => Math.max(0, Math.min(1, v));
      const x = v => left + clamp((v - x0) / (x1 - x0)) * (width - left - right), y = v => height - bottom - clamp((v - y0) / (y1 - y0)) * (height - top - bottom);
      for (const v of ticks(x0, x1, width / 110)) svg.append(s("line", { class: "grid", x1: x(v), x2: x(v), y1: top, y2: height - bottom }), s("text", { x: x(v), y: height - bottom + 16, "text-anchor": "middle" }, short(v)));
      for (const v of ticks(y0, y1, 6)) svg.append(s("line", { class: "grid", x1: left, x2: width - right, y1: y(v), y2: y(v) }), s("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, short(v)));
      svg.append(s("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }), s("line", { class: "axis", x1: left, x2: left, y1: top, y2: height - bottom }),
        s("text", { class: "name", x: width - right, y: height - 8, "text-anchor": "end" }, goal + " →"), s("text", { class: "name", x: left + 6, y: top + 10 }, "↑ " + study.goals[g].name));
      const on = complete.filter(t => t.front).sort((a, b) => a.values[0] - b.values[0]);
      if (study.goals.length === 2 && on.length) { // steps along what is dominated
        const rises = study.goals[0].max; // to the left of a point of a maximum lies what it beats
        let path = `M${x(on[0].values[0])},${y(on[0].values[1])}`;
        for (const t of on.slice(1)) path += rises ? `V${y(t.values[1])}H${x(t.values[0])}` : `H${x(t.values[0])}V${y(t.values[1])}`;
        svg.append(s("path", { class: "level", d: path }));
      }
      const shown = [...complete.filter(t => !t.front), ...on];
      const nodes = shown.map(t => s("circle", { class: "dot trial", style: { "--run": t.front ? "var(--c0)" : "var(--c1)" }, cx: x(t.values[0]), cy: y(t.values[g]), r: t.front ? 6 : 4 }, s("title", {}, tell(t))));
      svg.append(...nodes);
      painters[slot] = set => nodes.forEach((node, i) => node.classList.toggle("off", !set.has(shown[i].n)));
    });
    return h("section", { class: "card" }, h("p", { class: "small soft" }, `${complete.filter(t => t.front).length} of ${complete.length} complete trials are on the front (large, blue): no other one beats them in all goals. Values far worse than the others stand at the edge.`), svg);
  }

  // ── parallel coordinates ──
  function parallel() {
    const svg = s("svg", { class: "plot parallel", role: "img", "aria-label": "a line for each trial through its choices and its value" });
    const clear = h("button", { type: "button", onclick: () => { brushes.clear(); for (const draw of redraws) draw(); choose(); } }, "choose all");
    redraws.push(() => {
      const axes = dims.length + 1, width = Math.max(Math.min(900, 90 * axes), svg.clientWidth || 900), height = 340, left = 46, right = 62, top = 30, bottom = 34, tall = height - top - bottom;
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`); svg.setAttribute("height", height); svg.replaceChildren();
      const x = d => left + d / (axes - 1 || 1) * (width - left - right), y = unit => top + tall * (1 - unit), none = height - 12;
      const shown = [...valued].sort((a, b) => (rank.get(b.n) ?? 2) - (rank.get(a.n) ?? 2));
      const at = (t, d) => d === dims.length ? y(share(t.value)) : t.point[d] === null ? none : y(place(dims[d], t.point[d]));
      const lines = shown.map(t => s("path", { class: "way" + (t.state === "pruned" ? " cut" : "") + (t === best ? " best" : ""), style: { stroke: tint(t) }, d: "M" + Array.from({ length: axes }, (_, d) => `${x(d)},${at(t, d)}`).join("L") }, s("title", {}, tell(t))));
      svg.append(s("g", {}, lines));
      for (let d = 0; d < axes; d++) {
        const dim = dims[d], name = dim ? dim.name : goal, half = d === 0 ? 7 : 6;
        svg.append(s("line", { class: "axis strong", x1: x(d), x2: x(d), y1: top, y2: top + tall }), s("text", { class: "name", x: x(d), y: 14, "text-anchor": d === 0 ? "start" : d === axes - 1 ? "end" : "middle" }, clipped(name, Math.max(6, Math.floor((width / axes) / (d === axes - 1 ? 11 : 7)))), s("title", {}, name)));
        const labels = dim ? marks(dim, 5).map(v => [place(dim, v), said(dim, v)]) : ticks(low, high, 5).map(v => [share(v), short(v)]);
        for (const [unit, text] of labels) svg.append(s("text", { class: "mark", x: x(d) + half, y: y(unit) + 4 }, clipped(text, 14)));
        if (dim && valued.some(t => t.point[d] === null)) svg.append(s("text", { x: x(d) + half, y: none + 4 }, "not there"));
        const band = s("rect", { class: "brush", x: x(d) - 7, width: 14, y: top, height: 0 }), hit = s("rect", { class: "hit", x: x(d) - 14, width: 28, y: top - 8, height: tall + 16 });
        const show = () => { const b = brushes.get(d); band.setAttribute("y", b ? y(b[1]) : top); band.setAttribute("height", b ? Math.max(1, (b[1] - b[0]) * tall) : 0); };
        const unitOf = event => { const box = svg.getBoundingClientRect(); return Math.max(0, Math.min(1, 1 - ((event.clientY - box.top) * height / box.height - top) / tall)); };
        let from = null;
        hit.addEventListener("pointerdown", event => { from = unitOf(event); hit.setPointerCapture(event.pointerId); event.preventDefault(); });
        hit.addEventListener("pointermove", event => { if (from === null) return; const to = unitOf(event); brushes.set(d, [Math.min(from, to), Math.max(from, to)]); show(); choose(); });
        hit.addEventListener("pointerup", () => { const b = brushes.get(d); if (from !== null && (!b || b[1] - b[0] < 0.01)) { brushes.delete(d); show(); choose(); } from = null; });
        show();
        svg.append(band, hit);
      }
      painters[1] = set => lines.forEach((line, i) => line.classList.toggle("off", !set.has(shown[i].n)));
    });
    return h("section", { class: "card" }, h("p", { class: "small soft" }, "Draw along an axis with the mouse to choose the trials that pass there, in all plots and the table; a click on the axis ends that. Colours go by the order of the values, from blue (best) to orange; dashed grey lines are pruned trials. ", clear), h("div", { class: "wide", tabindex: 0 }, svg));
  }

  // ── slices ──
  function slice(dim, d) {
    const svg = s("svg", { class: "plot", role: "img", "aria-label": "value of the trials by " + dim.name });
    redraws.push(() => {
      const width = Math.max(220, svg.clientWidth || 400), height = 190, left = 56, right = 12, bottom = 26, y = frame(svg, width, height, left, right, 8, bottom), x = unit => left + 8 + unit * (width - left - right - 16);
      const labels = marks(dim, Math.max(2, Math.floor(width / 90))), room = Math.max(4, Math.floor(width / (labels.length || 1) / 7));
      for (const v of labels) svg.append(s("text", { x: x(place(dim, v)), y: height - 8, "text-anchor": "middle" }, clipped(said(dim, v), room)));
      const shown = valued.filter(t => t.point[d] !== null), failed = trials.filter(t => t.state === "failed" && t.point[d] !== null);
      const nodes = [...shown, ...failed].map((t, i) => dot(t, x(place(dim, t.point[d])) + (dim.kind === "choice" ? (t.n * 7 % 13 - 6) * 1.5 : 0), i < shown.length ? y(t.value) : height - bottom - 6)), all = [...shown, ...failed];
      svg.append(...nodes);
      painters[2 + d] = set => nodes.forEach((node, i) => node.classList.toggle("off", !set.has(all[i].n)));
    });
    return h("section", { class: "card" }, h("h3", {}, dim.name, " ", h("span", { class: "small soft" }, dim.range.slice(dim.range.indexOf("=") + 1))), svg);
  }

  // ── importance ──
  function importance() {
    const found = study.importance;
    if (!found) return missing("There is none yet: it takes ten complete trials whose values differ.");
    const bar = (name, value, deviation) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "n" }, (100 * value).toFixed(1) + " %" + (deviation === null ? "" : " ± " + (100 * deviation).toFixed(1))), h("td", {}, h("span", { class: "track c0" }, h("i", { style: { width: Math.max(0, Math.min(100, 100 * value)) + "%" } }))));
    const rows = dims.map((dim, d) => [dim.name, ...found.share[d]]).sort((a, b) => b[1] - a[1]).map(row => bar(...row));
    return h("section", { class: "card" }, h("div", { class: "wide" }, h("table", { class: "bars" }, h("tbody", {}, rows, dims.length > 1 ? bar("several only together", found.together, null) : ""))),
      h("p", { class: "small soft" }, `The share of the variance over the whole space that a dimension explains alone, by functional ANOVA of 64 regression trees of ${found.trials} complete trials (Hutter, Hoos, Leyton-Brown: An Efficient Approach for Assessing Hyperparameter Importance, ICML 2014); ± is the standard deviation between trees. With few trials, and with samplers that look mostly where it is good, it is a rough guide. Values far worse than the others count as at three interquartile ranges; a dimension that is not there in a trial has a random value there.`));
  }

  // ── table ──
  const body = h("tbody", {}), count = h("p", { class: "small soft", role: "status" }), heads = [];
  const columns = [["trial", t => t.n, t => String(t.n), "n"], ["state", t => t.state, t => t.state], [goal, t => t.value === null ? null : t.value, t => t.value === null ? "—" : number(t.value, 6), "n"],
    ...study.goals.slice(1).map((one, g) => [one.name, t => t.values[g + 1], t => t.values[g + 1] === null ? "—" : number(t.values[g + 1], 6), "n"]), ["step", t => t.step, t => t.step === null ? "—" : number(t.step), "n"], ["seconds", t => t.seconds, t => t.seconds === null ? "—" : number(t.seconds, 3), "n"],
    ...dims.map((dim, d) => [dim.name, t => t.point[d], t => said(dim, t.point[d]), dim.kind === "choice" ? "" : "n"]), ["why it failed", t => t.why || null, t => t.why]];
  function order(a, b) {
    const of = columns[sort.column][1], one = of(a), other = of(b);
    if (one === null || other === null) return (one === null) - (other === null) || a.n - b.n; // what is not there comes last
    return (sort.falling ? -1 : 1) * (typeof one === "string" ? one.localeCompare(other) : one - other) || a.n - b.n;
  }
  function fillTable() {
    const most = 1000, rows = [...chosen].sort(order);
    body.replaceChildren(...rows.slice(0, most).map(t => h("tr", { class: t === best || t.front ? "top" : "" }, columns.map(([, , text, cls], i) => h(i ? "td" : "th", { class: cls || false, scope: i ? undefined : "row" }, text(t))))));
    count.textContent = `${chosen.length} of ${study.count} trials` + (rows.length > most ? `; the first ${most} are listed` : "") + (trials.length < study.count ? `; this page has the newest 5000, and those that were the best at their time` : "");
    heads.forEach((head, i) => head.setAttribute("aria-sort", i === sort.column ? (sort.falling ? "descending" : "ascending") : "none"));
  }
  function list() {
    columns.forEach(([name, , , cls], i) => {
      const press = () => { sort = { column: i, falling: sort.column === i ? !sort.falling : i === 2 && study.max }; fillTable(); };
      heads.push(h("th", { scope: "col", class: cls || false }, h("button", { type: "button", class: "sort", onclick: press }, name)));
    });
    return h("section", { class: "card" }, count, h("div", { class: "wide", tabindex: 0 }, h("table", { class: "trials" }, h("thead", {}, h("tr", {}, heads)), body)));
  }

  // ── the page ──
  const parts = study.states.filter(([, many]) => many).map(([state, many]) => many + " " + (state === "running" ? "running or lost" : state));
  const summary = [h("p", {}, code(study.goal), ` over ${dims.length} dimension${dims.length === 1 ? "" : "s"}; ${study.count} trial${study.count === 1 ? "" : "s"}`, parts.length ? ": " + parts.join(", ") : "", "."),
    study.where.length ? h("p", {}, "Where ", study.where.flatMap((text, i) => [i ? ", " : "", code(text)]), ".") : "",
    best ? h("p", {}, `Best: trial ${best.n}, ${number(best.value, 6)} at step ${number(best.step)}: `, dims.flatMap((dim, d) => best.point[d] === null ? [] : [code(dim.name + " = " + said(dim, best.point[d])), " "])) : h("p", {}, several && complete.length ? "The front: " + complete.filter(t => t.front).map(t => "trial " + t.n).join(", ") + ". Plots of one value show " + goal + "." : "No trial has come to its end with a value."),
    study.skipped ? h("p", { class: "small bad" }, `${study.skipped} lines of the journal are unreadable.`) : ""];
  const sections = [...(several && complete.length ? [["front", "Front", study.goals.slice(1).map((_, g) => front(g + 1))]] : []), ["history", "History", history()], ["parallel", "Choices and values", parallel()], ["slices", "Each dimension", h("div", { class: "charts" }, dims.map(slice))], ["importance", "Importance", importance()], ["trials", "Trials", list()]];
  document.title = "study " + study.study;
  document.getElementById("main").replaceChildren(h("h1", {}, "study " + study.study), ...summary.filter(part => part), h("nav", { "aria-label": "sections" }, sections.map(([name, title]) => h("a", { href: "#" + name }, title))), ...sections.map(([name, title, part]) => h("section", { "aria-labelledby": name }, h("h2", { id: name }, title), part)));
  redraw();
  choose();
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); choose(); } });
}
