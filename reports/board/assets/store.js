// What the page knows of runs, and how it asks for more: a server, or files beside the page.
import { h } from "./dom.js";

export const fixed = document.documentElement.hasAttribute("data-static");

// The token of the first address, kept for this origin, port included. What the page asks for carries it.
const address = new URL(location.href);
let token = address.searchParams.get("token");
if (token) {
  remember("token", token);
  address.searchParams.delete("token");
  history.replaceState(null, "", address);
} else {
  token = fixed ? null : remembered("token", "");
}

export const store = { version: 0, runs: new Map(), sweeps: new Map(), reading: 0, roots: [], control: false, loaded: false, list: "#/" }; // list: address of the list as it was last seen
export const chosen = new Set(); // ids of selected runs

const given = new Map(); // of files: path → answer

// A click counts where its button goes down and up on one element: while it is down, nothing that was asked for is drawn.
let free = Promise.resolve(), release = null;
addEventListener("pointerdown", () => release || (free = new Promise((done) => release = done)), true);
for (const kind of ["pointerup", "pointercancel", "blur"]) {
  addEventListener(kind, () => setTimeout(() => { // behind the click
    release?.();
    release = null;
  }, 30), true);
}

// ask returns the answer to a question; of files only those that were written.
export async function ask(path, query = {}) {
  if (fixed) return askFile(path);
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value != null && value !== "")).toString();
  const answer = await readReply(await fetch("api/" + path + (text ? "?" + text : ""), { credentials: "omit", headers: { "X-Board-Token": token } }));
  await free;
  return answer;
}

async function readReply(reply) {
  let answer;
  try {
    answer = await reply.json();
  } catch {
    throw new Error(reply.status === 401 ? "The token is missing: open the address that run board has printed." : "The board answered " + reply.status + ".");
  }
  if (answer && answer.error) throw new Error(answer.error);
  return answer;
}

function askFile(path) {
  window.boardData = (key, answer) => given.set(key, answer);
  if (given.has(path)) return settle(given.get(path));
  return new Promise((done, failed) => {
    const script = h("script", {
      src: "data/" + path.replaceAll("/", "-") + ".js",
      onload: () => given.has(path) ? settle(given.get(path)).then(done, failed) : failed(new Error("damaged file")),
      onerror: () => failed(new Error("These files do not hold it.")),
    });
    document.head.append(script);
  });
}

function settle(answer) {
  return answer && answer.error ? Promise.reject(new Error(answer.error)) : Promise.resolve(answer);
}

// tell changes something: notes, or a run that is to stop or to go on.
export async function tell(method, path, content) {
  const reply = await fetch("api/" + path, {
    method, credentials: "omit", headers: { "Content-Type": "application/json", "X-Board-Token": token }, body: content && JSON.stringify(content),
  });
  return readReply(reply);
}

const FIRST = 200; // runs of the first answer: the others come behind the first paint

// refresh fetches what has changed in the list and says whether anything has.
export async function refresh() {
  if (fixed && store.loaded) return false;
  const answer = await ask("runs", { since: store.version || null, most: store.loaded ? null : FIRST });
  const changed = answer.version !== store.version || answer.reading !== store.reading || !store.loaded;
  if (answer.version < store.version) { // another board at the same address
    store.version = 0;
    return refresh();
  }
  for (const run of answer.runs) store.runs.set(run.id, run);
  for (const sweep of answer.sweeps) store.sweeps.set(sweep.id, sweep);
  for (const id of answer.gone) {
    store.runs.delete(id);
    store.sweeps.delete(id);
    chosen.delete(id);
  }
  Object.assign(store, { version: answer.version, reading: answer.reading, roots: answer.roots || [], control: answer.control, loaded: true });
  return changed;
}

// remember keeps a reader's choice of how to look at things.
export function remember(key, value) {
  try {
    localStorage.setItem("board-" + key, JSON.stringify(value));
  } catch { /* a browser that keeps nothing */ }
}

export function remembered(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem("board-" + key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}
