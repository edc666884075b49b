// Parallel coordinates of a sweep: a line is a job, an axis a swept key or an objective. Dragging along an axis keeps the
// jobs that cross it there.
import { h, s, num } from "./dom.js";
import { ramp, niceTicks, brief, dark } from "./chart.js";

const AREA = { top: 40, height: 250, left: 70, gap: 130 };

// geometric says whether values are steps by a factor: the reports' rule.
function geometric(values) {
  const v = [...new Set(values)].sort((a, b) => a - b), n = v.length;
  if (v[n - 1] >= 100 * v[0]) return true;
  if (n < 3 || v[n - 1] < 10 * v[0]) return false;
  const steps = v.slice(1).map((x, i) => Math.log(x / v[i]));
  return Math.max(...steps) <= 2.5 * Math.min(...steps) && v[n - 1] - v[n - 2] > 2.5 * (v[1] - v[0]);
}

// axisOf places values on an axis: a number on a scale, a word in its order.
function axisOf(name, values, log, order) {
  const numbers = values.map((v) => v == null || v === "" ? null : Number(v));
  const known = numbers.filter((v) => v != null && Number.isFinite(v));
  if (known.length && known.length === values.filter((v) => v != null && v !== "").length) {
    const scale = known.every((v) => v > 0) && (log || geometric(known)) ? Math.log10 : (v) => v;
    let low = Math.min(...known.map(scale)), high = Math.max(...known.map(scale));
    if (low === high) [low, high] = [low - 0.5, high + 0.5]; // in the middle of the axis
    const few = [...new Set(known)];
    const ticks = few.length <= 6 ? few : scale === Math.log10 ? [...new Set(known)].sort((a, b) => a - b).filter((v, i, all) => all.length <= 6 || i % Math.ceil(all.length / 6) === 0) : niceTicks(low, high, 5);
    return { name, at: (i) => numbers[i] == null || !Number.isFinite(numbers[i]) ? null : (scale(numbers[i]) - low) / (high - low), ticks: ticks.map((v) => [(scale(v) - low) / (high - low), brief(v)]) };
  }
  const words = [...new Set([...(order || []), ...values.filter((v) => v != null)])].slice(0, 60);
  const place = (v) => words.length < 2 ? 0.5 : words.indexOf(v) / (words.length - 1);
  return { name, at: (i) => values[i] == null ? null : place(values[i]), ticks: words.map((w) => [place(w), w.length > 14 ? w.slice(0, 13) + "…" : w]) };
}

export class Parallel {
  // kept is called with the numbers of the jobs that pass all ranges; open with the one that was clicked.
  constructor(sweep, kept, open) {
    this.jobs = sweep.jobs.filter((j) => j.objectives?.some((x) => x != null)).slice(0, 3000);
    this.kept = kept;
    const dims = sweep.dimensions.filter((d) => new Set(this.jobs.map((j) => j.params[d.key])).size > 1).slice(0, 12);
    this.axes = [...dims.map((d) => axisOf(d.key, this.jobs.map((j) => j.params[d.key]), d.log, d.values)),
      ...sweep.objectives.map((o, i) => axisOf(o.name, this.jobs.map((j) => j.objectives?.[i] ?? null)))];
    this.ranges = this.axes.map(() => null);
    const objective = this.axes[dims.length], minimize = sweep.objectives[0]?.minimize;
    this.element = h("div", { class: "box" });
    if (this.axes.length < 2 || this.jobs.length < 2) return;
    const width = AREA.left + AREA.gap * (this.axes.length - 1) + 80;
    const x = (k) => AREA.left + AREA.gap * k, y = (u) => AREA.top + AREA.height * (1 - u);
    const good = (i) => { const u = objective?.at(i) ?? 0; return minimize ? 1 - u : u; };
    const order = this.jobs.map((j, i) => i).sort((a, b) => good(a) - good(b)); // the best on top
    this.lines = new Map();
    const lines = s("g", {}, order.map((i) => {
      const points = this.axes.map((axis, k) => [k, axis.at(i)]).filter(([, u]) => u != null).map(([k, u]) => `${x(k)},${y(u).toFixed(1)}`).join(" ");
      const line = s("polyline", { points, class: "job", stroke: ramp(dark() ? 0.25 + 0.75 * good(i) : 0.85 * (1 - good(i))) }, s("title", {}, `job ${this.jobs[i].number}: ` + Object.entries(this.jobs[i].params).map(([k, v]) => `${k}=${v}`).join(" ") + ` → ${this.jobs[i].objectives.map((v) => num(v)).join(", ")}`));
      line.addEventListener("click", () => open(this.jobs[i]));
      this.lines.set(i, line);
      return line;
    }));
    const axes = this.axes.map((axis, k) => {
      const range = s("rect", { class: "range", x: x(k) - 8, width: 16, y: AREA.top, height: 0 });
      const g = s("g", { class: "axis" }, s("line", { x1: x(k), x2: x(k), y1: AREA.top, y2: AREA.top + AREA.height }),
        axis.ticks.map(([u, text]) => s("text", { x: x(k) - 6, y: y(u) + 4, "text-anchor": "end" }, text)),
        s("text", { class: "name", x: x(k), y: AREA.top - 18, "text-anchor": "middle" }, axis.name.length > 20 ? "…" + axis.name.slice(-19) : axis.name, s("title", {}, axis.name)), range,
        s("rect", { class: "grip", x: x(k) - 14, width: 28, y: AREA.top - 6, height: AREA.height + 12 }));
      this.drag(g, range, k);
      return g;
    });
    this.svg = s("svg", { viewBox: `0 0 ${width} ${AREA.top + AREA.height + 16}`, width, class: "parallel", role: "img", "aria-label": "Parallel coordinates of the jobs; the table below holds the same numbers" }, lines, axes);
    this.element.append(this.svg);
  }

  drag(g, range, k) {
    const unit = (e) => {
      const box = this.svg.getBoundingClientRect();
      const py = (e.clientY - box.top) / box.height * (AREA.top + AREA.height + 16);
      return Math.min(Math.max(1 - (py - AREA.top) / AREA.height, 0), 1);
    };
    g.addEventListener("pointerdown", (e) => {
      const from = unit(e);
      g.setPointerCapture(e.pointerId);
      const move = (m) => {
        const to = unit(m);
        this.ranges[k] = Math.abs(to - from) < 0.02 ? null : [Math.min(from, to), Math.max(from, to)];
        range.setAttribute("y", AREA.top + AREA.height * (1 - (this.ranges[k]?.[1] ?? 0)));
        range.setAttribute("height", this.ranges[k] ? AREA.height * (this.ranges[k][1] - this.ranges[k][0]) : 0);
        this.filter();
      };
      g.addEventListener("pointermove", move);
      g.addEventListener("pointerup", (u) => { move(u); g.removeEventListener("pointermove", move); }, { once: true });
    });
  }

  filter() {
    const kept = new Set();
    for (const [i, line] of this.lines) {
      const passes = this.axes.every((axis, k) => !this.ranges[k] || (axis.at(i) != null && axis.at(i) >= this.ranges[k][0] && axis.at(i) <= this.ranges[k][1]));
      line.classList.toggle("out", !passes);
      if (passes) kept.add(this.jobs[i].number);
    }
    this.kept(this.ranges.some(Boolean) ? kept : null);
  }
}
