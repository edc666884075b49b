// Runs over each other: curves, settings that differ, paired differences.
import { h, fill, num, table, section, badge, csvButton, short } from "./dom.js";
import { store, chosen, ask, fixed } from "./store.js";
import { Chart, colour, forest } from "./chart.js";
import { measureOf } from "./columns.js";
import { curvesOf, seedsLabel, usual, viewControls, viewFrom, viewInto } from "./panels.js";

const MOST = 40; // curves over each other

export class CompareView {
  constructor(main, query, go) {
    Object.assign(this, { main, go, view: viewFrom(query), charts: new Map(), answers: new Map(), versions: new Map(), means: [], averaged: query.get("seeds") !== "0" });
    const ids = (query.get("ids") || [...chosen].join(",")).split(",").filter(Boolean);
    this.ids = ids.length || !fixed ? ids : [...store.runs.keys()];
    for (const id of this.ids) chosen.add(id);
    this.metrics = (query.get("metrics") || "").split(",").filter(Boolean);
    this.top = h("div");
    this.grid = h("div", { class: "grid" });
    this.settings = h("div");
    this.pairs = h("div");
    this.picker = h("div", { class: "chips", role: "group", "aria-label": "Metrics" });
    fill(main, h("h1", {}, "Comparison"), this.top);
    if (!this.ids.length) {
      fill(this.top, h("p", {}, "Choose runs in ", h("a", { href: "#/" }, "the list"), " with their boxes, or with the x key."));
      return;
    }
    this.seedsBox = h("label", { hidden: true }, h("input", { type: "checkbox", checked: this.averaged, onchange: (e) => { this.averaged = e.target.checked; this.place(); this.draw(); } }), " mean over seeds");
    const controls = viewControls(this.view, () => this.changed());
    controls.append(this.seedsBox);
    main.append(section("Curves", "curves", controls, this.picker, this.grid), section("Paired differences", "pairs", this.pairs), section("Settings that differ", "settings", this.settings));
    this.load();
  }

  destroy() {
    for (const chart of this.charts.values()) chart.destroy();
    this.gone = true;
  }

  place() {
    const query = new URLSearchParams({ ids: this.ids.join(",") });
    viewInto(query, this.view);
    if (this.metrics.length) query.set("metrics", this.metrics.join(","));
    if (!this.averaged) query.set("seeds", "0");
    history.replaceState(null, "", "#/compare?" + query);
  }

  changed() {
    this.place();
    this.versions.clear();
    this.draw();
    this.loadCurves();
  }

  async load() {
    this.place();
    this.draw();
    fill(this.pairs, h("p", { class: "quiet" }, "Computing intervals…"));
    await this.loadCurves();
    await this.loadPairs();
  }

  // states changes when one of the runs begins or ends: then it has other intervals.
  states() {
    return this.ids.map((id) => store.runs.get(id)?.state).join();
  }

  async loadPairs() {
    this.compared = this.states();
    try {
      const c = fixed ? await this.written() : await ask("compare", { ids: this.ids.join(",") });
      if (!this.gone) this.drawComparison(c);
    } catch (error) {
      fill(this.pairs, fixed ? h("p", {}, "These files hold no differences of this selection; with the runs at hand: ", h("code", {}, "run report " + this.ids.map((id) => store.runs.get(id)?.path).join(" "))) : h("p", { class: "bad" }, error.message));
    }
  }

  // written is a comparison that the files hold: of a sweep's jobs, or of all runs. It takes their order.
  async written() {
    const sweep = store.runs.get(this.ids[0])?.sweep;
    for (const path of [...(sweep ? [`sweep/${sweep}/compare`] : []), "compare"]) {
      const c = await ask(path).catch(() => null);
      if (c?.runs.length !== this.ids.length || !c.runs.every((r) => this.ids.includes(r.id))) continue;
      this.ids = c.runs.map((r) => r.id);
      this.place();
      this.draw();
      return c;
    }
    throw new Error("another selection");
  }

  letter(i) {
    return i < 26 ? String.fromCharCode(65 + i) : "run " + (i + 1);
  }

  // named is a run's letter and, of a few that a legend has room for, what it sets.
  named(id, among) {
    const i = this.ids.indexOf(id);
    return [this.letter(i), ...(among > 8 ? [] : this.own[i].map(short))].join(" ");
  }

  // shade is the number of a run's colour: runs that are averaged have one.
  shade(id) {
    const first = (x) => this.averaged && this.means.find((m) => m.runs.includes(x))?.runs[0] || x;
    return [...new Set(this.ids.map(first))].indexOf(first(id));
  }

  // seeds fetches the means of the settings that have several seeds among the chosen runs.
  async seeds() {
    const names = this.metrics.length ? this.metrics.join(",") : null;
    let answer;
    if (fixed) { // those that were written: of each sweep, and of all runs
      const sweeps = new Set(this.ids.map((id) => store.runs.get(id)?.sweep).filter(Boolean)), settings = new Map();
      for (const path of [...[...sweeps].map((id) => `sweep/${id}/curves`), "compare/curves"]) {
        const given = await ask(path).catch(() => ({ settings: [] }));
        for (const m of given.settings) if (m.runs.every((id) => this.ids.includes(id))) settings.set([...m.runs].sort().join(), m);
      }
      answer = { settings: [...settings.values()] };
    } else {
      answer = await ask("compare/curves", { ids: this.ids.join(","), names, since: this.seedsVersion });
    }
    if (this.gone || answer.same) return;
    Object.assign(this, { means: answer.settings, seedsVersion: answer.version });
    this.seedsBox.hidden = this.means.length === 0;
    this.draw();
  }

  // arm names runs that are averaged, by their letters.
  arm(name, ids) {
    return `${name}: ${ids.map((id) => this.letter(this.ids.indexOf(id))).sort().join(" ")}`;
  }

  drawRuns() {
    const set = this.ids.map((id) => store.runs.get(id)?.overrides || []), own = this.own = set.map((list) => set.length < 2 ? list : list.filter((o) => !set.every((other) => other.includes(o))));
    fill(this.top, table(["", "run", "state", "overrides", ">score", ""], this.ids.map((id, i) => {
      const run = store.runs.get(id) || { path: "not there", state: "gone" };
      const key = h("span", { class: "key" }, this.letter(i));
      key.style.borderColor = colour(this.shade(id));
      return [key, h("a", { href: "#/run/" + id }, run.path), badge(run.state), h("span", { title: set[i].join(" ") }, own[i].map((o) => [h("code", { class: "whole" }, o), " "])), [run.score || num(run.best), run.best != null ? h("small", { class: "quiet" }, " " + measureOf(run)) : null],
        h("button", { class: "small", "aria-label": "Leave out " + run.path, onclick: () => {
          chosen.delete(id);
          this.go("#/compare?ids=" + this.ids.filter((x) => x !== id).join(","));
        } }, "✕")];
    })));
  }

  async loadCurves() {
    let any = false;
    for (const id of this.ids.slice(0, MOST)) {
      try {
        const answer = await ask(`run/${id}/curves`, { points: this.ids.length > 8 ? 300 : 600, since: this.versions.get(id) });
        if (this.gone) return;
        if (answer.same) continue;
        this.answers.set(id, answer);
        this.versions.set(id, answer.version);
        any = true;
      } catch { /* a run that is gone has no curve */ }
    }
    if (any) this.draw();
    if (any || !this.seedsVersion) await this.seeds().catch(() => {}); // the runs stand alone
  }

  async update(changed) {
    if (this.busy || fixed || this.gone || !this.ids.length) return;
    this.busy = true;
    if (changed) this.drawRuns();
    await this.loadCurves();
    if (this.states() !== this.compared) await this.loadPairs();
    this.busy = false;
  }

  // usual are the six metrics that are drawn unless others are chosen: those that most of the runs have.
  usual(names) {
    const having = (n) => [...this.answers.values()].filter((a) => a.steps.series[n] || a.epochs.series[n]).length;
    return names.filter((n) => ["val_reward", "val_recorded_reward", "val_accuracy", "mean_reward", "loss", "kl", "entropy"].includes(n))
      .sort((a, b) => having(b) - having(a)).slice(0, 6);
  }

  draw() {
    if (!this.ids.length) return;
    this.drawRuns();
    const names = new Set([...this.answers.values()].flatMap((a) => [...Object.keys(a.steps.series), ...Object.keys(a.epochs.series)]));
    const ordered = usual(names);
    const shown = this.metrics.length ? this.metrics : this.usual(ordered);
    fill(this.picker, h("details", {}, h("summary", {}, `Metrics (${shown.length} of ${ordered.length})`), ordered.map((name) => h("button", { class: "chip", "aria-pressed": String(shown.includes(name)), onclick: () => {
      this.metrics = shown.includes(name) ? shown.filter((n) => n !== name) : [...shown, name];
      this.place();
      this.seedsVersion = null;
      this.seeds().catch(() => {});
      const open = this.picker.querySelector("details").open;
      this.draw();
      this.picker.querySelector("details").open = open;
    } }, name))));
    for (const [name, chart] of this.charts) if (!shown.includes(name)) chart.destroy(), this.charts.delete(name);
    for (const name of shown) {
      const means = this.averaged ? this.means : [], alone = this.ids.slice(0, MOST).filter((id) => this.answers.has(id) && !means.some((m) => m.runs.includes(id)));
      const curves = [...means.flatMap((m) => curvesOf(m, [name], this.view, this.shade(m.runs[0])).map((c) => ({ ...c, label: seedsLabel({ ...m, label: this.arm(m.label, m.runs) }) }))),
        ...alone.flatMap((id) => curvesOf(this.answers.get(id), [name], this.view, this.shade(id)).map((c) => ({ ...c, label: this.named(id, alone.length) })))];
      if (!curves.length) continue;
      if (!this.charts.has(name)) this.charts.set(name, new Chart(this.grid, name, { sync: "compare", zoom: (z) => { this.view.zoom = z; this.changed(); } }));
      this.charts.get(name).show(curves, { ...this.view, plain: curves.length > 3 });
    }
  }

  drawComparison(c) {
    const heads = c.runs.map((r, i) => this.letter(i));
    fill(this.settings, c.settings.length ? [csvButton("settings", () => [["key", ...c.runs.map((r) => r.path)], ...c.settings.map((x) => [x.key, ...x.values])]),
      table(["key", ...heads], c.settings.slice(0, 400).map((x) => [h("code", {}, x.key), ...x.values.map((v) => v == null ? h("span", { class: "quiet" }, "(absent)") : h("code", {}, v))]))] : h("p", {}, c.runs.length > 1 ? "None." : "Choose a second run."));
    const named = new Map((c.arms || []).map((ids, i) => ["arm " + (i + 1), this.arm("arm " + (i + 1), ids)]));
    const groups = Map.groupBy(c.pairs, (p) => `${p.metric.replaceAll("_", " ")} on ${p.split}, minus ${named.get(p.against) || p.against}`);
    const report = h("div", { class: "report" });
    if (c.report) report.append(...new DOMParser().parseFromString(c.report, "text/html").body.childNodes); // text of runs is escaped there; the page's policy runs no script
    fill(this.pairs, c.note ? h("p", { class: "callout" }, c.note) : null,
      c.pairs.length ? csvButton("differences", () => [["split", "metric", "run", "against", "difference", "low", "high", "verdict"], ...c.pairs.map((p) => [p.split, p.metric, p.label, p.against, p.mean, p.low, p.high, p.words])]) : null,
      [...groups].map(([title, pairs]) => [h("h3", {}, title), forest(pairs.map((p) => ({ ...p, label: named.get(p.label) || p.label })), title)]),
      c.report ? h("details", { open: c.pairs.length > 0 }, h("summary", {}, "The whole comparison, as run report writes it"), report) : null,
      !c.note && c.runs.length > 1 && !c.pairs.length ? h("p", {}, "The runs share no questions, or are one arm: there is nothing to compare yet.") : null);
  }
}

