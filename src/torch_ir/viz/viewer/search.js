// Search over every node of a program and its functions.
"use strict";

const FIELDS = ["name", "op", "module", "dtype", "shape", "weight", "code"];

/** Read words as conditions: `op:linear`, `shape:8192`, `dtype:f32`, or text that any field has. */
function readQuery(query) {
  const words = query.toLowerCase().match(/[^\s"]*"[^"]*"|\S+/g) ?? [];
  return words.map((word) => {
    const cut = word.indexOf(":"), field = cut > 0 ? word.slice(0, cut) : "";
    const known = FIELDS.includes(field);
    return { field: known ? field : "", text: (known ? word.slice(cut + 1) : word).replaceAll('"', "") };
  }).filter((each) => each.text);
}

class Search {
  constructor(program, dtypes) {
    Object.assign(this, { program, dtypes, texts: new Map() });
  }

  /** What a condition on a field looks at. */
  field(graph, n, field) {
    const types = () => graph.made(n).map((value) => graph.valueType(value));
    switch (field) {
      case "name": return [graph.name(n), ...graph.made(n).map((value) => graph.valueName(value))].join(" ");
      case "op": return graph.operator(n);
      case "module": return graph.module(n);
      case "dtype": return types().map((type) => { const short = type.split("[")[0]; return `${short} ${this.dtypes[short] ?? ""}`; }).join(" ");
      case "shape": return types().map((type) => type.slice(type.indexOf("["))).join(" ");
      case "weight": return graph.taken(n).filter((value) => graph.isWeight(value)).map((value) => graph.text(graph.keys.get(value).key)).join(" ");
      default: return graph.location(n)?.code ?? "";
    }
  }

  /** All fields of a node in one text; made once. */
  all(graph, n) {
    if (!this.texts.has(graph)) this.texts.set(graph, new Array(graph.size));
    return this.texts.get(graph)[n] ??= FIELDS.slice(0, 6).map((field) => this.field(graph, n, field)).join("\n").toLowerCase();
  }

  matches(graph, n, conditions) {
    return conditions.every(({ field, text }) => (field ? this.field(graph, n, field).toLowerCase() : this.all(graph, n)).includes(text));
  }

  /** Every node that fulfils the query, exact names first: [{graph, node}]. */
  find(query) {
    const conditions = readQuery(query);
    if (!conditions.length) return [];
    const exact = query.trim().toLowerCase().replace(/^%/, ""), first = [], rest = [];
    if (conditions.length === 1 && !conditions[0].field) conditions[0].text = conditions[0].text.replace(/^%/, "");
    for (const graph of this.program.graphs) {
      for (let n = 0; n < graph.size; n++) {
        if (this.matches(graph, n, conditions)) (graph.name(n).toLowerCase() === exact ? first : rest).push({ graph, node: n });
      }
    }
    return [...first, ...rest];
  }
}

/** The list of what was found, more of it on demand. */
class Results {
  constructor(host, on) { Object.assign(this, { host, on, found: [], at: -1 }); }

  show(program, found, query) {
    this.program = program;
    this.found = found;
    this.at = -1;
    this.host.replaceChildren();
    this.host.hidden = !query;
    const count = html("div", { class: "heading", role: "status" }, `${found.length} node${found.length === 1 ? "" : "s"}`);
    this.host.append(count);
    this.more();
  }

  more() {
    this.host.querySelector(".more")?.remove();
    const from = this.host.querySelectorAll(".row").length;
    this.found.slice(from, from + 200).forEach(({ graph, node }, k) => {
      const row = html("div", { class: "row leaf", tabindex: "-1", onclick: () => this.go(from + k) },
        line("name", shortOperator(graph.operator(node))), line("dim", `%${graph.name(node)}`), line("dim right", graph.path + graph.module(node)));
      this.host.append(row);
    });
    const left = this.found.length - from - 200;
    if (left > 0) this.host.append(html("button", { class: "more link", onclick: () => this.more() }, `show more of ${left}`));
  }

  go(at) {
    if (!this.found.length) return;
    this.at = (at + this.found.length) % this.found.length;
    while (this.host.querySelectorAll(".row").length <= this.at) this.more();
    const rows = this.host.querySelectorAll(".row");
    this.host.querySelector(".selected")?.classList.remove("selected");
    rows[this.at].classList.add("selected");
    rows[this.at].scrollIntoView({ block: "nearest" });
    const { graph, node } = this.found[this.at], prefix = this.program.firstInstance(graph);
    this.on.go(`${prefix}n${node}`);
  }
}
