// What a report draws: the differences of its verdict, its first curve, and in the sections below the others. Of a run, or of a sweep's
// settings over their seeds.
import { h } from "./dom.js";
import { Chart, colour, forest } from "./chart.js";
import { PANELS, SeedCharts, curvesOf, phasesOf, viewControls } from "./panels.js";

const data = JSON.parse(document.querySelector('script[type="application/json"]').textContent);
const main = document.querySelector("main");
const view = { time: data.runs ? null : false, log: false, smooth: 0, zoom: null };

// hostOf is where the chart of a figure goes, null where the page does not have that figure.
function hostOf(figure) {
  const at = main.querySelector(`[data-plot="${figure}"]`);
  if (!at) return null;
  const host = h("div", { class: "grid" });
  at.closest("p").replaceWith(host);
  return host;
}

// onTop puts an element before the first section of the page, or before the first curve.
function onTop(element, first = ":scope > h2, :scope > details") {
  const at = main.querySelector(first);
  at ? at.before(element) : main.append(element);
  return element;
}

// others is the section of the other curves: that of the plots, or of a report without plots its own.
function others(grid) {
  const section = document.getElementById("plots")?.closest("details") ||
    onTop(h("details", {}, h("summary", {}, h("h2", { id: "plots" }, "Curves"))), ":scope > details");
  section.querySelector("summary").after(h("p", { class: "quiet small" }, "Values stand under the mouse or the arrow keys; dragging across a curve zooms."), viewControls(view, draw));
  section.append(grid);
}

// drawDifferences draws what the verdict compares below it, in a report without one before its first curve.
function drawDifferences() {
  if (!data.differences) return;
  const { what, rows } = data.differences, verdict = main.querySelector(".verdict"), next = verdict?.nextElementSibling;
  const host = h("div", {}, h("p", { class: "quiet small" }, what));
  if (verdict) (next?.tagName === "UL" ? next : verdict).after(host);
  else onTop(host, ":scope > p:has(> [data-plot]), :scope > h2, :scope > details");
  host.append(forest(rows, what, Math.min(host.clientWidth, 720)));
}

const charts = new Map(), hosts = new Map(), rest = h("div", { class: "grid" });
let first = null, means = [];

// drawFirst draws the curve of a run's score with its band, from the start on, and the best checkpoint.
function drawFirst() {
  const { name, epochs, best } = data.score;
  first ||= new Chart(hostOf(name.replace("val_", "")) || onTop(h("div", { class: "grid" })), `Mean ${name.slice(4).replace("_", " ")} on validation`, { height: 300, over: "over questions (Student’s t), as recorded at the start and the ends of phases, its width in between by interpolation" });
  const curves = curvesOf({ epochs }, [name], view);
  if (best) curves.push({ label: "best checkpoint", colour: colour(1), dots: true, apart: true, x: [best[0]], y: [best[1]] });
  first.show(curves, { ...view, zoom: null, phases: phasesOf(data), levels: data.levels });
}

function drawRun() {
  if (data.score) drawFirst();
  for (const panel of PANELS) {
    const curves = curvesOf(data, panel.names, view);
    if (!curves.length || curves.length === 1 && curves[0].label === data.score?.name) continue;
    if (!hosts.has(panel.figure)) hosts.set(panel.figure, hostOf(panel.figure) || rest);
    if (!charts.has(panel.title)) charts.set(panel.title, new Chart(hosts.get(panel.figure), panel.title, { unit: panel.unit, sync: "report", zoom: (z) => { view.zoom = z; draw(); } }));
    charts.get(panel.title).show(curves, { ...view, phases: phasesOf(data), levels: panel.levels ? data.levels : null });
  }
}

// part of the means over seeds: the score that the learning curves show, or the other metrics.
function part(shown) {
  return data.runs.map((m) => ({ ...m, epochs: { ...m.epochs, series: Object.fromEntries(Object.entries(m.epochs.series).filter(([name]) => (name === data.name) === shown)) } }));
}

function draw() {
  if (!data.runs) return drawRun();
  if (!data.runs.length) return;
  if (!means.length) {
    means = [new SeedCharts(view, draw, hostOf("curves") || onTop(h("div", { class: "grid" }))), new SeedCharts(view, draw, rest)];
  }
  means[0].show(part(true));
  means[1].show(part(false));
}

drawDifferences();
draw();
if (charts.size || rest.childElementCount) others(rest);
for (const at of main.querySelectorAll("[data-plot]")) at.outerHTML = at.nextElementSibling.textContent; // no curve shows it: as without a script
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
document.querySelector("nav")?.addEventListener("click", (e) => {
  const at = document.getElementById(e.target.hash?.slice(1))?.closest("details");
  if (at) at.open = true;
});
addEventListener("beforeprint", () => {
  for (const section of main.querySelectorAll("details")) section.open = true;
  for (const chart of [first, ...charts.values(), ...means.flatMap((m) => [...m.charts.values()])]) chart?.fit();
});
