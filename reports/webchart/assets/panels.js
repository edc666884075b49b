// The charts of a run: which there are, their curves, how they are looked at.
import { h } from "./dom.js";
import { Chart, colour } from "./chart.js";

// PANELS are the charts of a run, in their order; what no panel names gets one of its own under "All other metrics". In a report a chart
// stands where its figure would.
export const PANELS = [
  { title: "Score on validation", figure: "accuracy", names: ["val_reward", "val_accuracy", "val_recorded_reward"], levels: true },
  { title: "Reward while training", figure: "sampled_reward", names: ["mean_reward", "reward_std"] },
  { title: "Loss", figure: "losses", names: ["loss", "val_loss"] },
  { title: "KL to the reference policy", figure: "kl", unit: "nats per sequence", names: ["kl", "val_kl"] },
  { title: "Ratio", figure: "ratio", names: ["mean_ratio"] },
  { title: "Clipped", figure: "ratio", unit: "share", names: ["clip_fraction", "clip_fraction_low", "clip_fraction_high", "advantage_clipped"] },
  { title: "Advantages", names: ["mean_advantage", "std_advantage", "max_advantage"] },
  { title: "Groups with a signal", figure: "signal", unit: "share", names: ["signal_share", "signal_share_top_k"] },
  { title: "Entropy", unit: "nats per step", names: ["entropy"] },
  { title: "Gradient norm", figure: "grad_norm", names: ["grad_norm"] },
  { title: "Learning rate", figure: "schedules", names: ["lr", "lr_mm_projector", "lr_vision_tower"], schedule: true },
  { title: "Temperature", figure: "schedules", names: ["temperature", "policy_temperature"], schedule: true },
  { title: "KL coefficient β", figure: "kl", names: ["kl_beta"], schedule: true },
  { title: "Curriculum", unit: "candidates", names: ["top_k", "group_size"], schedule: true },
  { title: "Completion length", figure: "completions", unit: "tokens", names: ["completion_length", "completion_length_min", "completion_length_max"] },
  { title: "Truncated", figure: "completions", unit: "share", names: ["truncated_share"] },
  { title: "Negative points", unit: "per completion", figure: "points", names: ["reward_points_named", "reward_points_in_confusion", "reward_points_on_object"] },
  { title: "Time of a step", unit: "s", names: ["step_seconds"] },
  { title: "Memory of the process", unit: "GB", names: ["memory", "memory_peak"], system: true },
  { title: "Memory of the GPU", unit: "GB", names: ["gpu", "gpu_peak", "gpu_free"], system: true },
];

// REFERRED are distances to a reference policy, at ends of epochs too; other metrics there compare across phases.
const REFERRED = ["kl", "val_kl"];

// parted breaks a curve, whose points are at these steps, where a phase ends: losses and references of two phases are different things.
function parted(curve, steps, phases, time) {
  for (const phase of phases.slice(1)) {
    const at = steps.findIndex((step) => step >= phase.from);
    if (at <= 0) continue;
    const border = phase.from - 0.5;
    for (const field of ["y", "low", "high"]) if (curve[field]) curve[field] = curve[field].toSpliced(at, 0, null);
    curve.x = curve.x.toSpliced(at, 0, time ? (curve.x[at - 1] + curve.x[at]) / 2 : border);
    steps = steps.toSpliced(at, 0, border);
  }
}

// curvesOf makes the curves of some metrics of one run's answer, or of a mean over seeds: then with the interval of the mean.
export function curvesOf(answer, names, view, first = 0, prefix = "") {
  const curves = [];
  const started = answer.started || 0;
  for (const [i, name] of names.entries()) {
    const c = answer.steps?.series[name], e = answer.epochs?.series[name];
    const shade = colour(first + i);
    if (c && c.mean.some((v) => v != null)) {
      curves.push({ label: prefix + name, colour: shade, y: c.mean, low: c.low || c.min, high: c.high || c.max, interval: !!c.low?.some((v) => v != null), bad: c.bad, x: view.time ? answer.steps.times.map((t) => t - started) : answer.steps.steps });
      parted(curves.at(-1), answer.steps.steps, answer.phases || [], view.time);
    } else if (e && e.mean.some((v) => v != null)) {
      const keep = e.mean.map((v, k) => k).filter((k) => e.mean[k] != null);
      const x = view.time ? answer.epochs.times.map((t) => t - started) : answer.epochs.steps;
      const curve = { label: prefix + name, colour: shade, dots: keep.length <= 200, bad: e.bad, interval: !!e.low?.some((v) => v != null), x: keep.map((k) => x[k]) };
      for (const [field, values] of [["y", e.mean], ["low", e.low], ["high", e.high]]) if (values) curve[field] = keep.map((k) => values[k]);
      curves.push(curve);
      if (REFERRED.includes(name)) parted(curve, keep.map((k) => answer.epochs.steps[k]), answer.phases || [], view.time);
    }
  }
  for (const c of curves) { // uPlot wants x to ascend: a clock that was set back must not tangle a curve
    const order = c.x.map((x, k) => k);
    if (c.x.some((x, k) => k && !(x > c.x[k - 1]))) {
      const seen = new Set();
      const sorted = order.sort((a, b) => c.x[a] - c.x[b]).filter((k) => !seen.has(c.x[k]) && seen.add(c.x[k]));
      for (const field of ["y", "low", "high", "x"]) if (c[field]) c[field] = sorted.map((k) => c[field][k]);
    }
  }
  return curves;
}

// phasesOf are the phases of a run's answer, with the seconds at which they begin.
export function phasesOf(answer) {
  const { steps, times } = answer.steps;
  return (answer.phases || []).map((p) => ({ ...p, time: (times[Math.max(steps.findIndex((x) => x >= p.from), 0)] || answer.started) - answer.started }));
}

// usual puts the metrics that the panels name first, in their order.
export function usual(names) {
  const known = PANELS.flatMap((p) => p.names).filter((n) => names.has(n));
  return [...known, ...[...names].filter((n) => !known.includes(n)).sort()];
}

// seedsLabel names a mean in a legend.
export function seedsLabel(mean) {
  return `${mean.label} (${mean.seeds} seed${mean.seeds > 1 ? "s" : ""})`;
}

// SeedCharts draws means over seeds over each other, a chart a metric.
export class SeedCharts {
  // change is called behind a zoom.
  constructor(view, change = () => this.draw(), grid = h("div", { class: "grid" })) {
    Object.assign(this, { view, change, charts: new Map(), means: [], grid });
  }

  show(means) {
    this.means = means;
    this.draw();
  }

  draw() {
    for (const name of usual(new Set(this.means.flatMap((m) => [m.steps, m.epochs].flatMap((d) => Object.keys(d?.series || {})))))) {
      const curves = this.means.flatMap((m, i) => curvesOf(m, [name], this.view, i).map((c) => ({ ...c, label: seedsLabel(m) })));
      if (!curves.length) continue;
      if (!this.charts.has(name)) this.charts.set(name, new Chart(this.grid, name, { sync: "seeds", zoom: (z) => { this.view.zoom = z; this.change(); } }));
      this.charts.get(name).show(curves, this.view);
    }
  }

  destroy() {
    for (const chart of this.charts.values()) chart.destroy();
  }
}

// viewControls are the switches of how curves are drawn; change is called behind each.
export function viewControls(view, change) {
  const set = (key, value) => { view[key] = value; change(); };
  return h("div", { class: "tools", role: "group", "aria-label": "How curves are drawn" },
    view.time == null ? null : h("label", {}, "Over ", h("select", { "aria-label": "Horizontal axis", onchange: (e) => { view.zoom = null; set("time", e.target.value === "time"); } },
      h("option", { value: "step", selected: !view.time }, "steps"), h("option", { value: "time", selected: view.time }, "time"))),
    h("label", {}, h("input", { type: "checkbox", checked: view.log, onchange: (e) => set("log", e.target.checked) }), " log axis"),
    h("label", {}, "Smooth ", h("input", { type: "range", min: "0", max: "0.99", step: "0.01", value: view.smooth, "aria-label": "Smoothing", oninput: (e) => set("smooth", +e.target.value) })),
    h("button", { class: "small", onclick: () => set("zoom", null) }, "Whole run"));
}

export function viewFrom(query) {
  const zoom = (query.get("zoom") || "").split("~").map(Number);
  return { time: query.get("x") === "time", log: query.get("log") === "1", smooth: Math.min(+query.get("smooth") || 0, 0.99),
    zoom: zoom.length === 2 && zoom[0] < zoom[1] ? zoom : null };
}

export function viewInto(query, view) {
  for (const [key, value] of [["x", view.time && "time"], ["log", view.log && "1"], ["smooth", view.smooth], ["zoom", view.zoom?.map((x) => +x.toPrecision(8)).join("~")]]) {
    value ? query.set(key, value) : query.delete(key);
  }
}
