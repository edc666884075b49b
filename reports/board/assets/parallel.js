// Parallel coordinates of a sweep: a line is a job, an axis a swept key or an objective. Dragging along an axis keeps the
// jobs that cross it there.
import { h, s, num } from "./dom.js";
import { ramp, niceTicks, brief, dark } from "./chart.js";

const AREA = { top: 40, height: 250, left: 70 };

// legible leaves out the ticks whose words would lie over those of another.
function legible(ticks) {
  return ticks.sort((a, b) => a[0] - b[0]).reduce((kept, tick) => kept.length && (tick[0] - kept.at(-1)[0]) * AREA.height < 14 ? kept : [...kept, tick], []);
}

// geometric says whether values are steps by a factor: the reports' rule.
function geometric(values) {
  const v = [...new Set(values)].sort((a, b) => a - b), n = v.length;
  if (v[n - 1] >= 100 * v[0]) return true;
  if (n < 3 || v[n - 1] < 10 * v[0]) return false;
  const steps = v.slice(1).map((x, i) => Math.log(x / v[i]));
  return Math.max(...steps) <= 2.5 * Math.min(...steps) && v[n - 1] - v[n - 2] > 2.5 * (v[1] - v[0]);
}

// rangesFrom reads ranges from an address: name of the axis → [low, high], null for an end that is open.
export function rangesFrom(query) {
  const end = (text) => text === "" || !Number.isFinite(+text) ? null : +text;
  return new Map(query.getAll("keep").map((text) => text.match(/^(.*)=([^=~]*)~([^=~]*)$/)).filter(Boolean).map(([, name, low, high]) => [name, [end(low), end(high)]]));
}

// logTicks are 1, 2 and 5 times powers of ten between two exponents, over many decades the powers alone.
function logTicks(low, high) {
  const of = high - low > 2.5 ? [1] : [1, 2, 5], all = [];
  for (let k = Math.floor(low); k <= high; k++) all.push(...of.map((m) => m * 10 ** k).filter((v) => Math.log10(v) >= low - 1e-9 && Math.log10(v) <= high + 1e-9));
  return all.length > 1 ? all : [10 ** low, 10 ** high];
}

const MEASURED = []; // the order of values that nobody has chosen: the ticks of their axis are round

// axisOf places values on an axis: a number on a scale, a word in its order. at is a job's place in [0, 1], place that of a value,
// value what stands at a place: of words their number.
function axisOf(name, values, logged, order) {
  const numbers = values.map((v) => v == null || v === "" ? null : Number(v));
  const known = numbers.filter((v) => v != null && Number.isFinite(v));
  if (known.length && known.length === values.filter((v) => v != null && v !== "").length) {
    const scale = known.every((v) => v > 0) && (logged || geometric(known)) ? Math.log10 : (v) => v;
    let low = Math.min(...known.map(scale)), high = Math.max(...known.map(scale));
    if (low === high) [low, high] = [low - 0.5, high + 0.5]; // in the middle of the axis
    const few = [...new Set(known)], log = scale === Math.log10;
    const ticks = order !== MEASURED && few.length <= 6 ? few : log ? logTicks(low, high) : niceTicks(low, high, 5);
    const place = (v) => (scale(v) - low) / (high - low), value = (u) => low + u * (high - low);
    return { name, place, value: log ? (u) => 10 ** value(u) : value, at: (i) => numbers[i] == null || !Number.isFinite(numbers[i]) ? null : place(numbers[i]), ticks: ticks.map((v) => [place(v), brief(v)]) };
  }
  const words = [...new Set([...(order || []), ...values.filter((v) => v != null)])].slice(0, 60);
  const last = words.length - 1, place = (k) => last < 1 ? 0.5 : k / last;
  return { name, place, value: (u) => u * last, at: (i) => values[i] == null ? null : place(words.indexOf(values[i])), ticks: words.map((w, k) => [place(k), w.length > 14 ? w.slice(0, 13) + "…" : w]) };
}

export class Parallel {
  // ranges are by the names of axes. changed is called with the numbers of the jobs that pass all of them, null for all; open with the
  // job that was clicked.
  constructor(sweep, ranges, changed, open) {
    this.jobs = sweep.jobs.filter((j) => j.objectives?.some((x) => x != null)).slice(0, 3000);
    Object.assign(this, { ranges, changed });
    const dims = sweep.dimensions.filter((d) => new Set(this.jobs.map((j) => j.params[d.key])).size > 1).slice(0, 12);
    this.axes = [...dims.map((d) => axisOf(d.key, this.jobs.map((j) => j.params[d.key]), d.log, d.values)),
      ...sweep.objectives.map((o, i) => axisOf(o.name, this.jobs.map((j) => j.objectives?.[i] ?? null), false, MEASURED))];
    const objective = this.axes[dims.length], minimize = sweep.objectives[0]?.minimize;
    this.element = h("div", { class: "box" });
    if (this.axes.length < 2 || this.jobs.length < 2) return;
    const gap = Math.min(Math.max((innerWidth - 200) / (this.axes.length - 1), 130), 260), width = AREA.left + gap * (this.axes.length - 1) + 80;
    const x = (k) => AREA.left + gap * k, y = (u) => AREA.top + AREA.height * (1 - u);
    const good = (i) => { if (sweep.mixed) return 0.5; const u = objective?.at(i) ?? 0; return minimize ? 1 - u : u; };
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
      const range = s("rect", { class: "range", x: x(k) - 8, width: 16 });
      const grip = s("rect", { class: "grip", x: x(k) - 14, width: 28, y: AREA.top - 6, height: AREA.height + 12, tabindex: 0, role: "slider", "aria-valuemin": 0, "aria-valuemax": 1, "aria-label": "What to keep of " + axis.name });
      const g = s("g", { class: "axis" }, s("line", { x1: x(k), x2: x(k), y1: AREA.top, y2: AREA.top + AREA.height }),
        legible(axis.ticks).map(([u, text]) => s("text", { x: x(k) + (k && k === this.axes.length - 1 ? 6 : -6), y: y(u) + 4, "text-anchor": k && k === this.axes.length - 1 ? "start" : "end" }, text)),
        s("text", { class: "name", x: x(k), y: AREA.top - 18, "text-anchor": "middle" }, axis.name.length > 20 ? "…" + axis.name.slice(-19) : axis.name, s("title", {}, axis.name)), range,
        grip);
      this.hold(axis, grip, range);
      return g;
    });
    this.svg = s("svg", { viewBox: `0 0 ${width} ${AREA.top + AREA.height + 16}`, width, class: "parallel", role: "group", "aria-label": "Parallel coordinates of the jobs; the table below holds the same numbers" }, lines, axes);
    this.element.append(this.svg);
  }

  // hold lets the mouse and the keyboard set the range of an axis.
  hold(axis, grip, range) {
    const ends = () => (this.ranges.get(axis.name) || [null, null]).map((v, i) => v == null ? i : Math.min(Math.max(axis.place(v), 0), 1));
    const show = () => {
      const [low, high] = ends();
      range.setAttribute("y", AREA.top + AREA.height * (1 - high));
      range.setAttribute("height", this.ranges.has(axis.name) ? AREA.height * (high - low) : 0);
      grip.setAttribute("aria-valuenow", low);
      grip.setAttribute("aria-valuetext", this.ranges.has(axis.name) ? `${brief(axis.value(low))} to ${brief(axis.value(high))}` : "all");
    };
    const set = (low, high) => {
      const open = low <= 0 && high >= 1, value = (u) => +axis.value(u).toPrecision(4);
      open || high - low < 0.02 ? this.ranges.delete(axis.name) : this.ranges.set(axis.name, [low <= 0 ? null : value(low), high >= 1 ? null : value(high)]);
      show();
      this.changed(this.kept());
    };
    const unit = (e) => {
      const box = grip.getBoundingClientRect(), edge = box.height * 6 / (AREA.height + 12);
      return Math.min(Math.max(1 - (e.clientY - box.top - edge) / (box.height - 2 * edge), 0), 1);
    };
    grip.addEventListener("pointerdown", (e) => {
      if (e.button !== 0) return;
      const from = unit(e), move = (m) => set(Math.min(from, unit(m)), Math.max(from, unit(m)));
      grip.setPointerCapture(e.pointerId);
      grip.addEventListener("pointermove", move);
      grip.addEventListener("pointerup", move, { once: true });
      grip.addEventListener("lostpointercapture", () => grip.removeEventListener("pointermove", move), { once: true });
    });
    grip.addEventListener("keydown", (e) => {
      const [low, high] = ends(), by = { ArrowUp: 0.05, ArrowDown: -0.05 }[e.key];
      if (by && e.shiftKey) set(low, Math.max(high + by, low + 0.05));
      else if (by) set(Math.min(low + by, high - 0.05), high);
      else if (e.key === "Escape") set(0, 1);
      else return;
      e.preventDefault();
    });
    show();
  }

  // kept marks the lines outside the ranges and returns the numbers of the jobs inside, null where there is no range.
  kept() {
    const limits = this.axes.filter((axis) => this.ranges.has(axis.name)).map((axis) => [axis, ...this.ranges.get(axis.name).map((v) => v == null ? null : axis.place(v))]);
    const kept = new Set();
    for (const [i, line] of this.lines || []) {
      const passes = limits.every(([axis, low, high]) => axis.at(i) != null && (low == null || axis.at(i) >= low) && (high == null || axis.at(i) <= high));
      line.classList.toggle("out", !passes);
      if (passes) kept.add(this.jobs[i].number);
    }
    return limits.length ? kept : null;
  }
}
