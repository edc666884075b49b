// The charts at the end of a report: of a run, or of a sweep's settings over their seeds.
import { h } from "./dom.js";
import { Chart } from "./chart.js";
import { PANELS, SeedCharts, curvesOf, phasesOf, viewControls } from "./panels.js";

const data = JSON.parse(document.querySelector('script[type="application/json"]').textContent);
const view = { time: data.runs ? null : false, log: false, smooth: 0, zoom: null };
const means = data.runs && new SeedCharts(view);
const grid = means ? means.grid : h("div", { class: "grid" }), charts = new Map();

function draw() {
  if (means) return means.show(data.runs);
  const phases = phasesOf(data);
  for (const panel of PANELS) {
    const curves = curvesOf(data, panel.names, view);
    if (!curves.length) continue;
    if (!charts.has(panel.title)) charts.set(panel.title, new Chart(grid, panel.title, { unit: panel.unit, sync: "report", zoom: (z) => { view.zoom = z; draw(); } }));
    charts.get(panel.title).show(curves, { ...view, phases, levels: panel.levels ? data.levels : null });
  }
}

document.querySelector("main").append(h("section", { class: "explore", id: "explore" }, h("h2", {}, "Curves to explore"),
  h("p", {}, data.runs ? "Means over the seeds of a setting with the 95 % interval of that mean, the numbers of the plot above, under the mouse or the arrow keys." :
    "The run's curves with their values under the mouse or the arrow keys.", " Dragging across one zooms all of them."), viewControls(view, draw), grid));
const list = document.querySelector("nav ul");
if (list) list.append(h("li", { class: "level2" }, h("a", { href: "#explore" }, "Curves to explore")));
draw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
