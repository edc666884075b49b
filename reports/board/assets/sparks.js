// The small lines of the list: how a run's score went.
import { s, num } from "./dom.js";
import { ask } from "./store.js";

// Sparks are the lines of runs, read when they come into sight. come() is called when some have come.
export class Sparks {
  constructor(come) {
    Object.assign(this, { come, of: new Map(), widest: {} }); // run → { of: { name: values }, version }; name → widest range of a run
  }

  // ask asks for the sparks of runs in sight that have changed.
  async ask(inSight) {
    const runs = inSight.filter((run) => this.of.get(run.id)?.version !== run.version);
    if (!runs.length || this.asking) return;
    this.asking = true;
    const answer = await ask("sparks", { ids: runs.map((run) => run.id).join(",") }).catch(() => null); // the next rows ask again
    this.asking = false;
    for (const run of answer ? runs : []) {
      this.of.set(run.id, { of: answer[run.id], version: run.version });
      const [name, y] = this.score(run);
      this.widest[name] = Math.max(this.widest[name] || 0, Math.max(...y) - Math.min(...y)); // −Infinity of none
    }
    if (answer) this.come(); // and asks for what has come into sight meanwhile
  }

  score(run) {
    const [name, all] = Object.entries(this.of.get(run.id)?.of || {})[0] || [null, []];
    return [name, all.filter((v) => v != null)];
  }

  // line is a run's score on validation at its start and at the ends of its epochs; a dash where there is one. Beside runs that moved more
  // than four times as far a run stays flat.
  line(run) {
    const [name, y] = this.score(run);
    if (!y.length) return null;
    const low = Math.min(...y), high = Math.max(...y), wide = Math.max(high - low, this.widest[name] / 4) || 1;
    return s("svg", { class: "spark", viewBox: "0 0 60 20", preserveAspectRatio: "none", role: "img" }, s("title", {}, `${name}: ${num(y[0])} to ${num(y.at(-1))}`),
      s("polyline", { points: y.length < 2 ? "24,10 36,10" : y.map((v, i) => `${60 * i / (y.length - 1)},${(10 - 16 * (v - (low + high) / 2) / wide).toFixed(1)}`).join(" ") }));
  }
}
