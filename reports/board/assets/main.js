// The frame of the page: which view stands where, what is new, the keyboard.
import { h, fill } from "./dom.js";
import { store, chosen, refresh, fixed, remember, remembered } from "./store.js";
import { ListView } from "./list.js";
import { RunView } from "./run.js";
import { SweepView } from "./sweep.js";
import { CompareView } from "./compare.js";

const main = document.getElementById("main"), status = document.getElementById("status");
let view = null;

function go(hash) {
  if (location.hash === hash) route();
  else location.hash = hash;
}

function route() {
  const [path, text] = (location.hash.replace(/^#/, "") || "/").split("?");
  const query = new URLSearchParams(text || ""), [, kind, id] = path.split("/");
  view?.destroy?.();
  scrollTo(0, 0);
  document.title = "Fulcrum board";
  for (const link of document.querySelectorAll("[data-view]")) link.toggleAttribute("aria-current", link.dataset.view === (kind || "list"));
  view = kind === "run" ? new RunView(main, query, go, id) : kind === "sweep" ? new SweepView(main, query, go, id) : kind === "compare" ? new CompareView(main, query, go) : new ListView(main, query, go);
}

const KEYS = [["/", "filter the list"], ["j k ↓ ↑", "next or previous run"], ["Enter", "open the run"], ["x", "choose the run"], ["c", "compare the chosen runs"], ["g", "to the list"], ["↑ ↓", "on an axis of parallel coordinates: move the lower end of what it keeps, with Shift the upper; Esc keeps all"], ["← →", "in a chart: move through its values"], ["+ - 0", "in a chart: closer, wider, all"], ["Esc", "leave a field or this window"], ["t", "light or dark"], ["?", "these keys"]];

function help() {
  const dialog = document.getElementById("help");
  fill(dialog, h("h2", {}, "Keyboard"), h("dl", { class: "facts" }, KEYS.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])), h("form", { method: "dialog" }, h("button", {}, "Close")));
  dialog.showModal();
}

function theme() {
  const root = document.documentElement, was = root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  root.dataset.theme = was === "dark" ? "light" : "dark";
  remember("theme", root.dataset.theme);
  view?.draw();
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const field = /^(TEXTAREA|SELECT)$/.test(event.target.tagName) || event.target.tagName === "INPUT" && event.target.type !== "checkbox";
  if (field) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (view?.key?.(event)) return;
  const act = { "/": () => document.getElementById("filter")?.focus(), g: () => go(store.list), t: theme, "?": help }[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});
document.getElementById("keys").addEventListener("click", help);
document.getElementById("theme").addEventListener("click", theme);
if (remembered("theme", null)) document.documentElement.dataset.theme = remembered("theme", null);
for (const id of remembered("chosen", [])) chosen.add(id);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view?.draw());
addEventListener("hashchange", route);
addEventListener("pagehide", () => remember("chosen", [...chosen].slice(0, 1000)));

// follow asks what is new: twice a second while there is more to read, else every second; a hidden page asks nothing.
async function follow() {
  if (!document.hidden) {
    try {
      const changed = await refresh();
      for (const id of chosen) if (store.version && !store.runs.has(id)) chosen.delete(id);
      fill(status, fixed ? "saved page" : "");
      if (!view) route();
      else await view.update?.(changed);
    } catch (error) {
      fill(status, h("span", { class: "bad" }, error instanceof TypeError ? "The board has ended; what you see is its last state." : error.message));
    }
  }
  if (!fixed) setTimeout(follow, store.reading ? 300 : 900);
}

follow();
