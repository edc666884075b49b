// The list of runs and sweeps: filtered, sorted, chosen from. Only the rows in sight are in the page.
import { h, fill, num, signed, percent, duration, ago, badge, bar, csvButton, count, short } from "./dom.js";
import { store, chosen } from "./store.js";
import { COLUMNS, Columns, gainOf, rivals, minimized, measureOf, natural, settingOf, isSeed, keyOf, topsOf, groupWords } from "./columns.js";
import { marks, verdictClass } from "./chart.js";
import { Sparks } from "./sparks.js";

// tagWord is a tag as one word of a filter.
const tagWord = (tag) => tag.toLowerCase().replaceAll(" ", "_");

// numberOf is a column's number of a run, or that which it sets a key to whose name ends so; NaN where there is none.
function numberOf(run, name) {
  const column = COLUMNS.find((c) => c.number && [c.key, c.name].includes(name));
  if (column) return column.of(run);
  return Number((run.overrides || []).findLast((o) => ("." + keyOf(o)).toLowerCase().endsWith("." + name))?.split("=")[1] ?? NaN);
}

// matches says whether a run has every word of a filter: in its path, state, title, overrides, tags or note. A word like
// tag:x or state:x looks there alone, one like score>0.3 or lr<=1e-3 at a number.
function matches(run, words) {
  const text = [run.path, run.state, run.title, run.task, measureOf(run), (run.overrides || []).join(" "), (run.tags || []).join(" "), run.note].join(" ").toLowerCase();
  return words.every((word) => {
    const [, name, sign, end] = word.match(/^([\w.]+)([<>]=?)(.+)$/) || [];
    if (name) {
      const x = numberOf(run, name), limit = Number(end);
      return Number.isFinite(x) && (sign[0] === "<" ? x < limit : x > limit) || sign[1] === "=" && x === limit;
    }
    if (word.startsWith("tag:")) return (run.tags || []).some((t) => tagWord(t).includes(word.slice(4)));
    if (word.startsWith("state:")) return run.state === word.slice(6);
    if (word.startsWith("sweep:")) return run.sweep === word.slice(6);
    return text.includes(word);
  });
}

// kinOf is what runs share that are told apart by their overrides: a sweep, or a title.
const kinOf = (run) => run.sweep || "title " + run.title;

// setBy counts how many runs of each kin have an override: kin → { runs, of: override → runs }.
function setBy(runs) {
  const kin = new Map();
  for (const run of runs) {
    if (!kin.has(kinOf(run))) kin.set(kinOf(run), { runs: 0, of: new Map() });
    const counts = kin.get(kinOf(run));
    counts.runs++;
    for (const o of new Set(run.overrides)) counts.of.set(o, (counts.of.get(o) || 0) + 1);
  }
  return kin;
}

// ownOf returns the overrides of a run that not all of its kin have, the rarest first and the seed last: what is cut off tells least.
function ownOf(run, kin) {
  const { runs, of } = kin.get(kinOf(run)) || { runs: 1 }, set = run.overrides || [];
  return runs < 2 ? set : set.filter((o) => of.get(o) < runs).sort((a, b) => isSeed(a) - isSeed(b) || of.get(a) - of.get(b));
}

export class ListView {
  constructor(main, query, go) {
    this.go = go;
    this.filter = query.get("filter") || "";
    this.sort = query.get("sort") || "-start";
    this.columns = new Columns(query, (picked) => { if (picked) this.place(); picked ? this.update(true) : this.draw(false); });
    this.sparks = new Sparks(() => this.rows());
    this.at = null; // id of the run that the keyboard is on
    this.input = h("input", { type: "search", id: "filter", placeholder: "Filter: words, tag:x, lr<1e-3, score>0.3", value: this.filter, "aria-label": "Filter runs",
      oninput: () => { this.filter = this.input.value; this.place(); this.draw(true); } });
    this.counts = h("div", { class: "chips", role: "group", "aria-label": "States" });
    this.sweeps = h("div");
    this.head = h("div", { class: "row head", role: "row" });
    this.space = h("div", { class: "space", role: "rowgroup" });
    this.body = h("div", { class: "scroll", tabindex: "0", "aria-label": "Runs", onscroll: () => this.rows() }, this.space);
    this.note = h("p", { class: "quiet" });
    this.compare = h("button", { title: "the runs chosen with their boxes, or with the x key", onclick: () => this.go("#/compare?ids=" + [...chosen].join(",")) });
    fill(main, h("h1", { class: "hidden" }, "Runs"), h("div", { class: "tools" }, this.input, this.counts, this.compare,
      csvButton("runs", () => this.numbers())), this.columns.box, this.sweeps, this.note,
    this.list = h("div", { class: "list", role: "table", "aria-label": "Runs" }, this.head, this.body));
    this.resize = () => this.rows();
    addEventListener("resize", this.resize);
    store.list = location.hash || "#/";
    this.draw(true);
    this.columns.ask();
  }

  destroy() {
    removeEventListener("resize", this.resize);
  }

  place() {
    const query = new URLSearchParams();
    if (this.filter) query.set("filter", this.filter);
    if (this.sort !== "-start") query.set("sort", this.sort);
    if (this.columns.keys.length) query.set("columns", this.columns.keys.join(","));
    if (this.columns.group) query.set("group", this.columns.group);
    store.list = "#/" + (query.size ? "?" + query : "");
    history.replaceState(null, "", store.list);
  }

  // draw shows the list anew; anew starts at its top.
  draw(anew) {
    const words = this.filter.toLowerCase().split(/\s+/).filter(Boolean);
    this.kin = setBy(store.runs.values());
    const { group } = this.columns, columns = this.columns.wanted(), column = columns.find((c) => c.key === this.sort.replace("-", "")) || COLUMNS.find((c) => c.key === "start");
    const sign = this.sort.startsWith("-") ? -1 : 1;
    const grouped = ["best", "gain"].includes(column.key), sizes = new Map();
    this.shown = [...store.runs.values()].filter((run) => matches(run, words));
    const groups = new Map(group ? this.shown.map((run) => [run, String(columns[0].of(run))]) : []), groupOf = (run) => groups.get(run);
    for (const run of grouped ? this.shown : []) sizes.set(rivals(run, column.key), (sizes.get(rivals(run, column.key)) || 0) + 1);
    sizes.set(null, -1);
    this.shown.sort((a, b) => {
      if (groupOf(a) !== groupOf(b)) return (groupOf(a) === "") - (groupOf(b) === "") || natural(groupOf(a), groupOf(b));
      const x = column.of(a), y = column.of(b), of = rivals(a, column.key), other = rivals(b, column.key);
      if (grouped && of !== other) return sizes.get(other) - sizes.get(of) || natural(of, other);
      return (grouped && minimized(a) ? -sign : sign) * (typeof x === "string" ? natural(x, y) : x - y) || natural(a.path, b.path);
    });
    this.first = new Set(this.shown.filter((run, i, all) => i && (groupOf(run) !== groupOf(all[i - 1]) || grouped && rivals(run, column.key) !== rivals(all[i - 1], column.key))));
    this.groups = group ? Map.groupBy(this.shown, groupOf) : new Map();
    this.own = group || this.columns.keys.length ? columns : null;
    this.list.classList.toggle("own", !!this.own);
    this.list.style.setProperty("--columns", "2.2rem " + columns.map((c) => c.wide).join(" "));
    this.list.style.setProperty("--least", columns.reduce((a, c) => a + 0.6 + parseFloat(c.wide.match(/[\d.]+/)), 4) + "rem");
    this.columns.choose(columns);
    this.tops = topsOf(this.shown);
    const states = {};
    for (const run of store.runs.values()) states[run.state] = (states[run.state] || 0) + 1;
    fill(this.counts, Object.entries(states).sort().map(([state, n]) => h("button", { class: "chip", "aria-pressed": String(words.includes("state:" + state)),
      onclick: () => this.toggle("state:" + state) }, badge(state), " ", count(n))));
    this.drawSweeps(words);
    fill(this.note, !store.loaded ? "Reading runs…" : store.reading ? (store.runs.size ? `Reading runs: ${count(store.reading)} left` : "Looking for runs…") :
      store.runs.size === 0 ? ["No runs below ", store.roots.map((r) => [h("code", {}, r), " "]), "yet. A run appears here when it starts."] :
        this.shown.length < store.runs.size ? `${count(this.shown.length)} of ${count(store.runs.size)} runs` : "");
    fill(this.head, h("span", { role: "columnheader", class: "c-pick" }, h("input", { type: "checkbox", "aria-label": "Choose all shown",
      checked: this.shown.length > 0 && this.shown.every((r) => chosen.has(r.id)), onclick: (e) => this.pickAll(e.target.checked) })),
    columns.map((c) => h("span", { role: "columnheader", class: (c.own ? "c-own" : "c-" + c.key) + (c.number ? " number" : ""), title: c.own ? c.key : null,
      "aria-sort": this.sort === c.key ? "ascending" : this.sort === "-" + c.key ? "descending" : null },
    h("button", { class: "plain", onclick: () => this.order(c) }, c.name, this.sort === c.key ? " ▲" : this.sort === "-" + c.key ? " ▼" : ""))));
    if (anew) this.body.scrollTop = 0;
    this.rows();
  }

  drawSweeps(words) {
    const sweeps = [...store.sweeps.values()].filter((sweep) => words.every((w) => w.startsWith("sweep:") ? sweep.id === w.slice(6) : !w.includes(":") && sweep.path.toLowerCase().includes(w)))
      .sort((a, b) => natural(b.path, a.path));
    const key = JSON.stringify(sweeps.map((x) => [x.id, x.version]));
    if (key === this.sweepKey) return;
    this.sweepKey = key;
    if (sweeps.length === 0) return fill(this.sweeps);
    const open = this.sweeps.querySelector("details")?.open ?? sweeps.length <= 8;
    fill(this.sweeps, h("details", { class: "sweeps", open }, h("summary", {}, `Sweeps (${sweeps.length})`), h("ul", {}, sweeps.slice(0, 200).map((sweep) =>
      h("li", {}, h("a", { href: "#/sweep/" + sweep.id }, sweep.path), h("span", { class: "quiet" }, ` ${sweep.title}${sweep.keys ? " over " + sweep.keys.join(", ") : ""}${sweep.sweeper ? ", " + sweep.sweeper : ""}`),
        stateBar(sweep.states, sweep.jobs), sweep.running ? [badge("running"), sweep.left != null ? ` about ${duration(sweep.left)} left` : null] : null,
        sweep.lead ? h("span", { class: "quiet" }, " " + sweep.lead) : null, sweep.error ? h("span", { class: "bad" }, sweep.error) : null)))));
  }

  toggle(word) {
    const words = this.filter.split(/\s+/).filter(Boolean);
    this.filter = (words.includes(word) ? words.filter((w) => w !== word) : [...words.filter((w) => !w.startsWith("state:")), word]).join(" ");
    this.input.value = this.filter;
    this.place();
    this.draw(true);
  }

  order(column) {
    const down = column.number ? "-" : "", up = column.number ? "" : "-";
    this.sort = this.sort === down + column.key ? up + column.key : down + column.key;
    this.place();
    this.draw(true);
  }

  pickAll(on) {
    for (const run of this.shown) on ? chosen.add(run.id) : chosen.delete(run.id);
    this.rows();
  }

  // rows puts the rows in sight into the page.
  rows() {
    const narrow = innerWidth < 700, height = narrow ? 92 : 40;
    this.space.style.height = this.shown.length * height + "px";
    const first = Math.max(Math.floor(this.body.scrollTop / height) - 5, 0);
    const last = Math.min(first + Math.ceil(this.body.clientHeight / height) + 12, this.shown.length);
    const focused = document.activeElement?.closest?.(".row[data-id]")?.dataset.id, part = document.activeElement?.tagName;
    this.space.replaceChildren(...this.shown.slice(first, last).map((run, i) => this.row(run, first + i, height)));
    this.sparks.ask(this.shown.slice(first, last));
    if (focused) this.space.querySelector(`.row[data-id="${focused}"] ${part === "INPUT" ? "input" : "a"}`)?.focus();
    this.compare.textContent = chosen.size ? `Compare ${count(chosen.size)}` : "Compare";
    this.compare.disabled = chosen.size === 0;
    document.getElementById("chosen").textContent = chosen.size ? `(${count(chosen.size)})` : "";
  }

  row(run, i, height) {
    const gain = gainOf(run), set = run.overrides || [], own = ownOf(run, this.kin).filter((o) => !this.own?.some((c) => keyOf(o) === c.key)).map(short).join(" ");
    const top = run.data && this.tops.get(rivals(run, "best")), leads = top?.of > top?.tied && top.first.has(settingOf(run));
    const row = h("div", { class: "row" + (run.id === this.at ? " at" : "") + (this.first.has(run) ? " first" : ""), role: "row", "data-id": run.id },
      h("span", { role: "cell", class: "c-pick" }, h("input", { type: "checkbox", checked: chosen.has(run.id), "aria-label": "Choose " + run.path,
        onclick: (e) => { e.target.checked ? chosen.add(run.id) : chosen.delete(run.id); this.rows(); } })),
      h("span", { role: "cell", class: "c-path" }, h("span", { class: "names" }, h("a", { href: "#/run/" + run.id, title: run.path }, run.path),
        (run.tags || []).map((tag) => h("button", { class: "tag", title: tag, onclick: () => this.toggle("tag:" + tagWord(tag)) }, tag)),
        run.note ? h("span", { title: run.note, class: "quiet" }, "✎") : null),
      run.error && run.state !== "interrupted" ? h("small", { class: "under bad", title: run.error }, run.error) : h("small", { class: "under", title: set.join(" ") }, own || run.title || "")),
      h("span", { role: "cell", class: "c-state" }, badge(run.state)),
      h("span", { role: "cell", class: "c-progress" }, run.progress != null && run.progress < 1 ? [bar(run.progress, progressWords(run)), h("small", { class: "under" }, run.left != null ? duration(run.left) + " left" : percent(run.progress))] : null, this.sparks.line(run)),
      h("span", { role: "cell", class: "c-step number", title: run.phase ? `${run.phase}, epoch ${run.epoch}` : null }, run.step ? count(run.step) : "–"),
      h("span", { role: "cell", class: "c-best number", title: leads ? `${top.tied > 1 ? `${count(top.tied)} settings share the` : "the"} ${minimized(run) ? "lowest" : "highest"} ${measureOf(run)}, as the mean over seeds, of the ${count(top.of)} settings shown that ended on the same data` : null },
        leads ? h("b", { class: "lead" }, `${top.tied > 1 ? count(top.tied) + " " : ""}${minimized(run) ? "lowest" : "highest"} of ${count(top.of)} `) : null, run.score || num(run.best),
        run.best != null ? h("small", { class: "under" }, run.untrained ? h("span", { class: "warn", title: "no epoch was chosen: the best is the policy that it began with" }, "untrained, ") : null, measureOf(run)) : null),
      h("span", { role: "cell", class: "c-gain number", title: run.gain ? `over ${run.over}: ${run.gain.text}, ${run.gain.words}` : run.over ? `over ${run.over}; no interval before the run has ended` : null },
        gain == null ? "–" : [h("span", { class: verdictClass(run.gain) }, !run.gain ? signed(gain, 2) : run.gain.text === "0" ? run.gain.words : run.gain.text.split(" [")[0]), h("small", {}, " over " + run.over),
          run.gain ? h("small", { class: "under" }, run.gain.text.replace(/^[^[]*/, "") + marks(run.gain)) : null]),
      h("span", { role: "cell", class: "c-warnings number" }, run.stops ? h("span", { class: "bad", title: "findings that ended the run" }, run.stops > 1 ? `${run.stops} stops` : "stop", run.warnings ? ", " : "") : null, run.warnings ? h("span", { class: "warn" }, run.warnings) : run.stops ? null : "–"),
      h("span", { role: "cell", class: "c-seconds number" }, duration(run.seconds)),
      h("span", { role: "cell", class: "c-start number" }, ago(run.start)));
    if (this.own && innerWidth >= 700) {
      const cells = new Map([...row.children].map((cell) => [cell.className.match(/c-(\w+)/)[1], cell]));
      row.replaceChildren(cells.get("pick"), ...this.own.map((c) => c.own ? h("span", { role: "cell", class: "c-own", title: c.of(run) }, c.of(run) || "–",
        c.key === this.columns.group && this.groups.get(c.of(run))?.[0] === run ? h("small", { class: "under" }, groupWords(this.groups.get(c.of(run)))) : null) : cells.get(c.key)));
    }
    row.style.top = i * height + "px";
    return row;
  }

  key(event) {
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 15, PageUp: -15 }[event.key];
    if (step && !event.target.closest?.("details, input[type=search]")) {
      event.preventDefault();
      const at = Math.min(Math.max(this.shown.findIndex((r) => r.id === this.at) + step, 0), this.shown.length - 1);
      const height = innerWidth < 700 ? 92 : 40, top = at * height;
      this.at = this.shown[at]?.id;
      if (top < this.body.scrollTop) this.body.scrollTop = top;
      if (top + height > this.body.scrollTop + this.body.clientHeight) this.body.scrollTop = top + height - this.body.clientHeight;
      this.rows();
      this.space.querySelector(".row.at a")?.focus({ preventScroll: true });
      return true;
    }
    const run = this.shown.find((r) => r.id === this.at);
    if (run && event.key === "x") {
      chosen.has(run.id) ? chosen.delete(run.id) : chosen.add(run.id);
      this.rows();
      return true;
    }
    if (event.key === "c" && chosen.size) return this.go("#/compare?ids=" + [...chosen].join(",")), true;
    return false;
  }

  update(changed) {
    if (!changed) return;
    this.draw(false);
    this.columns.ask();
  }

  numbers() {
    return [["run", "state", "title", "task", "seed", "overrides", "phase", "epoch", "step", "split", "metric", "score", "baseline", "over", "gain", "low", "high", "verdict", "warnings", "seconds", "tags", "note", ...this.columns.wanted().filter((c) => c.own).map((c) => c.key)],
      ...this.shown.map((r) => [r.path, r.state, r.title, r.task, r.seed, (r.overrides || []).join(" "), r.phase, r.epoch, r.step, r.split, r.metric, r.best, r.baseline, r.over, gainOf(r), r.gain?.low, r.gain?.high, r.gain?.verdict, r.warnings || 0, r.seconds, (r.tags || []).join(" "), r.note, ...this.columns.wanted().filter((c) => c.own).map((c) => c.of(r))])];
  }
}

export function progressWords(run) {
  return percent(run.progress) + (run.left != null ? `, about ${duration(run.left)} left` : "");
}

// stateBar shows how many jobs of a sweep are in which state.
export function stateBar(states, jobs) {
  const words = Object.entries(states || {}).map(([state, n]) => `${n} ${state}`).join(", ");
  return h("span", { class: "states", role: "img", "aria-label": words, title: words }, ["done", "pruned", "running", "failed", "lost", "interrupted", "skipped", "queued"].filter((x) => states?.[x]).map((state) => {
    const piece = h("i", { class: state });
    piece.style.width = 100 * states[state] / Math.max(jobs, 1) + "%";
    return piece;
  }));
}
