// The charts of a run at the end of its report.
import { h } from "./dom.js";
import { Chart } from "./chart.js";
import { PANELS, curvesOf, viewControls } from "./panels.js";

const data = JSON.parse(document.querySelector('script[type="application/json"]').textContent);
const view = { time: false, log: false, smooth: 0, zoom: null };
const grid = h("div", { class: "grid" }), charts = new Map();

function draw() {
  const phases = data.phases.map((p) => ({ ...p, time: (data.steps.times[Math.max(data.steps.steps.findIndex((x) => x >= p.from), 0)] || data.started) - data.started }));
  for (const panel of PANELS) {
    const curves = curvesOf(data, panel.names, view);
    if (!curves.length) continue;
    if (!charts.has(panel.title)) charts.set(panel.title, new Chart(grid, panel.title, { unit: panel.unit, sync: "report", zoom: (z) => { view.zoom = z; draw(); } }));
    charts.get(panel.title).show(curves, { ...view, phases, levels: panel.levels ? data.levels : null });
  }
}

document.querySelector("main").append(h("section", { class: "explore", id: "explore" }, h("h2", {}, "Curves to explore"),
  h("p", {}, "The run's curves with their values under the mouse or the arrow keys. Dragging across one zooms all of them."), viewControls(view, draw), grid));
const list = document.querySelector("nav ul");
if (list) list.append(h("li", { class: "level2" }, h("a", { href: "#explore" }, "Curves to explore")));
draw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
