// Charts: curves over steps or time (uPlot), intervals, histograms over time.
import { h, s, fill, num, count, save, csv, short } from "./dom.js";

// Colours of Okabe and Ito, darker on white and lighter on black: 3:1 and more against the page.
const LIGHT = ["#0068a6", "#c24e00", "#007a58", "#9a3f80", "#8a6100", "#2a7fb8", "#5b5b5b", "#b3003c"];
const DARK = ["#4fb3ee", "#ff8f4d", "#34c79a", "#e08fc6", "#e8b53a", "#9fd3f5", "#b9b9b9", "#ff7a9c"];

export function dark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function colour(i) {
  const of = dark() ? DARK : LIGHT;
  return of[i % of.length];
}

function paint(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

// smoothed is an exponential moving average with the bias of its beginning taken out; gaps stay gaps.
export function smoothed(y, weight) {
  if (!(weight > 0)) return y;
  let mean = 0, sum = 0;
  return y.map((x) => {
    if (x == null) return null;
    mean = weight * mean + (1 - weight) * x;
    sum = weight * sum + (1 - weight);
    return mean / sum;
  });
}

const HEIGHT = 220; // pixels, unless options.height says otherwise

// Chart draws curves into host. A curve is {label, x, y, low, high, interval, dots, colour, dash}; x ascends, y may hold null.
// From low to high reaches an area: the 95 % interval of a mean over seeds (interval), or the extremes of a point's steps.
export class Chart {
  constructor(host, title, options = {}) {
    this.title = title;
    this.options = options;
    this.height = options.height || HEIGHT;
    this.plot = null;
    this.canvas = h("div", { class: "curve", tabindex: "0", role: "group", onkeydown: (e) => this.key(e) });
    this.words = h("p", { class: "quiet small" });
    const button = (text, label, f) => h("button", { class: "small", title: label, "aria-label": label + ": " + title, onclick: f }, text);
    this.box = h("figure", { class: "chart" },
      h("figcaption", {}, h("span", { title: options.help || null }, title, options.unit ? h("span", { class: "quiet" }, " " + options.unit) : null),
        pictureButtons(title, () => this.svg(), button("CSV", "Save numbers", () => this.csv()))),
      this.canvas, this.words);
    this.host = host;
    host.append(this.box);
    this.observer = new ResizeObserver(() => this.fit());
    this.observer.observe(this.canvas);
  }

  // fit gives the curves the width that there is.
  fit() {
    if (this.plot) this.plot.setSize({ width: this.width(), height: this.height });
  }

  width() {
    return Math.max(this.canvas.clientWidth, 200);
  }

  destroy() {
    this.observer.disconnect();
    if (this.plot) this.plot.destroy();
    this.box.remove();
  }

  // show draws curves with a view: {time, log, smooth, zoom, phases, levels, started}.
  show(curves, view) {
    this.curves = curves;
    if (!this.options.zoom) view = { ...view, zoom: this.part };
    const { lines, tables, bands } = arranged(curves, view);
    this.intervals = lines.flatMap((l, i) => l.interval ? [i + 1] : []);
    const data = tables.length === 1 ? tables[0] : uPlot.join(tables, tables.map((t) => t.map(() => 2))); // 2: a gap reaches from point to point
    const key = JSON.stringify([lines.map((l) => [l.label, l.stroke, l.dashed, l.dots]), view.time, view.log, dark()]);
    const off = (this.plot?.series || []).filter((one) => !one.show).map((one) => one.label); // what a reader has switched off
    this.view = view;
    if (this.plot && key === this.key_) {
      this.plot.setData(data, !view.zoom);
    } else {
      if (this.plot) this.plot.destroy();
      this.key_ = key;
      this.plot = new uPlot(this.uplot(lines, bands, view), data, this.canvas);
    }
    this.plot.series.forEach((one, i) => i && one.show === off.includes(one.label) && this.plot.setSeries(i, { show: !one.show }));
    if (view.zoom) this.plot.setScale("x", { min: view.zoom[0], max: view.zoom[1] });
  }

  describe(curves, view) {
    const parts = curves.filter((c) => c.y.some((v) => v != null)).map((c) => {
      const known = c.y.filter((v) => v != null);
      return `${c.label} ends at ${num(known[known.length - 1])}`;
    });
    this.canvas.setAttribute("aria-label", `${this.title}: ${parts.join("; ") || "no values"}. Arrow keys move through the values.`);
    const bad = curves.filter((c) => c.bad && c.bad.length).map((c) => `${c.label}: not finite at step ${c.bad[0][0]}` + (c.bad.length > 1 ? " and later" : ""));
    const hidden = view.log && curves.some((c) => c.y.some((v) => v != null && v <= 0)) ? ["values of 0 and less have no place on a log axis"] : [];
    const areas = [curves.some((c) => c.interval) && "Area: 95 % interval of the mean " + (this.options.over || "over seeds (Student’s t)") + (this.clipped ? ", which ends at the axis; where most of one is wider, it is left out" : ""),
      curves.some((c) => !c.interval && c.low) && !view.plain && "Area: smallest to largest of the steps that a point stands for"].filter(Boolean);
    this.words.textContent = [...areas, ...bad, ...hidden].join(" · ");
  }

  uplot(lines, bands, view) {
    const line = paint("line"), quiet = paint("quiet");
    const axis = { stroke: quiet, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1, size: 4 }, font: "11px system-ui, sans-serif" };
    const short = (u, values) => values.map((v) => v == null ? "" : Math.abs(v) >= 1e5 || (v !== 0 && Math.abs(v) < 1e-3) ? v.toExponential(1).replace("e+", "e") : String(+v.toPrecision(6)));
    return {
      width: this.width(), height: this.height,
      cursor: { dataIdx: (u, i, at) => lines[i - 1]?.band ? null : at, sync: this.options.sync ? { key: this.options.sync } : undefined, drag: { x: true, y: false }, bind: { dblclick: () => () => this.zoom(null) }, focus: { prox: 24 }, points: { size: 6 } },
      focus: { alpha: 0.35 },
      scales: { x: { time: false, range: (u, low, high) => low === high ? [low - 1, high + 1] : [low, high] },
        y: { distr: view.log ? 3 : 1, range: (u, low, high) => yRange(...this.room(u, low, high), view.log, view.levels) } },
      axes: [{ ...axis, space: 60, incrs: view.time ? undefined : [1, 2, 5].flatMap((k) => [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7].map((p) => k * p)).sort((a, b) => a - b), values: view.time ? (u, values) => values.map(hours) : short, size: 30 },
        { ...axis, values: view.log ? logLabels : short, size: 56 }],
      series: [{ label: this.options.axis || (view.time ? "time" : "step"), value: (u, v, i, at) => at == null ? "the last" : v == null || !view.time && !Number.isInteger(v) ? "–" : view.time ? hours(v) : count(v) }, ...lines.map((l) => ({
        label: l.label, stroke: l.stroke, width: l.band || l.apart ? 0 : l.faint ? 1 : 1.75, dash: l.dashed ? [5, 4] : undefined,
        points: l.band || l.faint ? { show: false } : l.dots ? { show: true, size: 5, fill: l.stroke, width: 1 } : undefined, auto: !l.interval,
        gaps: (u, i, from, to, gaps) => gaps.map(([a, b]) => [a - 2, b + 2]), // the width of a steep stroke beside a phase's end
        value: (u, v, i, under, at = under ?? u.data[i].findLastIndex((x) => x != null)) => num(u.data[i][at]) + (l.ends && u.data[l.ends[0]][at] != null ? ` [${num(u.data[l.ends[1]][at])}, ${num(u.data[l.ends[0]][at])}]` : ""),
      }))],
      bands: bands.map(([high, low, tint]) => ({ series: [high, low], fill: (u) => this.beyond(u, high, low) ? "transparent" : tint })),
      legend: { live: true },
      hooks: {
        ready: [(u) => u.root.querySelectorAll(".u-series").forEach((entry, i) => {
          if (i === 0) return;
          if (lines[i - 1].band || lines[i - 1].faint) return entry.classList.add("aside");
          const label = entry.querySelector("th");
          for (const [name, value] of [["tabindex", "0"], ["role", "button"], ["title", "Show or hide"]]) label.setAttribute(name, value);
          label.addEventListener("keydown", (e) => ["Enter", " "].includes(e.key) && (e.preventDefault(), label.click()));
        })],
        draw: [(u) => (this.over(u), this.describe(this.curves, this.view))],
        setSelect: [(u) => {
          if (u.select.width > 4 && u.cursor.event) this.zoom([u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")]); // charts in step hear it too, without an event
        }],
      },
    };
  }

  // room widens the range of the curves to that of their intervals, by as much as the curves take on either side: the interval of
  // two seeds would flatten every curve.
  room(u, low, high) {
    this.clipped = false;
    if (low == null || !this.intervals.length) return [low, high];
    const [from, to] = u.series[0].idxs || [0, u.data[0].length - 1];
    const ends = this.intervals.filter((i) => u.series[i].show).flatMap((i) => u.data[i].slice(from, to + 1)).filter((v) => v != null);
    const least = ends.reduce((a, b) => Math.min(a, b), low), most = ends.reduce((a, b) => Math.max(a, b), high), air = high - low || Infinity;
    this.clipped = !this.view.log && (least < low - air || most > high + air);
    return [this.view.log ? least : Math.max(least, low - air), this.view.log ? most : Math.min(most, high + air)];
  }

  // beyond says whether most of an area is wider than the axis: it would fill the chart. The legend has its numbers.
  beyond(u, high, low) {
    const { min, max } = u.scales.y, wider = u.data[high].flatMap((v, i) => v == null ? [] : [v > max && u.data[low][i] < min]);
    return 2 * wider.filter(Boolean).length > wider.length;
  }

  // over draws phases and levels.
  over(u) {
    const c = u.ctx, { left, top, width, height } = u.bbox, ratio = devicePixelRatio || 1;
    c.save();
    c.beginPath();
    c.rect(left, top, width, height);
    c.clip();
    c.font = `${10 * ratio}px system-ui, sans-serif`;
    c.textAlign = "left";
    c.fillStyle = c.strokeStyle = paint("quiet");
    c.lineWidth = ratio;
    for (const [i, phase] of (this.view.phases || []).entries()) {
      const x = u.valToPos(this.view.time ? phase.time : phase.from - 0.5, "x", true);
      if (i > 0) {
        c.setLineDash([2 * ratio, 3 * ratio]);
        c.beginPath();
        c.moveTo(x, top);
        c.lineTo(x, top + height);
        c.stroke();
      }
      const next = this.view.phases[i + 1], name = phase.name.slice(0, 20), begin = Math.max(x, left) + 3 * ratio;
      const end = next ? u.valToPos(this.view.time ? next.time : next.from - 0.5, "x", true) : left + width;
      if (this.view.phases.length > 1 && begin + c.measureText(name).width < end) c.fillText(name, begin, top + 11 * ratio);
    }
    const drawn = []; // levels that lie on each other have one line
    for (const level of this.view.levels || []) {
      const y = u.valToPos(level.value, "y", true), same = drawn.find((one) => Math.abs(one.y - y) < ratio);
      if (same) same.label += ", " + level.label;
      else drawn.push({ y, label: level.label });
    }
    for (const [i, { y, label }] of drawn.entries()) {
      c.setLineDash([6 * ratio, 4 * ratio]);
      c.beginPath();
      c.moveTo(left, y);
      c.lineTo(left + width, y);
      c.stroke();
      const below = i % 2 && y + 14 * ratio < top + height || y - 14 * ratio < top;
      c.fillText(label, left + width - c.measureText(label).width - 4 * ratio, y + (below ? 11 : -3) * ratio);
    }
    c.restore();
  }

  // zoom shows a part of the horizontal axis, null all of it; whoever made the chart may show the same in others.
  zoom(range) {
    if (this.options.zoom) return this.options.zoom(range);
    this.part = range;
    this.show(this.curves, this.view);
  }

  // key moves through the values and zooms.
  key(event) {
    const wide = { "+": 0.5, "-": 2, "0": 0 }[event.key];
    if (wide != null && this.plot && event.target === this.canvas) {
      const { min, max } = this.plot.scales.x, at = this.plot.data[0][this.plot.cursor.idx] ?? (min + max) / 2, half = wide * (max - min) / 2;
      if (this.view.zoom || half) this.zoom(half && (this.view.zoom || wide < 1) ? [at - half, at + half] : null);
      return;
    }
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[event.key];
    if (!by || !this.plot || event.target !== this.canvas) return;
    event.preventDefault();
    const x = this.plot.data[0], at = this.plot.cursor.idx;
    const next = Math.min(Math.max(at == null ? (by > 0 ? 0 : x.length - 1) : at + by, 0), x.length - 1);
    this.plot.setCursor({ left: this.plot.valToPos(x[next], "x"), top: this.plot.over.clientHeight / 2 });
  }

  // svg is the chart as it stands, with its legend, as a file.
  svg() {
    const u = this.plot, ratio = devicePixelRatio || 1, HEAD = 28, quiet = paint("quiet"), line = paint("line"), text = paint("text");
    const [left, top, width, height] = ["left", "top", "width", "height"].map((side) => u.bbox[side] / ratio + (side === "top" ? HEAD : 0));
    const x = (v) => (left + u.valToPos(v, "x")).toFixed(1), y = (v) => (top + u.valToPos(v, "y")).toFixed(1);
    const runs = (i) => u.data[i].reduce((all, v, k) => (v === null ? all.push([]) : v !== undefined && all.at(-1).push(k), all), [[]]).filter((run) => run.length); // null is a gap
    const points = (i, run) => run.map((k) => `${x(u.data[0][k])},${y(u.data[i][k])}`);
    const words = (at, down, content, more) => s("text", { x: at, y: down, fill: quiet, ...more }, content);
    const rule = (x1, y1, x2, y2, more) => s("line", { x1, y1, x2, y2, stroke: line, ...more });
    const shown = u.series.map((one, i) => ({ ...one, i, paint: one._stroke ?? one.stroke?.(u, i) })).slice(1).filter((one) => one.show);
    const axes = u.axes.flatMap((axis, k) => (axis._splits || []).map((v, i) => [k, v, axis._values[i]]).filter(([, v]) => v != null));
    const marks = (this.view.phases || []).slice(1).map((p) => rule(x(this.view.time ? p.time : p.from - 0.5), top, x(this.view.time ? p.time : p.from - 0.5), top + height, { stroke: quiet, "stroke-dasharray": "2 3" }));
    const levels = (this.view.levels || []).map((l) => [rule(left, y(l.value), left + width, y(l.value), { stroke: quiet, "stroke-dasharray": "6 4" }), words(left + width - 4, y(l.value) - 3, l.label, { "text-anchor": "end" })]);
    u.ctx.font = "12px system-ui, sans-serif";
    let at = 10, down = HEAD + this.height + 12;
    const legend = shown.filter((one) => one.width || one.points.show).filter((one) => !/ \((largest|smallest|as recorded)\)$/.test(one.label)).map((one) => {
      const wide = u.ctx.measureText("● " + one.label).width + 24;
      if (at > 10 && at + wide > this.width()) [at, down] = [10, down + 17];
      at += wide;
      return words(at - wide, down, ["● ", one.label], { fill: one.paint, "font-size": 12 });
    });
    const notes = this.words.textContent.split(" · ").map((note, i) => words(10, down + 18 + 14 * i, note));
    return new XMLSerializer().serializeToString(s("svg", { width: this.width(), height: down + 14 + 14 * notes.length, "font-family": "system-ui, sans-serif", "font-size": 11 },
      s("rect", { width: "100%", height: "100%", fill: paint("page") }), words(10, 18, [this.title, this.options.unit ? ` (${this.options.unit})` : ""], { fill: text, "font-size": 14, "font-weight": 600 }),
      axes.map(([k, v, label]) => k ? [rule(left, y(v), left + width, y(v)), words(left - 8, +y(v) + 4, label || "", { "text-anchor": "end" })] : [rule(x(v), top, x(v), top + height), words(x(v), top + height + 18, label || "", { "text-anchor": "middle" })]),
      s("svg", { x: left, y: top, width, height, viewBox: [left, top, width, height].join(" "), fill: "none" }, (u.bands || []).map(({ series: [high, low], fill }) => u.series[high].show ? runs(high).map((run) => s("polygon", { points: [...points(high, run), ...points(low, run).reverse()].join(" "), fill: fill(u, 0) })) : null),
        shown.map((one) => one.width ? runs(one.i).map((run) => s("polyline", { points: points(one.i, run).join(" "), stroke: one.paint, "stroke-width": one.width, "stroke-dasharray": one.dash?.join(" ") })) : null),
        shown.map((one) => one.points.show === true || one.points.show?.(u, one.i) ? runs(one.i).flatMap((run) => points(one.i, run).map((p) => s("circle", { cx: p.split(",")[0], cy: p.split(",")[1], r: 2.5, fill: one.paint }))) : null), marks, levels),
      legend, notes));
  }

  csv() {
    const interval = this.curves.some((c) => c.interval);
    const rows = [["curve", this.options.axis || (this.view.time ? "seconds" : "step"), "value", interval ? "low" : "min", interval ? "high" : "max"]];
    for (const curve of this.curves) curve.x.forEach((x, i) => rows.push([curve.label, x, curve.y[i], ...(interval === !!curve.interval ? [curve.low?.[i], curve.high?.[i]] : [])]));
    save(fileName(this.title) + ".csv", "text/csv", csv(rows));
  }
}

// pictureButtons save what svg returns, as SVG or PNG, or put it on the clipboard.
export function pictureButtons(title, svg, ...more) {
  const button = (text, label, act) => h("button", { class: "small", title: label, "aria-label": label + ": " + title, onclick: act }, text);
  const png = async () => {
    const image = picture(title, svg());
    await image.decode();
    const canvas = h("canvas", { width: 2 * image.width, height: 2 * image.height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return new Promise((done) => canvas.toBlob(done));
  };
  return h("span", { class: "buttons" }, button("SVG", "Save as drawing", () => save(fileName(title) + ".svg", "image/svg+xml", svg())),
    button("PNG", "Save as picture", async () => save(fileName(title) + ".png", "image/png", await png())),
    button("Copy", "Copy as picture", (e) => navigator.clipboard.write([new ClipboardItem({ "image/png": png() })]).then(() => fill(e.target, "Copied"), () => fill(e.target, "Not allowed"))), more);
}

// inked is an SVG of the page as a file, with the styles that the page gives it.
export function inked(svg) {
  const copy = svg.cloneNode(true), from = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((to, i) => {
    const style = getComputedStyle(from[i]);
    for (const name of ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size", "font-weight", "paint-order"]) to.setAttribute(name, style.getPropertyValue(name));
  });
  copy.prepend(s("rect", { width: "100%", height: "100%", fill: paint("page") }));
  copy.setAttribute("height", svg.viewBox.baseVal.height);
  return new XMLSerializer().serializeToString(copy);
}

// picture shows an SVG as an image: what it holds runs and loads nothing.
export function picture(title, svg) {
  return h("img", { alt: title, src: "data:image/svg+xml," + encodeURIComponent(svg) });
}

export function fileName(text) {
  return text.toLowerCase().replace(/[^a-z0-9]+/g, "_").slice(0, 60);
}

// arranged turns curves into the series and aligned columns that uPlot takes, with bands and unsmoothed lines.
function arranged(curves, view) {
  const lines = [], tables = [], bands = [];
  const positive = (y) => view.log ? y.map((v) => v > 0 ? v : null) : y;
  for (const curve of curves) {
    const columns = [curve.x];
    const add = (y, style) => {
      columns.push(positive(y));
      lines.push({ label: curve.label, stroke: curve.colour, dashed: curve.dash, dots: curve.dots, apart: curve.apart, ...style });
      return lines.length;
    };
    const smooth = view.smooth > 0 && !curve.dots;
    let ends = null;
    if (curve.high && (curve.interval || !view.plain)) {
      ends = [["largest", curve.high], ["smallest", curve.low]].map(([end, y]) => add(y, { band: true, interval: curve.interval, dots: false, label: `${curve.label} (${end})` }));
      bands.push([...ends, curve.colour + "33"]);
    }
    if (smooth && !view.plain) add(curve.y, { faint: true, stroke: curve.colour + "55", dots: false, label: curve.label + " (as recorded)" });
    add(smooth ? smoothed(curve.y, view.smooth) : curve.y, { ends: curve.interval && ends });
    tables.push(columns);
  }
  return { lines, tables: tables.length ? tables : [[[]]], bands };
}

function yRange(low, high, log, levels) {
  for (const level of levels || []) {
    low = low == null ? level.value : Math.min(low, level.value);
    high = high == null ? level.value : Math.max(high, level.value);
  }
  if (low == null) return log ? [0.1, 1] : [0, 1];
  if (log) {
    if (!(low > 0)) low = high > 0 ? high / 10 : 0.1;
    return low === high ? [low / 2, high * 2] : [low / 1.15, high * 1.15];
  }
  const air = low === high ? Math.abs(low) * 0.1 || 1 : 0.06 * (high - low);
  if (low === high) return [low - air, high + air];
  return [low >= 0 && low < air ? 0 : low - air, high + air];
}

// logLabels shows 1, 2 and 5 times powers of ten; over many decades the powers alone.
function logLabels(u, values) {
  const decades = Math.log10(u.scales.y.max / u.scales.y.min);
  return values.map((v) => {
    if (v == null) return "";
    const mantissa = v / 10 ** Math.floor(Math.log10(v) + 1e-9);
    const wanted = decades > 3 ? [1] : [1, 2, 5];
    return wanted.some((m) => Math.abs(mantissa - m) < 1e-6) ? num(v, 1) : "";
  });
}

function hours(seconds) {
  if (seconds == null) return "";
  const sign = seconds < 0 ? "−" : "";
  const t = Math.abs(seconds);
  if (t < 120) return sign + +t.toFixed(1) + " s";
  if (t < 7200) return sign + +(t / 60).toFixed(1) + " min";
  return sign + +(t / 3600).toFixed(2) + " h";
}

// brieflyOf keeps the end of a setting, where its neighbours differ.
function brieflyOf(label) {
  const brief = label.split(" ").map((word) => word.includes("=") ? short(word) : word).join(" ");
  return brief.length > 28 ? "…" + brief.slice(-27) : brief;
}

// marks are those behind a verdict: † where its numbers are rough.
export const marks = (r) => (r.words.match(/ [†‡].*/) || [""])[0];

// verdictClass is the class of what a verdict is about.
export const verdictClass = (r) => "verdict " + (r?.verdict || "").replace(/[^a-z]/g, "");

// forest draws differences with their intervals; rows are {label, mean, low, high, text, verdict, words}. The axis holds every whisker. Where it is
// narrow, names and numbers stand above their lines.
export function forest(rows, what, width = 640) {
  const narrow = width < 560, left = narrow ? 12 : 200, right = narrow ? 12 : 180, line = narrow ? 44 : 26, top = 8;
  const low = Math.min(0, ...rows.map((r) => r.low)), high = Math.max(0, ...rows.map((r) => r.high));
  const air = 0.04 * (high - low || 1);
  const x = (v) => left + (width - left - right) * (v - low + air) / (high - low + 2 * air);
  const height = top + line * rows.length + 30;
  const ticks = niceTicks(low, high, narrow ? 4 : 5);
  const said = (r) => `${r.text}, ${r.words}`, shown = (r) => r.text === "0" ? r.words : r.text + marks(r);
  return h("div", { class: "box" }, s("svg", { viewBox: `0 0 ${width} ${height}`, class: "forest", role: "img", "aria-label": what + ": " +
      rows.map((r) => `${r.label} ${said(r)}`).join("; ") },
    ticks.map((t) => [s("line", { x1: x(t), x2: x(t), y1: top, y2: height - 26, class: t === 0 ? "zero" : "grid" }),
      s("text", { x: x(t), y: height - 12, "text-anchor": "middle" }, brief(t))]),
    rows.map((r, i) => {
      const y = top + line * (i + (narrow ? 0.75 : 0.5)), words = narrow ? y - 12 : y + 4;
      return s("g", { class: verdictClass(r) },
        s("title", {}, `${r.label}: ${said(r)}`),
        s("text", { x: narrow ? 0 : left - 10, y: words, "text-anchor": narrow ? "start" : "end" }, brieflyOf(r.label)),
        s("text", { x: width, y: words, "text-anchor": "end" }, shown(r)),
        s("line", { x1: x(r.low), x2: x(r.high), y1: y, y2: y, class: "whisker" }),
        s("circle", { cx: x(r.mean), cy: y, r: 4.5 }));
    })));
}

// brief writes a tick's value without zeros at its end.
export function brief(x) {
  return x === 0 ? "0" : num(x, 3).replace(/(\.\d*?)0+($|e)/, "$1$2").replace(/\.($|e)/, "$1");
}

export function niceTicks(low, high, n) {
  const raw = (high - low || 1) / n, size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * size).find((m) => m >= raw);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) ticks.push(k === 0 ? 0 : +(k * step).toPrecision(12));
  return ticks;
}

// viridis, dark to light; in dark mode light is good instead.
const RAMP = ["#440154", "#414487", "#2a788e", "#22a884", "#7ad151"];
export function ramp(t) {
  const at = Math.min(Math.max(t, 0), 1) * (RAMP.length - 1), i = Math.min(Math.floor(at), RAMP.length - 2), part = at - i;
  const mix = (k) => Math.round(parseInt(RAMP[i].slice(k, k + 2), 16) * (1 - part) + parseInt(RAMP[i + 1].slice(k, k + 2), 16) * part);
  return `rgb(${mix(1)},${mix(3)},${mix(5)})`;
}

// histogram draws counts over time: hist [points][bins] over [-5, 5], a column for each point.
export function histogram(host, hist, steps) {
  const bins = Math.max(...hist.map((b) => b ? b.length : 0));
  const canvas = h("canvas", { class: "heat", role: "img", "aria-label": "Histogram of advantages over steps" });
  const words = h("p", { class: "quiet small" }, "Share of candidates with an advantage, by step; darker is more. Point at it for numbers.");
  canvas.width = hist.length;
  canvas.height = bins;
  const c = canvas.getContext("2d");
  hist.forEach((counts, i) => {
    const total = (counts || []).reduce((a, b) => a + b, 0);
    for (let b = 0; b < bins; b++) {
      const share = total ? counts[b] / total : 0;
      c.fillStyle = share > 0 ? `rgba(${dark() ? "79,179,238" : "0,80,140"},${Math.min(1, 0.12 + 0.88 * Math.sqrt(share))})` : "transparent";
      c.fillRect(i, bins - 1 - b, 1, 1);
    }
  });
  canvas.addEventListener("pointermove", (e) => {
    const box = canvas.getBoundingClientRect();
    const i = Math.min(Math.floor((e.clientX - box.left) / box.width * hist.length), hist.length - 1);
    const b = bins - 1 - Math.min(Math.floor((e.clientY - box.top) / box.height * bins), bins - 1);
    const counts = hist[i] || [], total = counts.reduce((a, x) => a + x, 0);
    const edge = (k) => +(-5 + 10 * k / bins).toFixed(2);
    words.textContent = `step ${steps[i]}: ${num(counts[b] || 0, 4)} of ${num(total, 4)} advantages in [${edge(b)}, ${edge(b + 1)})`;
  });
  fill(host, h("figure", { class: "chart" }, h("figcaption", {}, "Histogram of advantages"),
    h("div", { class: "heatbox" }, h("div", { class: "heataxis" }, h("span", {}, "5"), h("span", {}, "0"), h("span", {}, "−5")), canvas),
    h("div", { class: "heatsteps" }, h("span", {}, "step " + steps[0]), h("span", {}, "step " + steps[steps.length - 1])), words));
}

