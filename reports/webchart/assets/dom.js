// Elements, formats and files. Texts of runs reach the page as text nodes only.

// h makes an element: h("p", {class: "x", onclick: f}, "text", child). A null child is left out.
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "indeterminate") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

// s makes an element of an SVG.
export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) if (value != null) element.setAttribute(name, value);
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child != null && child !== false) element.append(child instanceof Node ? child : String(child));
  }
}

// fill replaces what an element holds. The focus stays at its place, so that a keyboard can use what is drawn anew.
export function fill(element, ...children) {
  const had = element.contains(document.activeElement) ? document.activeElement : element, path = [];
  for (let at = had; at !== element; at = at.parentElement) path.unshift([...at.parentElement.children].indexOf(at));
  element.replaceChildren();
  append(element, children);
  const has = path.reduce((e, i) => e?.children[i], element);
  if (has && has !== element && has.tagName === had.tagName && has.getAttribute("class") === had.getAttribute("class")) has.focus({ preventScroll: true });
  return element;
}

// num writes a number with n significant digits.
export function num(x, n = 4) {
  if (x == null || Number.isNaN(x)) return "–";
  if (x === 0 || !Number.isFinite(x)) return String(x);
  const size = Math.floor(Math.log10(Math.abs(x)));
  if (size < -4 || size >= 7) return x.toExponential(n - 1).replace("-", "−").replace("e−", "e-").replace("e+", "e");
  return x.toLocaleString("en", { minimumFractionDigits: Math.max(0, n - 1 - size), maximumFractionDigits: Math.max(0, n - 1 - size) })
    .replace("-", "−");
}

export function signed(x, n = 3) {
  return x == null ? "–" : (x > 0 ? "+" : "") + num(x, n);
}

export function count(n) {
  return n == null ? "–" : n.toLocaleString("en");
}

export function percent(x) {
  return x == null ? "–" : (100 * x).toFixed(x > 0 && x < 0.1 ? 1 : 0) + "%";
}

export function duration(seconds) {
  if (seconds == null || !(seconds >= 0)) return "–";
  if (seconds < 60) return num(seconds, 2) + " s";
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return minutes + " min";
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return hours + " h " + String(minutes % 60).padStart(2, "0");
  return Math.round(hours / 24) + " days";
}

export function ago(time) {
  if (!time) return "–";
  const past = Date.now() / 1000 - time;
  return past < 5 ? "now" : duration(past) + " ago";
}

export function moment(time) {
  if (!time) return "–";
  const d = new Date(time * 1000);
  const two = (n) => String(n).padStart(2, "0");
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}`;
}

// short is the end of a key, or of one with its value, by which a reader knows it.
export const short = (key) => key.replace(/^[^=]*?([^.=]*\.[^.=]*)(?==|$)/, "$1");

// save hands a file to the reader.
export function save(name, type, content) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// csv writes rows of cells; a cell that a spreadsheet would take for a formula is quoted.
export function csv(rows) {
  const cell = (x) => {
    let text = x == null ? "" : String(x);
    if (typeof x === "string" && /^[=+\-@\t]/.test(text)) text = "'" + text;
    return /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

export function csvButton(name, rows) {
  return h("button", { class: "small", onclick: () => save(name + ".csv", "text/csv", csv(rows())) }, "CSV");
}

// table makes a table in a box that scrolls; a column whose name begins with ">" holds numbers.
export function table(header, rows, attributes = {}) {
  const names = header.map((name) => name.replace(/^>/, ""));
  const right = header.map((name) => name.startsWith(">"));
  return h("div", { class: "box" }, h("table", attributes,
    h("thead", {}, h("tr", {}, names.map((name, i) => h("th", { class: right[i] && "number", scope: "col" }, name)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, i) =>
      cell instanceof HTMLTableCellElement ? cell : h("td", { class: right[i] && "number" }, cell)))))));
}

export function badge(state) {
  return h("span", { class: "state " + state.replace(/[^a-z]/g, "") }, state);
}

export function bar(share, label) {
  const inner = h("i");
  inner.style.width = 100 * Math.min(Math.max(share || 0, 0), 1) + "%";
  return h("span", { class: "bar", role: "img", "aria-label": label || percent(share), title: label || percent(share) }, inner);
}

export function section(title, id, ...children) {
  return h("section", { id, "aria-label": title }, h("h2", {}, title), children);
}
