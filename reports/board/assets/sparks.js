// The small lines of the list: how a run's score went.
import { s, num } from "./dom.js";
import { ask } from "./store.js";

// Sparks are the lines of runs, read when they come into sight. come() is called when some have come.
export class Sparks {
  constructor(come) {
    Object.assign(this, { come, of: new Map() }); // run → { of: { name: values }, version }
  }

  // ask asks for the sparks of runs in sight that have changed.
  async ask(inSight) {
    const runs = inSight.filter((run) => this.of.get(run.id)?.version !== run.version);
    if (!runs.length || this.asking) return;
    this.asking = true;
    const answer = await ask("sparks", { ids: runs.map((run) => run.id).join(",") }).catch(() => null); // the next rows ask again
    this.asking = false;
    for (const run of answer ? runs : []) this.of.set(run.id, { of: answer[run.id], version: run.version });
    if (answer) this.come(); // and asks for what has come into sight meanwhile
  }

  // line is a run's score on validation at its start and at the ends of its epochs; a dash where there is one.
  line(run) {
    const [name, all] = Object.entries(this.of.get(run.id)?.of || {})[0] || [null, []], y = all.filter((v) => v != null);
    if (!y.length) return null;
    const low = Math.min(...y), wide = Math.max(...y) - low || 1;
    return s("svg", { class: "spark", viewBox: "0 0 60 20", preserveAspectRatio: "none", role: "img" }, s("title", {}, `${name}: ${num(y[0])} to ${num(y.at(-1))}`),
      s("polyline", { points: y.length < 2 ? "24,10 36,10" : y.map((v, i) => `${60 * i / (y.length - 1)},${(18 - 16 * (v - low) / wide).toFixed(1)}`).join(" ") }));
  }
}
