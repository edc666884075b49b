// The page of one run.
import { h, fill, num, signed, count, percent, duration, ago, moment, table, badge, bar, section, csvButton } from "./dom.js";
import { store, chosen, ask, tell, fixed } from "./store.js";
import { Chart, forest, histogram, verdictClass } from "./chart.js";
import { PANELS, curvesOf, phasesOf, viewControls, viewFrom, viewInto } from "./panels.js";
import { progressWords } from "./list.js";

export class RunView {
  constructor(main, query, go, id) {
    Object.assign(this, { main, go, id, view: viewFrom(query), charts: new Map(), parts: new Map(), stamp: null, version: null, busy: false, shownTo: Infinity });
    this.top = h("div");
    this.rest = h("div");
    this.said = h("span", { role: "status", class: "quiet" });
    this.jump = h("nav", { class: "jump", "aria-label": "Parts of this page" });
    this.log = h("pre", { tabindex: "0" });
    this.later = h("button", { onclick: () => this.showCompletions() }, "Newer");
    this.grid = h("div", { class: "grid" });
    this.more = h("details", { class: "more", ontoggle: () => this.draw() }, h("summary", {}, "All other metrics"));
    this.moreGrid = h("div", { class: "grid" });
    this.more.append(this.moreGrid);
    this.heat = h("div");
    this.reading = h("p", { class: "quiet", role: "status" });
    fill(main, this.top, section("Curves", "curves", viewControls(this.view, () => this.changed()), this.reading, this.grid, this.heat, this.more), this.rest);
    this.load();
  }

  destroy() {
    for (const chart of this.charts.values()) chart.destroy();
    this.gone = true;
  }

  changed() {
    const query = new URLSearchParams();
    viewInto(query, this.view);
    history.replaceState(null, "", `#/run/${this.id}${query.size ? "?" + query : ""}`);
    this.version = null;
    this.draw();
    this.loadCurves();
  }

  async load() {
    try {
      this.detail = await ask("run/" + this.id);
      if (this.gone) return;
      this.stamp = this.detail.run.version;
      this.drawFacts();
      await this.loadCurves();
    } catch (error) {
      if (!this.gone) fill(this.main, h("p", { class: "bad" }, error.message), h("p", {}, h("a", { href: "#/" }, "All runs")));
    }
  }

  // update is called every second.
  async update() {
    const run = store.runs.get(this.id);
    if (this.busy || fixed || this.gone) return;
    this.busy = true;
    try {
      if (!run && store.version) return this.left();
      if (run && run.version !== this.stamp) {
        this.detail = await ask("run/" + this.id);
        this.stamp = run.version;
        if (!this.gone) this.drawFacts();
      }
      await this.loadCurves();
    } catch { /* the next second tries again */ } finally {
      this.busy = false;
    }
  }

  // left says that the run's folder is no longer there; what was read of it stays.
  left() {
    if (!this.detail || this.stamp === "gone") return;
    this.stamp = "gone";
    this.detail.run = { ...this.detail.run, state: "gone", left: null, error: "This run's folder is gone: deleted, or renamed, and then in the list under its new name. What was read of it stays here until you leave." };
    this.drawFacts();
  }

  async loadCurves() {
    const zoom = this.view.zoom && !this.view.time ? { from: Math.floor(this.view.zoom[0]), to: Math.ceil(this.view.zoom[1]) } : {};
    const answer = await ask(`run/${this.id}/curves`, { since: this.version, points: this.view.zoom ? 1200 : 600, hist: 1, ...zoom });
    if (this.gone) return;
    fill(this.reading, !answer.complete ? `Reading rows: ${percent(answer.read)} of the file` : this.charts.size || !answer.same ? "" : "No rows yet.");
    if (answer.same && this.answer) return;
    this.version = answer.version;
    this.answer = answer;
    this.draw();
  }

  draw() {
    const answer = this.answer;
    if (!answer || !this.detail) return;
    const known = new Map(this.detail.metrics.map((m) => [m.name, m]));
    const names = [...new Set([...Object.keys(answer.steps.series), ...Object.keys(answer.epochs.series)])];
    const named = new Set(PANELS.flatMap((p) => p.names));
    const view = { ...this.view, phases: phasesOf(answer) };
    const wanted = new Map();
    for (const panel of PANELS) {
      const curves = curvesOf(panel.system ? { ...answer, steps: answer.system, epochs: null } : answer, panel.names, this.view);
      if (curves.length) wanted.set(panel.title, { host: this.grid, panel, curves });
    }
    if (this.more.open) {
      for (const name of names.filter((n) => !named.has(n))) {
        const curves = curvesOf(answer, [name], this.view);
        if (curves.length) wanted.set("metric " + name, { host: this.moreGrid, panel: { title: name, unit: known.get(name)?.unit, help: known.get(name)?.help }, curves });
      }
    }
    this.more.hidden = names.every((n) => named.has(n));
    for (const [key, chart] of this.charts) if (!wanted.has(key)) chart.destroy(), this.charts.delete(key);
    for (const [key, { host, panel, curves }] of wanted) {
      if (!this.charts.has(key)) {
        const help = panel.help || panel.names?.map((n) => known.get(n)).filter(Boolean).map((m) => `${m.name}: ${m.help}`).join("\n");
        this.charts.set(key, new Chart(host, panel.title, { unit: panel.unit, help, sync: "run", zoom: (z) => { this.view.zoom = z; this.changed(); } }));
      }
      this.charts.get(key).show(curves, { ...view, levels: panel.levels ? this.levels(curves) : null });
    }
    if (answer.steps.hist) histogram(this.heat, answer.steps.hist, answer.steps.steps);
    else fill(this.heat);
    if (wanted.size === 0) fill(this.reading, answer.complete ? "No rows yet." : this.reading.textContent);
  }

  // levels are the baselines of the metric that a chart of scores shows.
  levels(curves) {
    const metric = curves[0]?.label.replace("val_", "");
    const of = (policy) => this.detail.results.find((r) => r.split === "val" && r.policy === policy && r.metric === metric)?.mean ??
      this.detail.means?.find(({ Fields: m }) => m.split === "val" && m.policy === policy && m[metric] != null)?.Fields[metric];
    return ["similarity", "majority", ...(bestFirst(this.detail) ? [] : ["recorded_order"]), "init"].map((policy) => ({ label: stageName({ policy }) + (curves.length > 1 ? ` (${metric})` : ""), value: of(policy) }))
      .filter((l) => l.value != null).slice(0, 2);
  }

  drawFacts() {
    const d = this.detail, run = d.run;
    document.title = run.path + " · Fulcrum board";
    const resumable = ["killed", "interrupted", "failed"].includes(run.state);
    fill(this.top,
      h("p", { class: "crumbs" }, h("a", { href: store.list }, "Runs"), run.sweep && d.sweep_path ? [" / ", h("a", { href: "#/sweep/" + run.sweep }, d.sweep_path)] : null),
      h("h1", {}, run.path, " ", badge(run.state)),
      run.error ? h("p", { class: "bad" }, run.error) : null,
      h("div", { class: "tools" },
        run.progress != null && run.progress < 1 ? [bar(run.progress, progressWords(run)), h("span", {}, progressWords(run))] : null,
        store.control && !run.sweep && run.state === "running" ? control("stop", "run/" + this.id, this.said) : null,
        store.control && !run.sweep && resumable ? control("resume", "run/" + this.id, this.said) : null,
        h("button", { onclick: () => { chosen.add(this.id); this.go("#/compare?ids=" + [...chosen].join(",")); } }, "Compare"),
        this.said),
      verdictOf(run, d.verdict),
      run.warned?.length ? h("p", { class: "callout" }, h("button", { class: "plain warn", onclick: () => document.getElementById("findings")?.scrollIntoView() },
        `${run.stops ? "Stopped by a finding" : "It has warnings"}: ${run.warned.join(", ").replaceAll("_", " ")}. Read them first.`)) : null,
      facts([
        ["Title", run.title], ["Task", run.task], ["Overrides", (run.overrides || []).join(" "), "code"], ["Phase", run.phase && `${run.phase}, ${run.epoch} epochs done, step ${count(run.step)}`],
        ["Started", run.start && `${moment(run.start)} (${ago(run.start)})`], ["Took", run.seconds && duration(run.seconds)], ["Device", d.device], ["Data", d.data && d.data.name + (d.data.synthetic ? " (synthetic)" : "")],
        ["Best", d.best && `${d.best.metric} ${num(d.best.value)} at ${epochName(d.best)}`], ["Folder", d.dir, "code"],
        ["Again", d.command?.length && shell(d.command), "code"], ["Damaged lines", d.damaged],
      ]),
      fixed ? null : h("p", { class: "links" }, "Files: ", [...(d.files || []), "all as JSON"].map((name) => [h("a", { href: d.links[name], target: "_blank", rel: "noopener" }, name), " "])),
      this.jump);
    this.drawRest();
  }

  drawRest() {
    const d = this.detail, run = d.run;
    this.part("results", [d.results, d.means], () => resultsSection(d));
    this.part("findings", d.events, () => findingsSection(d.events));
    this.part("examples", d.examples, () => examplesSection(d.examples));
    this.part("completions", d.completions > 0, () => d.completions ? this.completionsSection() : null);
    this.part("settings", d.settings, () => this.settingsSection());
    this.part("notes", null, () => this.notesSection());
    this.part("log", !d.log, () => d.log ? section("Log", "log", this.log) : null);
    const atEnd = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 8; // whoever has scrolled up reads
    this.log.textContent = d.log;
    if (atEnd) this.log.scrollTop = this.log.scrollHeight;
    this.later.hidden = !(d.completions > this.shownTo);
    if (this.note) this.noted(run);
    fill(this.jump, [...this.main.querySelectorAll("section")].map((part) => h("button", { class: "plain", onclick: () => part.scrollIntoView() }, part.id)));
  }

  // part draws a part of the page, and again when what it shows has changed: all else that a reader has opened or typed stays.
  part(id, value, make) {
    if (!this.parts.has(id)) this.parts.set(id, { host: this.rest.appendChild(h("div")) });
    const part = this.parts.get(id), text = JSON.stringify(value ?? null);
    if (part.text === text) return;
    part.text = text;
    fill(part.host, make());
  }

  completionsSection() {
    this.completions = h("div");
    this.showCompletions();
    return section("Completions", "completions", this.completions);
  }

  // showCompletions shows those before a byte of their file, or the latest.
  async showCompletions(before) {
    const show = (at) => this.showCompletions(at);
    try {
      const answer = await ask(`run/${this.id}/completions`, { before });
      const groups = new Map();
      for (const row of answer.rows) {
        const key = [row.phase, row.epoch, row.step, row.query_id].join("/");
        if (!groups.has(key)) groups.set(key, []);
        groups.get(key).push(row);
      }
      this.shownTo = before ? Infinity : answer.size;
      this.later.hidden = true;
      fill(this.completions, h("div", { class: "tools" }, answer.before && !fixed ? h("button", { onclick: () => show(answer.before) }, "Earlier") : null,
        before ? h("button", { onclick: () => show() }, "Latest") : this.later,
        h("span", { class: "quiet" }, `${count(answer.rows.length)} completions of ${count(groups.size)} groups`)),
      [...groups.values()].reverse().slice(0, 30).map((rows, i) => h("details", { class: "group", open: i === 0 },
        h("summary", {}, `${rows[0].phase} epoch ${rows[0].epoch} step ${rows[0].step}: `, h("q", {}, rows[0].question || "query " + rows[0].query_id)),
        pictures(rows.find((row) => row.pictures)?.pictures),
        rows[0].reference ? h("p", {}, "Target: ", h("q", {}, rows[0].reference), rows[0].answers ? h("span", { class: "quiet" }, " · answers: " + [...new Set(rows[0].answers)].join(", ")) : null) : null,
        table([">reward", ">advantage", "completion", "parts"], rows.sort((a, b) => b.reward - a.reward).map((row) => [num(row.reward, 3), signed(row.advantage, 3),
          [h("span", { class: "said" }, row.text), row.truncated ? h("span", { class: "warn" }, " (cut)") : null],
          Object.entries(row.terms || {}).map(([k, v]) => `${k} ${num(v, 3)}`).join(", ")])))));
    } catch (error) {
      fill(this.completions, error.message);
    }
  }

  settingsSection() {
    const all = Object.entries(this.detail.settings).sort((a, b) => a[0] < b[0] ? -1 : 1);
    const host = h("div");
    const show = (words) => fill(host, table(["key", "value"], all.filter(([k, v]) => (k + " " + v).toLowerCase().includes(words.toLowerCase()))
      .map(([k, v]) => [h("code", {}, k), h("code", {}, v)]), { class: "facts" }));
    show("");
    return section("Settings", "settings", h("details", {}, h("summary", {}, `${count(all.length)} keys`),
      h("div", { class: "tools" }, h("input", { type: "search", placeholder: "Find a key", "aria-label": "Find a key", oninput: (e) => show(e.target.value) }), csvButton("settings", () => [["key", "value"], ...all])), host));
  }

  notesSection() {
    const run = this.detail.run;
    if (fixed) return run.note || run.tags ? section("Notes", "notes", h("p", {}, (run.tags || []).map((t) => [h("span", { class: "tag" }, t), " "])), h("p", { class: "said" }, run.note)) : null;
    this.note = h("textarea", { rows: "4", "aria-label": "Note", placeholder: "What was this run for? What did it show?" });
    this.tags = h("input", { type: "text", "aria-label": "Tags", placeholder: "Tags, with commas" });
    this.noteSaid = h("span", { role: "status", class: "quiet" });
    return section("Notes", "notes", h("form", { class: "notes", onsubmit: async (e) => {
      e.preventDefault();
      try {
        const saved = await tell("PUT", `run/${this.id}/notes`, { note: this.note.value, tags: this.tags.value.split(",").map((t) => t.trim()).filter(Boolean) });
        this.inFile = null; // take what was saved
        this.noted(saved);
        fill(this.noteSaid, "Saved in notes.json of the run folder.");
      } catch (error) {
        fill(this.noteSaid, h("span", { class: "bad" }, error.message));
      }
    } }, this.note, this.tags, h("div", { class: "tools" }, h("button", { type: "submit" }, "Save"), this.noteSaid)));
  }

  // noted takes the note and tags that the file has now, unless the reader has typed others.
  noted(file) {
    const now = [file.note || "", (file.tags || []).join(", ")], typed = [this.note.value, this.tags.value];
    if (this.inFile && String(now) === String(this.inFile)) return;
    if (!this.inFile || String(typed) === String(this.inFile)) [this.note.value, this.tags.value] = now;
    else if (String(typed) !== String(now)) fill(this.noteSaid, h("span", { class: "warn" }, "Changed meanwhile by somebody else; Save replaces: ", h("q", {}, now.filter(Boolean).join(" · "))));
    this.inFile = now;
  }
}

// control is a button that stops or resumes a run or a sweep; said shows what came of it.
export function control(what, path, said) {
  return h("button", { class: what, onclick: async (e) => {
    e.target.disabled = true;
    try {
      let answer = await tell("POST", `${path}/${what}`);
      while (answer.agreed && await agrees(answer.starts)) answer = await tell("POST", `${path}/${what}`, { agreed: answer.agreed });
      if (answer.done) fill(said, what === "stop" ? "Told to stop: it saves its state." : "Going on.");
    } catch (error) {
      fill(said, h("span", { class: "bad" }, error.message));
    }
    setTimeout(() => { e.target.disabled = false; }, 3000);
  } }, what === "stop" ? "Stop and save" : "Resume");
}

// agrees asks whether a run may go on: its folder may be another's, and says which programs start.
function agrees(starts) {
  const dialog = document.getElementById("help");
  fill(dialog, h("h2", {}, "Go on with it?"),
    starts.length ? [h("p", {}, "With your rights its configuration starts or calls:"), h("dl", { class: "facts" }, starts.map((x) => [h("dt", {}, h("code", {}, x.key)), h("dd", {}, h("code", { class: "whole" }, x.value))]))]
      : h("p", {}, "Its configuration starts no other program and calls no address."),
    h("form", { method: "dialog" }, h("button", { value: "yes", class: "agree" }, "Go on"), " ", h("button", { value: "no", autofocus: true }, "Cancel")));
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
}

export function shell(argv) {
  return argv.map((arg) => /^[\w@%+=:,./-]+$/.test(arg) ? arg : "'" + arg.replaceAll("'", "'\\''") + "'").join(" ");
}

export function facts(rows) {
  return h("dl", { class: "facts" }, rows.filter(([, value]) => value != null && value !== "" && value !== false && value !== 0)
    .map(([name, value, kind]) => [h("dt", {}, name), h("dd", {}, kind === "code" ? h("code", {}, value) : value)]));
}

function verdictOf(run, verdict) {
  if (run.best == null) return null;
  const where = `${run.metric.replaceAll("_", " ")} ${run.score || num(run.best)} on ${run.split}${run.policy ? ` after ${run.policy}` : ""}`;
  if (!verdict) return h("p", { class: "callout" }, `So far ${where}`, run.baseline != null ? `, ${run.over} ${num(run.baseline)}.` : ".", run.state === "running" ? " An interval comes with the end of the run." : "");
  return h("p", { class: "callout" }, h("b", { class: verdictClass(run.gain) }, where), ". " + verdict);
}

const OVER = [["similarity", "similarity"], ["majority", "majority"], ["random", "random"], ["recorded_order", "recorded order"], ["init", "initial policy"]];

// bestFirst says whether the file lists the best candidate first: then the recorded order is an oracle and no baseline.
const bestFirst = (d) => d.results.some((r) => r.policy === "recorded_order" && r.metric === "top1_accuracy" && r.mean === 1) ||
  Boolean(d.means?.some((m) => m.Fields.policy === "recorded_order" && m.Fields.top1_accuracy === 1));

// shownOver are the baselines of a table as its report has them: random takes the place of those that are worse (weak), and stands
// beside an initial policy that is.
function shownOver(rows, d) {
  const known = OVER.filter(([policy]) => policy !== "recorded_order" || !bestFirst(d));
  const weak = known.filter(([policy]) => rows.some((r) => r.policy === policy && r.gains.random?.verdict === "worse"));
  if (!rows.some((r) => r.policy === "similarity" || r.gains.similarity)) known.unshift(known.pop()); // a pretrained policy's start is its first baseline
  return { weak, over: known.filter((o) => rows.some((r) => r.gains[o[0]]) && (o[0] === "random" ? weak.length : o[0] === "init" || !weak.includes(o))) };
}

const epochName = (r) => r.phase === "init" ? "initial policy" : `${r.phase} epoch ${r.epoch}`;

function stageName(r) {
  const name = { init: "initial policy", best_beam: "best beam", recorded_order: "recorded order" }[r.policy];
  return name || (r.policy === "best" ? `best (${epochName(r)})` : ["random", "similarity", "majority", "oracle", "reference", "results"].includes(r.policy) ? r.policy : `after ${r.policy}`);
}

function resultsSection(d) {
  if (!d.results.length) {
    if (!d.means?.length) return null;
    return section("Results", "results", table(["split", "policy", "numbers"], d.means.map(({ Fields: m }) => [m.split, m.policy, Object.entries(m).filter(([, v]) => typeof v === "number").map(([k, v]) => `${k} ${num(v)}`).join(", ")])));
  }
  const tables = Map.groupBy(d.results, (r) => `${r.metric.replaceAll("_", " ")} on ${r.split}, ${count(r.queries)} questions`);
  return section("Results", "results", csvButton("results", () => [["split", "metric", "policy", "phase", "epoch", "questions", "mean", "se", "over", "difference", "low", "high", "verdict"],
    ...d.results.flatMap((r) => { const begin = [r.split, r.metric, r.policy, r.phase, r.epoch, r.queries, r.mean, r.se]; return [begin, ...OVER.filter(([k]) => r.gains[k]).map(([k, n]) => [...begin, n, r.gains[k].mean, r.gains[k].low, r.gains[k].high, r.gains[k].verdict])]; })]),
  [...tables].map(([title, rows]) => {
    const { over, weak } = shownOver(rows, d), [against, name] = over[0] || [], held = rows.filter((r) => r.gains[against]);
    const cell = (g) => h("td", { class: "number" }, g ? [g.text + " ", h("span", { class: verdictClass(g) }, g.words)] : "–");
    return [h("h3", {}, title), weak.length ? h("p", { class: "warn" }, `Worse than drawing at random here: ${weak.map(([, n]) => n).join(", ")}. A gain over that says little.`) : null, table(["policy", ">mean ± SE", ...over.map(([, n]) => ">over " + n)], rows.map((r) => [stageName(r) + (r.policy === "recorded_order" && bestFirst(d) ? " (best first: an oracle)" : ""), r.level, ...over.map(([policy]) => cell(r.gains[policy]))])),
      held.length ? [h("p", { class: "quiet small" }, `Difference from ${name}, with its interval:`), forest(held.map((r) => ({ ...r.gains[against], label: stageName(r) })), title)] : null];
  }), (d.notes || []).map((note) => h("p", { class: "quiet small" }, note)));
}

function findingsSection(events) {
  const rows = [...events].reverse().slice(0, 300);
  if (!rows.length) return null;
  return section("Findings and events", "findings", table(["severity", "where", "what", "key"], rows.map((e) => [
    h("span", { class: { warning: "warn", stop: "bad", error: "bad" }[e.severity] || "quiet" }, e.severity || "note"),
    [e.phase, e.epoch ? `epoch ${e.epoch}` : null, e.step ? `step ${count(e.step)}` : null].filter(Boolean).join(", ") || "start",
    [h("b", {}, (e.event || "").replaceAll("_", " ")), " ", e.message || ""], e.key ? h("code", { class: "whole" }, e.key) : ""])));
}

function pictures(list) {
  return list ? h("p", { class: "pictures" }, list.map((src) => h("img", { src, alt: "picture" }))) : null;
}

function examplesSection(examples) {
  if (!examples.length) return null;
  const items = (list) => list?.length === 1 && !list[0].question ? h("p", { class: "said" }, h("b", {}, list[0].answer)) : // an answer, no selection
    h("ol", {}, (list || []).map((item) => h("li", {}, h("q", {}, item.question), " → ", h("b", {}, item.answer))));
  return section("Examples: before and after", "examples", h("div", { class: "examples" }, examples.slice(0, 40).map((x) => h("article", {},
    pictures(x.pictures),
    h("p", {}, h("q", {}, x.question), " → ", h("b", {}, x.answer)),
    h("div", { class: "two" }, h("div", {}, h("p", { class: "quiet" }, `before: reward ${num(x.reward_before, 3)}`), items(x.before)),
      h("div", {}, h("p", { class: x.reward_after > x.reward_before ? "good" : "quiet" }, `after: reward ${num(x.reward_after, 3)} (${signed(x.reward_after - x.reward_before, 2)})`), items(x.after)))))));
}
