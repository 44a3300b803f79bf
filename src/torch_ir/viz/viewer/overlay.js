// Colors by what is measured or known of nodes, and the legend that says what they mean.
"use strict";

const PALETTE = ["#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#edc948", "#e15759", "#9c755f", "#ff9da7", "#8a8f98"];

/** A value for each node of some program: numbers that add up or whose most counts, or kinds. */
class Overlay {
  constructor({ name, unit = "", combine = "sum", colors = {}, note = "" }, program, find) {
    Object.assign(this, { name, unit, combine, note, program, find });
    this.totals = new Map();
    this.partial = new Set(); // graphs in which the values of some nodes are not known
    this.colors = new Map(Object.entries(colors));
    if (combine === "kind") this.count();
  }

  /** How many nodes are of each kind, the most first; each gets a color. */
  count() {
    const counts = new Map();
    for (const graph of this.program.graphs) {
      for (let n = 0; n < graph.size; n++) {
        const kind = this.find(graph, n);
        if (kind !== undefined) counts.set(kind, (counts.get(kind) ?? 0) + 1);
      }
    }
    this.kinds = [...counts].sort((a, b) => b[1] - a[1]);
    this.kinds.forEach(([kind], at) => { if (!this.colors.has(kind)) this.colors.set(kind, PALETTE[Math.min(at, PALETTE.length - 1)]); });
  }

  /** The value of a node; of a call without one, that of what it calls. */
  node(graph, n) {
    const own = this.find(graph, n);
    if (own !== undefined || this.combine === "kind" || !graph.calls.has(n)) return own;
    return this.join(graph.calls.get(n).map(([, target]) => this.group(this.program.graphs[target], 0)));
  }

  join(values) {
    const known = values.filter((value) => value !== undefined);
    if (!known.length) return undefined;
    return this.combine === "max" ? Math.max(...known) : known.reduce((sum, value) => sum + value, 0);
  }

  /** The value of a group: the sum, the most, or how many of each kind. */
  group(graph, g) {
    if (!this.totals.has(graph)) this.totals.set(graph, this.total(graph));
    return this.totals.get(graph)[g];
  }

  total(graph) {
    const totals = new Array(graph.groupCount()).fill(undefined), { group } = graph.nodes, { parent } = graph.groups;
    const both = (a, b) => a === undefined || b === undefined ? a ?? b : this.combine === "max" ? Math.max(a, b) : a + b;
    for (let n = 0; n < graph.size; n++) {
      const value = this.combine === "kind" ? this.find(graph, n) : this.node(graph, n);
      if (value === undefined) this.partial.add(graph);
      else if (this.combine !== "kind") totals[group[n]] = both(totals[group[n]], value);
      else for (let g = group[n]; g >= 0; g = parent[g]) (totals[g] ??= new Map()).set(value, (totals[g].get(value) ?? 0) + 1);
    }
    if (this.combine !== "kind") { // a group has a greater number than the one around it
      for (let g = totals.length - 1; g > 0; g--) totals[parent[g]] = both(totals[parent[g]], totals[g]);
    }
    return totals;
  }

  of(box) {
    return box.kind === "group" ? this.group(box.graph, box.number) : box.kind === "node" ? this.node(box.graph, box.number) : undefined;
  }

  /** Color the closed boxes of a pane; numbers in relation to the most that is in sight. */
  paint(pane) {
    const faces = [...pane.boxes.values()].filter(({ box }) => !box.open && (box.kind === "group" || box.kind === "node"));
    const values = faces.map(({ box }) => this.of(box));
    this.unknown = values.includes(undefined);
    this.most = this.combine === "kind" ? 0 : values.reduce((most, value) => Math.max(most, value ?? 0), 0);
    faces.forEach(({ box }, at) => {
      const face = box.element.querySelector(":scope > .face");
      face.style.fill = this.color(values[at]);
      box.element.classList.toggle("unknown", values[at] === undefined);
      box.element.classList.toggle("colored", face.style.fill !== "");
    });
  }

  color(value) {
    if (value === undefined) return "";
    if (this.combine !== "kind") {
      const share = this.most > 0 ? Math.sqrt(Math.max(0, value) / this.most) : 0;
      return `color-mix(in srgb, var(--heat) ${Math.round(6 + share * 58)}%, var(--face))`;
    }
    if (this.colors.get(value) === "none") return "";
    if (!(value instanceof Map)) return `color-mix(in srgb, ${this.colors.get(value)} 45%, var(--face))`;
    const all = [...value.values()].reduce((a, b) => a + b, 0);
    const marked = [...value].filter(([kind]) => this.colors.get(kind) !== "none").sort((a, b) => b[1] - a[1])[0];
    if (!marked) return "";
    const least = this.colors.size > value.size && marked[1] < all ? 14 : 8;
    return `color-mix(in srgb, ${this.colors.get(marked[0])} ${Math.round(least + 37 * (marked[1] / all))}%, var(--face))`;
  }

  /** The value as text. */
  text(value) {
    if (value === undefined) return "";
    if (value instanceof Map) return [...value].sort((a, b) => b[1] - a[1]).map(([kind, count]) => `${kind} ${count}`).join(", ");
    return typeof value === "number" ? quantity(value, this.unit) : value;
  }

  legend(choose) {
    const legend = html("div", { class: "legend", "aria-label": "legend" });
    const title = html("b");
    title.textContent = this.name;
    legend.append(title);
    if (this.combine === "kind") {
      for (const [kind, count] of this.kinds.slice(0, 12)) {
        const chip = html("button", { class: "chip", onclick: () => choose(kind), title: "show these only" });
        const color = this.colors.get(kind);
        const swatch = html("i");
        swatch.style.background = color === "none" ? "var(--face)" : color;
        chip.append(swatch, `${kind} ${count}`);
        legend.append(chip);
      }
      if (this.kinds.length > 12) legend.append(`${this.kinds.length - 12} more`);
    } else {
      const total = this.group(this.program.graphs[0], 0);
      legend.append("0", html("i", { class: "ramp" }), quantity(this.most, this.unit));
      const least = this.combine === "sum" && this.partial.size ? "≥ " : "";
      if (total !== undefined) legend.append(html("span", { class: "dim" }, `${this.combine === "max" ? "most" : "all"}: ${least}${quantity(total, this.unit)}`));
    }
    if (this.unknown) legend.append(html("span", { class: "chip" }, html("i", { class: "none" }), "not known"));
    if (this.note) legend.append(html("span", { class: "dim" }, this.note));
    return legend;
  }
}

const LARGE = ["", " k", " M", " G", " T", " P"];

function quantity(value, unit) {
  if (unit === "s") {
    const [scale, name] = value >= 1 ? [1, "s"] : value >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
    return `${number(value * scale)} ${name}`;
  }
  if (unit === "B") {
    const step = value < 1 ? 0 : Math.min(4, Math.floor(Math.log2(value) / 10));
    return `${number(value / 1024 ** step)} ${["B", "KiB", "MiB", "GiB", "TiB"][step]}`;
  }
  if (unit && Math.abs(value) >= 1e4) {
    const step = Math.min(5, Math.floor(Math.log10(Math.abs(value)) / 3));
    return `${number(value / 1000 ** step)}${LARGE[step]}${unit}`;
  }
  return `${number(value)}${unit ? ` ${unit}` : ""}`;
}

function number(value) {
  return Number.isInteger(value) && Math.abs(value) < 1e6 ? String(value) : value.toPrecision(3).replace(/e\+?/, "e");
}

/** A function of texts by their numbers, each of which it sees once. */
function ofText(compute) {
  const known = [];
  return (graph, number) => known[number] ??= compute(graph.text(number));
}

/** What is known without measuring, and what came with the file. */
function overlaysOf(program, given, itemsizes) {
  const dtypeOf = ofText((type) => type.split("[")[0]), sizeOf = ofText((type) => bytesOf(type, itemsizes));
  const familyOf = ofText((operator) => shortOperator(operator).split(".")[0]);
  const dtype = (graph, n) => graph.nodes.makes[n] ? dtypeOf(graph, graph.values.type[graph.nodes.first[n]]) : undefined;
  const family = (graph, n) => familyOf(graph, graph.nodes.op[n]);
  const bytes = (graph, n) => {
    const { first, makes } = graph.nodes;
    let sum = 0;
    for (let value = first[n]; value < first[n] + makes[n]; value++) sum += sizeOf(graph, graph.values.type[value]);
    return sum;
  };
  const found = [
    new Overlay({ name: "dtype", combine: "kind" }, program, dtype),
    new Overlay({ name: "operator", combine: "kind" }, program, family),
    new Overlay({ name: "result size", unit: "B", combine: "sum", note: "of what nodes make, views included" }, program, (g, n) => { const b = bytes(g, n); return Number.isNaN(b) ? undefined : b; }),
  ];
  for (const each of given) {
    if ((each.program ?? 0) !== program.number) continue;
    const tables = program.graphs.map(() => new Map());
    for (const [graph, nodes, values] of each.values) nodes.forEach((n, at) => tables[graph].set(n, values[at]));
    found.push(new Overlay(each, program, (graph, n) => tables[graph.number].get(n)));
  }
  return found;
}

function bytesOf(type, itemsizes) {
  const [dtype, dims] = type.replace("]", "").split("[");
  return dims.split(",").filter((dim) => dim.trim()).reduce((size, dim) => size * Number(dim), itemsizes[dtype] ?? NaN);
}
