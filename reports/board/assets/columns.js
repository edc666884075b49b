// What the list of runs can show in its columns, and which runs can be compared and by what.
import { h, fill, num, count, short } from "./dom.js";
import { store, ask, fixed } from "./store.js";

export const COLUMNS = [
  { key: "path", wide: "minmax(12rem, 3fr)", name: "run", of: (r) => r.path },
  { key: "state", wide: "6.6rem", name: "state", of: (r) => r.state },
  { key: "progress", wide: "8rem", name: "progress", of: (r) => r.progress ?? -1 },
  { key: "step", wide: "4.2rem", name: "step", of: (r) => r.step || 0, number: true },
  { key: "best", wide: "11rem", name: "score", of: (r) => r.best ?? -Infinity, number: true },
  { key: "gain", wide: "12rem", name: "over baseline", of: (r) => gainOf(r) ?? -Infinity, number: true },
  { key: "warnings", wide: "5rem", name: "warnings", of: (r) => (r.stops || 0) * 1000 + (r.warnings || 0), number: true },
  { key: "seconds", wide: "5.2rem", name: "took", of: (r) => r.seconds || 0, number: true },
  { key: "start", wide: "6.2rem", name: "started", of: (r) => r.start || 0, number: true },
];

// PARTS are what runs can be grouped by, and shown by in a column, besides the keys of their configurations.
const PARTS = ["title", "task", "seed", "phase", "data", "sweep", "tags", "metric"];

export function gainOf(run) {
  return run.gain ? run.gain.mean : run.best != null && run.baseline != null ? run.best - run.baseline : null;
}

// rivals is what runs share whose scores (column best) or gains can be told apart by their size: measure, split and data, and of gains
// the baseline. Null: the run has no such number.
export function rivals(run, key) {
  if (key === "gain" ? gainOf(run) == null : run.best == null) return null;
  return [run.metric, run.split, run.policy, run.data, key === "gain" && run.over].join(" ");
}

export const minimized = (run) => run.metric === "loss";

// measureOf says what a run's score is, and on which split: runs of one list may differ in it.
export function measureOf(run) {
  return run.metric ? `${run.metric.replaceAll("_", " ")} on ${run.split || "val"}${run.policy ? ` after ${run.policy}` : ""}` : null;
}

const words = new Intl.Collator("en", { numeric: true }).compare;

// natural orders names as readers count: 9 before 10, 0.0005 before 0.005, whose digits alone are equal.
export const natural = (a, b) => a - b || words(a, b) || (a > b) - (a < b);

// keyOf is the key that an override sets.
export const keyOf = (override) => override.replace(/^\+*/, "").split("=")[0];

export const isSeed = (override) => keyOf(override) === "seed";

// settingOf is what runs share that differ in their seed alone.
export function settingOf(run) {
  const n = store.sweeps.get(run.sweep)?.settings?.[run.job];
  return n != null ? run.sweep + n : run.sweep || !run.overrides?.length ? run.id : [run.title, ...run.overrides.filter((o) => !isSeed(o))].join(" ");
}

// counts says whether a run's score stands for something: it has one, was not pruned, and satisfies the constraints of its sweep.
const counts = (run) => run.best != null && run.state !== "pruned" && !store.sweeps.get(run.sweep)?.infeasible?.includes(Number(run.job));

// topsOf compares the runs that have ended by the means of their settings, those that can be compared: rivals → { of: settings,
// tied: those that have the best, first: those of them with one seed: of several seeds none is the highest, their setting is }.
export function topsOf(runs) {
  const tops = Map.groupBy(runs.filter((run) => run.data && counts(run)), (run) => rivals(run, "best"));
  for (const [key, all] of tops) {
    const settings = Map.groupBy(all, settingOf), mean = (seeds) => seeds.reduce((sum, run) => sum + run.best, 0) / seeds.length;
    const best = [...settings.values()].map(mean).reduce((x, v) => (v < x) === minimized(all[0]) ? v : x);
    const tied = [...settings].filter(([, seeds]) => mean(seeds) === best);
    tops.set(key, { of: settings.size, tied: tied.length, first: new Map(tied.filter(([, seeds]) => seeds.length === 1)) });
  }
  return tops;
}

// groupWords says how many runs a group has and, where they can be compared, the mean of the scores that count.
export function groupWords(runs) {
  const known = runs.filter(counts);
  const alike = known.length > 1 && known.every((r) => rivals(r, "best") === rivals(known[0], "best"));
  return `${count(runs.length)} run${runs.length > 1 ? "s" : ""}` + (alike ? `, mean ${num(known.reduce((a, r) => a + r.best, 0) / known.length)}` : "");
}

// Columns are those that the list shows, and the key that its runs are grouped by. changed(chosen) draws the list anew: the user has
// chosen others, or values have come.
export class Columns {
  constructor(query, changed) {
    this.changed = changed;
    this.keys = (query.get("columns") || "").split(",").filter(Boolean); // none: as the page has room
    this.group = query.get("group") || "";
    this.values = new Map(); // run → value by key, of the keys that are shown
    this.names = h("datalist", { id: "names" });
    const named = (text, value, change) => h("label", {}, text, " ", h("input", { type: "text", list: "names", value, placeholder: "key", onchange: (e) => { change(e.target.value.trim()); this.changed(true); } }));
    this.choice = h("div", { class: "chips" });
    this.box = h("details", { class: "choose", ontoggle: () => this.ask() }, h("summary", {}, "Columns, groups"), h("div", { class: "tools" }, this.choice,
      named("Add a column", "", (key) => key && (this.keys = [...this.wanted().map((c) => c.key), key])), named("Group by", this.group, (key) => this.group = key), this.names));
  }

  // choose shows the boxes that choose among columns.
  choose(columns) {
    fill(this.choice, [...COLUMNS, ...columns.filter((c) => c.own && c.key !== this.group)].map((c) => h("label", {}, h("input", { type: "checkbox", checked: columns.includes(c), onchange: (e) => {
      this.keys = e.target.checked ? [...columns, c].map((x) => x.key) : columns.filter((x) => x !== c).map((x) => x.key);
      this.changed(true);
    } }), " ", c.name)));
  }

  // wanted are the columns of the table, a group's first.
  wanted() {
    const keys = this.keys.length ? this.keys : COLUMNS.map((c) => c.key);
    return [...new Set(this.group ? [this.group, ...keys] : keys)].map((key) => COLUMNS.find((c) => c.key === key) || { key, name: short(key), wide: key === this.group ? "minmax(9rem, 1fr)" : "minmax(6rem, 1fr)", of: (r) => this.value(r, key), own: true });
  }

  // value is what a run has set a key to, or another part of it.
  value(run, key) {
    if (key === "sweep") return store.sweeps.get(run.sweep)?.path || "";
    if (PARTS.includes(key)) return String(run[key] ?? "");
    const set = (run.overrides || []).filter((o) => keyOf(o) === key);
    return this.values.get(run.id)?.[key] || set.at(-1)?.replace(/^[^=]*=/, "") || "";
  }

  // take shows the names of keys that runs have.
  take(names) {
    fill(this.names, [...PARTS, ...names].map((value) => h("option", { value })));
    this.listed = true;
  }

  // ask reads the keys that are shown from the configurations of the runs, of a saved page all.
  async ask() {
    const keys = this.wanted().filter((c) => c.own && !PARTS.includes(c.key)).map((c) => c.key), text = keys.join(",");
    if (this.asked !== text) Object.assign(this, { asked: text, version: 0, listed: false });
    if (this.asking || !keys.length && (this.listed || !this.box.open)) return;
    this.asking = true;
    if (fixed) { // asked once
      const { ids, common, differing } = await ask("values").catch(() => ({ ids: [] })); // an export of before has none
      for (const [i, id] of ids.entries()) this.values.set(id, { ...common, ...Object.fromEntries(differing.map((d) => [d.key, d.values[i]])) });
      this.take([...new Set([...Object.keys(common || {}), ...(differing || []).map((d) => d.key)])].sort());
      return this.changed(false);
    }
    try {
      for (let answer = { more: true }; answer.more;) {
        answer = await ask("values", { keys: text, since: this.version || null });
        if (this.asked !== text) break; // others were chosen meanwhile, whose versions these are not
        this.version = answer.version;
        for (const [id, row] of Object.entries(answer.values)) this.values.set(id, Object.fromEntries(row.map((v, i) => [keys[i], v])));
        if (answer.names) this.take(answer.names);
        if (Object.keys(answer.values).length) this.changed(false);
      }
    } catch { /* the next change asks again */ }
    this.asking = false;
    if (this.asked !== text) this.ask();
  }
}
