// The page of a sweep: its queue, its search, its jobs.
import { h, fill, num, count, percent, duration, table, section, badge, bar, csvButton } from "./dom.js";
import { store, ask, fixed } from "./store.js";
import { Chart, colour, dark, inked, picture, pictureButtons } from "./chart.js";
import { SeedCharts, viewControls, viewFrom, viewInto } from "./panels.js";
import { Parallel, rangesFrom } from "./parallel.js";
import { control, facts, shell } from "./run.js";
import { stateBar } from "./list.js";

export class SweepView {
  constructor(main, query, go, id) {
    Object.assign(this, { main, go, id, sort: query.get("sort") || "best", kept: null, view: viewFrom(query), ranges: rangesFrom(query) });
    this.said = h("span", { role: "status", class: "quiet" });
    this.means = new SeedCharts(this.view, () => this.changed());
    this.chart = new Chart(h("div", { class: "grid" }), "Objective by job", { axis: "job" });
    this.told = h("div", { class: "report" }, h("p", { class: "quiet" }, "Comparing the jobs…"));
    this.facts = h("div");
    this.parts = { top: h("div"), told: this.told, queue: h("div"), search: section("Search", "search", this.chart.host),
      parallel: section("Parallel coordinates", "parallel", h("p", { class: "quiet small" }, "A line is a job; the stronger its colour stands out, the better. Drag along an axis, or use its arrow keys, to keep the jobs that cross it there; a click takes the range away. Click a line to open its run.")),
      curves: section("Learning curves", "curves", viewControls(this.view, () => this.changed()), this.means.grid), jobs: section("Jobs", "jobs"), facts: this.facts };
    this.lines = this.parts.parallel.appendChild(h("div"));
    this.table = this.parts.jobs.appendChild(h("div"));
    this.load();
  }

  destroy() {
    this.chart.destroy();
    this.means.destroy();
    this.gone = true;
  }

  changed() {
    this.place();
    this.means.draw();
  }

  place() {
    const query = new URLSearchParams();
    if (this.sort !== "best") query.set("sort", this.sort);
    viewInto(query, this.view);
    for (const [name, [low, high]] of this.ranges) query.append("keep", `${name}=${low ?? ""}~${high ?? ""}`);
    history.replaceState(null, "", `#/sweep/${this.id}${query.size ? "?" + query : ""}`);
  }

  async load() {
    try {
      this.sweep = await ask("sweep/" + this.id);
      if (this.gone) return;
      fill(this.main, Object.values(this.parts));
      this.draw();
      await this.report();
      await this.seeds();
    } catch (error) {
      if (!this.gone) fill(this.main, h("p", { class: "bad" }, error.message), h("p", {}, h("a", { href: "#/" }, "All runs")));
    }
  }

  async update(changed) {
    if (!changed || this.busy || fixed || this.gone || !this.sweep) return;
    this.busy = true;
    try {
      if (!store.sweeps.has(this.id)) fill(this.said, h("span", { class: "bad" }, "This sweep's folder is gone: deleted or renamed."));
      this.sweep = await ask("sweep/" + this.id);
      if (!this.gone) this.draw();
      await this.report();
      await this.seeds();
    } catch { /* the next second tries again */ }
    this.busy = false;
  }

  // report shows what the sweep's report says; sections that a reader has opened stay open.
  async report() {
    const answer = await ask(`sweep/${this.id}/told`, { since: this.toldVersion });
    if (this.gone || answer.same) return;
    this.toldVersion = answer.version;
    const was = new Set([...this.told.querySelectorAll("details[open] h2")].map((x) => x.textContent));
    fill(this.told, [...new DOMParser().parseFromString(answer.html, "text/html").body.childNodes]); // text of runs is escaped there; the page's policy runs no script
    for (const part of this.told.querySelectorAll("details")) part.open = was.has(part.querySelector("h2")?.textContent);
    for (const at of this.told.querySelectorAll("[data-plot]")) fill(at, picture(at.dataset.plot, answer.figures[at.dataset.plot]), pictureButtons(at.dataset.plot, () => answer.figures[at.dataset.plot]));
    for (const a of this.told.querySelectorAll("a[href]")) { // of a job's report: its page
      const run = this.sweep.jobs.find((j) => a.getAttribute("href") === j.number + "/report.html")?.run;
      run ? a.href = "#/run/" + run : a.replaceWith(a.textContent);
    }
  }

  // seeds draws the settings that have runs of several seeds.
  async seeds() {
    const answer = await ask(`sweep/${this.id}/curves`, { since: this.seedsVersion });
    if (this.gone || answer.same) return;
    this.seedsVersion = answer.version;
    this.parts.curves.hidden = answer.settings.length === 0;
    this.means.show(answer.settings);
  }

  // better orders jobs as their report does: those that count in front of those that violate a constraint, and pruned ones behind.
  better(a, b) {
    if (this.sweep.mixed) return 0;
    const x = a.objectives?.[0] ?? null, y = b.objectives?.[0] ?? null;
    const last = (j, v) => v == null ? 3 : j.state !== "done" ? 2 : j.infeasible ? 1 : 0;
    if (last(a, x) !== last(b, y) || x == null) return last(a, x) - last(b, y);
    return this.sweep.objectives[0]?.minimize ? x - y : y - x;
  }

  draw() {
    const w = this.sweep, head = w?.sweep;
    if (!w) return;
    document.title = head.path + " · Fulcrum board";
    const done = w.jobs.filter((j) => ["done", "pruned", "failed", "skipped"].includes(j.state)); // a lost job waits for a resume, which makes failed ones again too
    const whole = w.jobs.every((j) => ["done", "pruned"].includes(j.state));
    const states = {};
    for (const job of w.jobs) states[job.state] = (states[job.state] || 0) + 1;
    const job = (j) => j.run ? h("a", { href: "#/run/" + j.run }, "job " + j.number) : "job " + j.number;
    const warned = w.jobs.filter((j) => j.warned);
    const seconds = done.filter((j) => j.seconds > 0);
    const pace = seconds.length ? seconds.reduce((a, j) => a + j.seconds, 0) / seconds.length : null;
    fill(this.parts.top, h("p", { class: "crumbs" }, h("a", { href: store.list }, "Runs")),
      h("h1", {}, head.path, " ", head.running ? badge("running") : badge(whole ? "done" : done.length === w.jobs.length ? "ended" : "stopped")),
      h("div", { class: "tools" }, stateBar(states, w.jobs.length), h("span", {}, `${count(done.length)} of ${count(w.jobs.length)} jobs ended` + (head.running && head.left != null ? `, about ${duration(head.left)} left` : "")),
        store.control && head.running ? control("stop", "sweep/" + this.id, this.said) : null,
        store.control && !head.running && !whole ? control("resume", "sweep/" + this.id, this.said) : null,
        h("a", { class: "button", href: "#/?" + new URLSearchParams({ filter: "sweep:" + this.id, columns: ["path", ...w.dimensions.map((d) => d.key), "state", "progress", "best", "gain", "warnings"] }) }, "As a list"), this.said),
      warned.length ? h("p", { class: "callout" }, h("b", { class: "warn" }, `${count(warned.length)} of ${count(w.jobs.length)} jobs ${warned.length > 1 ? "have" : "has"} warnings: `),
        warned.slice(0, 20).map((j, i) => [i ? "; " : "", job(j), " " + j.warned.join(", ").replaceAll("_", " ")]), warned.length > 20 ? ` and ${count(warned.length - 20)} more` : null) : null);
    fill(this.parts.queue, section("Queue", "queue", Object.entries(states).map(([state, n]) => [badge(state), ` ${count(n)}  `]),
      w.jobs.filter((j) => j.state === "running").slice(0, 40).map((j) => h("p", {}, job(j), " ", bar(j.progress), " ", percent(j.progress), " ", h("code", {}, (Object.keys(j.params).length ? Object.entries(j.params).map(([k, v]) => `${k}=${v}`) : j.overrides).join(" ")))),
      w.jobs.filter((j) => ["failed", "lost"].includes(j.state)).slice(0, 20).map((j) => h("p", {}, badge(j.state), " ", job(j), ": ", h("span", { class: "said" }, j.cause || "")))));
    fill(this.facts, section("About", "about", facts([["What", head.title], ["Sweeper", head.sweeper], ["Launcher", w.launcher], ["Pruner", w.pruner !== "none" && w.pruner], ["A job takes", pace && duration(pace)],
        ["Objective", w.objectives.map((o) => `${o.minimize ? "least" : "most"} ${o.name}`).join(", ")], ["Folder", w.dir, "code"], ["Command", shell(w.command || []), "code"]])));
    this.search();
    const crossed = JSON.stringify([dark(), w.dimensions, w.jobs.map((j) => [j.params, j.objectives])]);
    if (crossed !== this.crossed) {
      this.crossed = crossed;
      const parallel = new Parallel(w, this.ranges, (kept) => { this.kept = kept; this.place(); this.jobs(); }, (j) => j.run && this.go("#/run/" + j.run));
      fill(this.lines, parallel.element, parallel.svg ? pictureButtons("Parallel coordinates", () => inked(parallel.svg)) : null);
      this.parts.parallel.hidden = !parallel.svg;
      this.kept = parallel.kept();
    }
    this.jobs();
  }

  // search draws the objective by job number, and the best so far.
  search() {
    const w = this.sweep, jobs = w.jobs.filter((j) => j.objectives?.[0] != null);
    this.parts.search.hidden = !jobs.length;
    if (!jobs.length) return;
    const minimize = w.objectives[0].minimize;
    let best = null;
    const line = jobs.map((j) => best = j.infeasible || j.state !== "done" ? best : best == null ? j.objectives[0] : minimize ? Math.min(best, j.objectives[0]) : Math.max(best, j.objectives[0]));
    this.chart.show([{ label: w.objectives[0].name, colour: colour(0), x: jobs.map((j) => j.number), y: jobs.map((j) => j.objectives[0]), dots: true, apart: true },
      ...(w.sweep.seeds || w.mixed ? [] : [{ label: "best so far", colour: colour(1), x: jobs.map((j) => j.number), y: line }])], { smooth: 0 }); // of seeds, and of jobs with metrics of their own, none is the best
  }

  jobs() {
    const w = this.sweep;
    const of = (j) => w.sweep.settings?.[j.number] ?? Infinity; // seeds of one setting stand together
    const by = { best: (a, b) => w.sweep.seeds ? of(a) < of(b) ? -1 : of(a) > of(b) : this.better(a, b), number: (a, b) => a.number - b.number, state: (a, b) => a.state < b.state ? -1 : a.state > b.state ? 1 : 0, seconds: (a, b) => b.seconds - a.seconds }[this.sort] || ((a, b) => a.number - b.number);
    const jobs = w.jobs.filter((j) => !this.kept || this.kept.has(j.number)).sort((a, b) => by(a, b) || a.number - b.number);
    const keys = w.dimensions.map((d) => d.key);
    const shown = jobs.slice(0, 500);
    fill(this.table, h("div", { class: "tools" }, h("label", {}, "Order ", h("select", { onchange: (e) => { this.sort = e.target.value; this.place(); this.jobs(); } }, ["best", "number", "state", "seconds"].map((x) => h("option", { value: x, selected: x === this.sort }, x === "best" && w.sweep.seeds ? "best setting" : x)))),
      h("button", { disabled: !jobs.some((j) => j.run), onclick: () => this.go("#/compare?ids=" + jobs.map((j) => j.run).filter(Boolean).join(",")) }, `Compare ${count(jobs.filter((j) => j.run).length)}`),
      csvButton("jobs", () => [["job", "state", ...keys, ...w.objectives.map((o) => o.name), "epochs", "seconds", "cause"], ...jobs.map((j) => [j.number, j.state, ...keys.map((k) => j.params[k]), ...(w.objectives.map((o, i) => j.objectives?.[i])), j.epochs, j.seconds, j.cause])]),
      this.kept ? h("span", { class: "quiet" }, `${count(jobs.length)} of ${count(w.jobs.length)} jobs are in the ranges`) : jobs.length > shown.length ? h("span", { class: "quiet" }, `the first ${shown.length} of ${count(jobs.length)}`) : null),
    table([">job", "state", ...keys, ...w.objectives.map((o) => ">" + o.name), ">epochs", ">took"], shown.map((j) => [
      h("td", { class: "number" }, j.run ? h("a", { href: "#/run/" + j.run }, j.number) : j.number), badge(j.state), ...keys.map((k) => j.params[k] ?? ""),
      ...w.objectives.map((o, i) => num(j.objectives?.[i]) + (j.infeasible ? " (infeasible)" : j.untrained && !i && j.objectives?.length ? " (untrained)" : "")), j.epochs || "–", duration(j.seconds || null)])));
  }
}
