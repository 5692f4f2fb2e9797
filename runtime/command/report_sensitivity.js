"use strict";
// The page of `ftrun sensitivity`: report.js, which has the helpers, calls showSensitivity. Names from the model go through textContent.
function showSensitivity(found) {
  const { curves, numbers, base } = found, measured = i => [[0, 0, base], ...curves[i].points], hidden = new Set(), painters = [];
  const total = curves.reduce((sum, curve) => sum + curve.elements, 0), percent = (value, digits = 1) => (100 * value).toFixed(digits) + " %";
  const look = i => ({ "stroke-dasharray": ["none", "7 3", "2 3", "9 3 2 3"][Math.floor(i / 8) % 4] }), key = i => s("svg", { viewBox: "0 0 26 10", width: 26, height: 10, class: "c" + i % 8, "aria-hidden": "true" }, s("line", { class: "curve", style: look(i), x1: 0, x2: 26, y1: 5, y2: 5 }));
  let lit = null;
  const paint = () => painters.forEach(one => one());
  const light = i => { lit = i; paint(); };

  // ── a plot of one number ──
  // Values far beyond the others stand at the edge of the plot, so that they do not hide the rest.
  function range(n) {
    const all = curves.flatMap((_, i) => measured(i).map(p => p[2][n])).filter(v => v !== null).sort((a, b) => a - b);
    if (!all.length) return [0, 1];
    const at = share => all[Math.min(all.length - 1, Math.floor(share * all.length))], reach = 3 * (at(0.75) - at(0.25));
    let low = Math.max(all[0], at(0.25) - reach), high = Math.min(all[all.length - 1], at(0.75) + reach);
    if (base[n] !== null) { low = Math.min(low, base[n]); high = Math.max(high, base[n]); }
    if (!(high > low)) { low -= 0.5; high += 0.5; }
    const pad = (high - low) * 0.05;
    return [low - pad, high + pad];
  }
  function plot(n) {
    const svg = s("svg", { class: "plot", role: "img", tabindex: 0, "aria-label": `${numbers[n]} by the share of a parameter's weights that are 0: ` + curves.slice(0, 12).map((curve, i) => `${curve.name} ${measured(i).map(p => p[2][n] === null ? "not finite" : number(p[2][n])).join(" ")}`).join("; ") });
    const reading = h("p", { class: "reading", "aria-live": "polite" }), [low, high] = range(n), groups = [];
    let x = null, marks = null;
    redraws.push(() => {
      const width = Math.max(260, svg.clientWidth || 560), height = 320, left = 58, right = 26, top = 10, bottom = 38, tall = height - top - bottom, span = width - left - right;
      const y = v => top + tall - Math.max(0, Math.min(1, (v - low) / (high - low))) * tall;
      x = share => left + share * span;
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.setAttribute("height", height);
      svg.replaceChildren();
      for (const v of ticks(low, high, 6)) svg.append(s("line", { class: "grid", x1: left, x2: width - right, y1: y(v), y2: y(v) }), s("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, short(v)));
      for (const v of ticks(0, 1, width / 70)) svg.append(s("text", { x: x(v), y: height - 22, "text-anchor": "middle" }, percent(v, 0)));
      svg.append(s("text", { x: left + span / 2, y: height - 6, "text-anchor": "middle" }, "share of the parameter's weights that are 0"), s("line", { class: "axis", x1: left, x2: width - right, y1: top + tall, y2: top + tall }));
      if (base[n] !== null) svg.append(s("line", { class: "cursor", x1: left, x2: width - right, y1: y(base[n]), y2: y(base[n]) }, s("title", {}, "as it is: " + number(base[n]))));
      groups.length = 0;
      curves.forEach((curve, i) => {
        const group = s("g", { class: "c" + i % 8 }), list = measured(i);
        let path = "", open = false;
        for (const [share, , values] of list) {
          if (values[n] === null) { open = false; continue; }
          path += (open ? "L" : "M") + x(share).toFixed(1) + "," + y(values[n]).toFixed(1);
          open = true;
        }
        group.append(s("path", { class: "curve", d: path, style: look(i) }));
        for (const [share, zeros, values] of list) {
          const v = values[n], title = s("title", {}, `${curve.name}, ${percent(share)} (${number(zeros)} of ${number(curve.elements)}): ${numbers[n]} ${v === null ? "not finite" : number(v)}`);
          if (v === null) group.append(s("path", { class: "fault", d: `M${x(share) - 3.5},${top}l7,7m-7,0l7,-7` }, title));
          else if (v > high) group.append(s("path", { class: "dot", d: `M${x(share) - 5},${top + 9}h10l-5,-9z` }, title));
          else if (v < low) group.append(s("path", { class: "dot", d: `M${x(share) - 5},${top + tall - 9}h10l-5,9z` }, title));
          else group.append(s("circle", { class: "dot", r: 3, cx: x(share), cy: y(v) }, title));
        }
        groups.push(group);
        svg.append(group);
      });
      marks = s("g", {});
      svg.append(marks);
      dim();
    });
    function dim() { groups.forEach((group, i) => { group.style.opacity = hidden.has(i) ? 0 : lit !== null && lit !== i ? 0.15 : 1; }); }
    function read(event) {
      if (!x || !curves.length) return;
      const box = svg.getBoundingClientRect(), share = (event.clientX - box.left) / box.width * (svg.viewBox.baseVal.width || box.width), shares = [0, ...curves[0].points.map(p => p[0])];
      const at = shares.reduce((best, one, k) => Math.abs(x(one) - share) < Math.abs(x(shares[best]) - share) ? k : best, 0);
      const rows = curves.map((curve, i) => [curve, i, measured(i)[at][2][n]]).filter(([, i]) => !hidden.has(i)).sort((a, b) => (b[2] ?? -Infinity) - (a[2] ?? -Infinity)).slice(0, 16);
      marks.replaceChildren(s("line", { class: "cursor", x1: x(shares[at]), x2: x(shares[at]), y1: 10, y2: 282 }));
      reading.replaceChildren(h("span", {}, percent(shares[at])), ...rows.map(([curve, i, v]) => h("span", { class: "c" + i % 8 }, h("i", { class: "swatch" }), curve.name + " ", h("b", {}, v === null ? "not finite" : number(v)))));
    }
    svg.addEventListener("pointermove", read);
    svg.addEventListener("pointerleave", () => { if (marks) marks.replaceChildren(); reading.replaceChildren(); });
    painters.push(dim);
    return h("section", { class: "card" }, h("h3", {}, numbers[n]), svg, reading);
  }
  function legend() {
    return h("fieldset", {}, h("legend", {}, "parameters"), curves.map((curve, i) => h("label", { class: "small", onpointerenter: () => light(i), onpointerleave: () => light(null) },
      h("input", { type: "checkbox", checked: true, onchange: event => { if (event.target.checked) hidden.delete(i); else hidden.add(i); paint(); } }), " ", key(i), " ", curve.name)));
  }

  // ── tables ──
  const shown = numbers.length > 1 ? 1 : 0, value = v => v === null ? "not finite" : number(v);
  function suggestion() {
    if (!found.suggested) return missing("With " + found.structure + " each parameter has one share, and nothing is left to choose.");
    const row = (name, [zeros, values]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "n" }, percent(zeros / total)), values.map(v => h("td", { class: "n" }, value(v))));
    return h("section", { class: "card" }, h("div", { class: "wide" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, ""), h("th", { class: "n" }, "weights that are 0"), numbers.map(name => h("th", { class: "n" }, name)))),
      h("tbody", {}, row("as it is", [0, base]), row("as suggested", found.suggested), row("the same share of each", found.uniform)))),
      h("p", { class: "small soft" }, `The suggested shares, in the table below, make ${percent(found.budget)} of all these weights 0 and lose the least if the losses of single parameters add up, which they do only roughly. Nothing was trained in between: a training after pruning gains most of the loss back.`));
  }
  function list() {
    const shares = curves.length ? curves[0].points.map(p => p[0]) : [];
    return h("section", { class: "card" }, h("p", { class: "small soft" }, numbers[shown], " where that share of a parameter's weights is 0"), h("div", { class: "wide", tabindex: 0 }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "parameter"), h("th", { class: "n" }, "weights"), found.suggested ? h("th", { class: "n" }, "suggested") : "", shares.map(share => h("th", { class: "n" }, percent(share, Number.isInteger(1000 * share / 10) ? 0 : 1))))),
      h("tbody", {}, curves.map((curve, i) => h("tr", { onpointerenter: () => light(i), onpointerleave: () => light(null) }, h("th", { scope: "row" }, key(i), " ", curve.name), h("td", { class: "n" }, number(curve.elements)), found.suggested ? h("td", { class: "n" }, h("b", {}, percent(curve.suggested))) : "", curve.points.map(p => h("td", { class: "n" }, value(p[2][shown])))))))));
  }

  // ── the page ──
  const order = numbers.map((_, i) => i).sort((a, b) => (b === shown) - (a === shown));
  const sections = [["curves", "Curves", [h("div", { class: "bar" }, legend()), h("div", { class: "charts" }, order.map(plot))]], ["suggestion", "Suggestion", suggestion()], ["parameters", "Parameters", list()]];
  document.title = "sensitivity of " + found.model;
  document.getElementById("main").replaceChildren(h("h1", {}, "sensitivity to pruning"), h("p", {}, code(found.model), " with ", code(found.weights), `: each parameter is pruned by magnitude, by itself, structure ${found.structure}, and evaluated on ${found.split}. ${curves.length} parameter${curves.length === 1 ? "" : "s"} of ${number(total)} weights.`),
    h("nav", { "aria-label": "sections" }, sections.map(([name, title]) => h("a", { href: "#" + name }, title))), ...sections.map(([name, title, part]) => h("section", { "aria-labelledby": name }, h("h2", { id: name }, title), part)));
  redraw();
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); } });
}
