// Left: the module tree and what a search finds. Right: all that is known of what is selected.
"use strict";

function line(kind, content, title) {
  const element = html("span", { class: kind });
  if (kind === "mono" || kind === "key") element.append(...dotted(content)); else element.textContent = content;
  if (title) element.title = title;
  return element;
}

/** A path, which a line may break after its dots. */
function dotted(path) {
  return String(path).split(/(?<=\.)/).flatMap((part) => [part, html("wbr")]).slice(0, -1);
}

/** The module tree of a program; rows are made when they are opened. */
class Tree {
  constructor(host, program, on) {
    Object.assign(this, { host, program, on, rows: new Map() });
    host.setAttribute("role", "tree");
    const root = program.graphs[0];
    host.append(...this.children(root, 0, "", 0));
    const functions = program.graphs.slice(1);
    if (functions.length) {
      host.append(line("heading", `functions (${functions.length})`));
      for (const graph of functions) host.append(this.row(graph, 0, program.firstInstance(graph), 0));
    }
  }

  children(graph, group, prefix, depth) {
    return graph.members(group).map((member) => member.group === undefined
      ? this.leaf(graph, member.node, prefix, depth) : this.row(graph, member.group, prefix, depth));
  }

  row(graph, group, prefix, depth) {
    const key = `${prefix}g${group}`, times = graph.repeats(group);
    const inside = html("div", { class: "inside", role: "group" });
    const fold = html("button", { class: "twist", "aria-label": "open or close", tabindex: "-1" }, "▸");
    const label = line("name", group === 0 ? graph.title : graph.groupLabel(group), graph.groupPath(group));
    const row = html("div", { class: "row", role: "treeitem", "aria-expanded": "false", tabindex: "-1" }, fold, label);
    row.style.paddingLeft = `${depth * 14 + 4}px`;
    if (times) row.append(line("times", `× ${times}`));
    row.append(line("dim", graph.groupType(group)), line("count", String(graph.groups.count[group])));
    const toggle = (open) => {
      if (open && !inside.childNodes.length) inside.append(...this.children(graph, group, prefix, depth + 1));
      inside.hidden = !open;
      fold.textContent = open ? "▾" : "▸";
      row.setAttribute("aria-expanded", String(open));
    };
    toggle(false);
    fold.addEventListener("click", (event) => { event.stopPropagation(); toggle(inside.hidden); });
    row.addEventListener("dblclick", () => toggle(inside.hidden));
    row.addEventListener("click", () => this.on.go(group === 0 ? `${prefix}g0` : key));
    this.rows.set(key, { row, toggle });
    return html("div", {}, row, inside);
  }

  leaf(graph, node, prefix, depth) {
    const key = `${prefix}n${node}`;
    const row = html("div", { class: "row leaf", role: "treeitem", tabindex: "-1", onclick: () => this.on.go(key) },
      line("name", shortOperator(graph.operator(node))), line("dim", `%${graph.name(node)}`));
    row.style.paddingLeft = `${depth * 14 + 22}px`;
    this.rows.set(key, { row, toggle: () => {} });
    return row;
  }

  /** Mark the row of a box, with all around it open. */
  select(key) {
    this.host.querySelector(".row.selected")?.classList.remove("selected");
    if (!key || !/[ng]\d+$/.test(key)) return;
    const { prefix, kind, number } = splitKey(key), graph = this.program.graphAt(prefix);
    const home = graph.number === 0 ? "" : this.program.firstInstance(graph);
    const around = kind === "n" ? graph.around(number) : graph.chain(number).slice(0, -1);
    if (graph.number !== 0) this.rows.get(`${home}g0`)?.toggle(true);
    for (const g of around) this.rows.get(`${home}g${g}`)?.toggle(true);
    const found = this.rows.get(`${home}${kind}${number}`);
    found?.row.classList.add("selected");
    found?.row.scrollIntoView({ block: "nearest" });
  }
}

/** A table of facts, each a name and what stands beside it. */
class Facts {
  constructor() { this.element = html("dl"); }
  add(name, ...content) {
    const list = content.filter((each) => (typeof each === "string" ? each : each?.textContent));
    if (list.length) this.element.append(html("div", {}, html("dt", {}, name), html("dd", {}, ...list)));
    return this;
  }
}

/** All that is known of one node, group, value, or of the program. */
class Panel {
  constructor(host, on) { Object.assign(this, { host, on }); }

  show(pane, key, overlays) {
    this.host.replaceChildren(...this.content(pane, key, overlays));
    this.host.scrollTop = 0;
  }

  content(pane, key, overlays) {
    if (!key) return this.ofProgram(pane.program);
    if (/ (in|out) /.test(key)) return this.ofPort(pane, key);
    const { prefix, kind, number } = splitKey(key), graph = pane.program.graphAt(prefix);
    return kind === "n" ? this.ofNode(pane, prefix, graph, number, overlays) : this.ofGroup(pane, prefix, graph, number, overlays);
  }

  link(pane, key, label, title) {
    const button = html("button", { class: "link", onclick: () => this.on.go(key, pane) });
    button.textContent = label;
    if (title) button.title = title;
    return button;
  }

  /** A value as a link to the node that makes it, with its type. */
  value(pane, prefix, graph, value) {
    const type = line("type", graph.valueType(value)), maker = graph.maker[value];
    const key = graph.keys.get(value);
    if (key) {
      const held = graph.text(key.held);
      return html("div", {}, line("key", graph.text(key.key), `%${graph.valueName(value)}`), type, ...(held ? [line("dim", ` = ${held}`)] : []));
    }
    const name = `%${graph.valueName(value)}`;
    if (maker < 0) return html("div", {}, line("mono", name), type, line("dim", " input"));
    return html("div", {}, this.link(pane, `${prefix}n${maker}`, name, graph.operator(maker)), type);
  }

  ofNode(pane, prefix, graph, n, overlays) {
    const facts = new Facts(), place = graph.location(n), taken = graph.taken(n);
    facts.add("node", line("mono", `%${graph.name(n)}`)).add("operator", line("mono", graph.operator(n)));
    facts.add("results", ...graph.made(n).map((value) => html("div", {}, line("mono", `%${graph.valueName(value)}`), line("type", graph.valueType(value)),
      ...(graph.outputSet.has(value) ? [line("dim", " output")] : []))));
    for (const [name, slots] of graph.document.patterns[graph.nodes.pattern[n]]) {
      const list = Array.isArray(slots) ? slots : [slots];
      const shown = list.map((slot) => slot === null || slot === undefined || taken[slot] === undefined ? line("dim", "none") : this.value(pane, prefix, graph, taken[slot]));
      if (shown.length) facts.add(name || "inputs", ...shown);
    }
    for (const [name, at] of graph.document.attributes[graph.nodes.attributes[n]]) facts.add(name, line("mono", graph.text(at)));
    for (const [slot, [name, target]] of (graph.calls.get(n) ?? []).entries()) {
      facts.add("calls", this.link(pane, `${prefix}${n}.${slot}/g0`, `&${name}`), ` ${plural(pane.program.graphs[target].size, "node")}`);
    }
    facts.add("used by", ...this.users(pane, prefix, graph, n));
    this.measured(facts, overlays, (overlay) => overlay.node(graph, n));
    if (place) this.place(facts, pane, prefix, graph, n, place);
    return [heading(shortOperator(graph.operator(n)), "node"), facts.element];
  }

  users(pane, prefix, graph, n) {
    const users = [...new Set(graph.made(n).flatMap((value) => graph.users(value)))];
    const links = users.slice(0, 40).map((user) => html("div", {}, this.link(pane, `${prefix}n${user}`, `%${graph.name(user)}`), line("dim", shortOperator(graph.operator(user)))));
    if (users.length > 40) links.push(line("dim", `${users.length - 40} more`));
    return links;
  }

  place(facts, pane, prefix, graph, n, { file, line: at, code, module, type }) {
    const group = graph.nodes.group[n];
    if (module) facts.add("module", group > 0 ? this.link(pane, `${prefix}g${group}`, module) : line("mono", module), line("dim", type.split(".").pop(), type));
    if (file) facts.add("source", line("mono", `${file}:${at}`));
    if (code) {
      const block = html("pre");
      block.textContent = code;
      facts.add("code", block);
    }
  }

  measured(facts, overlays, of) {
    for (const overlay of overlays) {
      const value = of(overlay);
      if (value !== undefined && !(overlay.combine === "kind" && overlay.name === "operator")) facts.add(overlay.name, overlay.text(value));
    }
  }

  ofGroup(pane, prefix, graph, g, overlays) {
    const nodes = graph.nodesOf(g), inside = new Set(nodes), operators = new Map(), weights = new Map();
    for (const n of nodes) {
      operators.set(graph.operator(n), (operators.get(graph.operator(n)) ?? 0) + 1);
      for (const value of graph.taken(n)) if (graph.isWeight(value)) weights.set(value, true);
    }
    const facts = new Facts(), level = levelOf(graph, g), times = graph.repeats(g);
    facts.add("module", line("mono", graph.groupPath(g) || "(root)"));
    facts.add("type", line("mono", graph.text(graph.groups.type[g])));
    facts.add("nodes", `${inside.size}${times ? ` in ${times} equal parts` : ""}`);
    facts.add("takes", ...[...level.ins.keys()].slice(0, 30).map((value) => this.value(pane, prefix, graph, value)));
    facts.add("gives", ...[...level.outs.keys()].slice(0, 30).map((value) => this.value(pane, prefix, graph, value)));
    facts.add("operators", ...[...operators].sort((a, b) => b[1] - a[1]).map(([name, count]) => html("div", {}, line("mono", shortOperator(name)), line("dim", `× ${count}`))));
    facts.add(`weights (${weights.size})`, ...[...weights.keys()].slice(0, 60).map((value) => this.value(pane, prefix, graph, value)));
    this.measured(facts, overlays, (overlay) => overlay.group(graph, g));
    return [heading(g === 0 ? graph.title || pane.program.name : graph.groupLabel(g), times ? "repeat" : "module"), facts.element];
  }

  ofPort(pane, key) {
    const [at, side] = key.split(" "), { prefix } = splitKey(at), graph = pane.program.graphAt(prefix);
    const values = pane.boxes.get(key).box.values;
    const facts = new Facts();
    facts.add(side === "in" ? "comes in" : "goes out", ...values.slice(0, 100).map((value) => this.value(pane, prefix, graph, value)));
    const users = [...new Set(values.flatMap((value) => graph.users(value)))];
    facts.add("used by", ...users.slice(0, 40).map((n) => html("div", {}, this.link(pane, `${prefix}n${n}`, `%${graph.name(n)}`), line("dim", shortOperator(graph.operator(n))))));
    return [heading(side === "in" ? "input" : "output", "value"), facts.element];
  }

  ofProgram(program) {
    const facts = new Facts(), graph = program.graphs[0];
    for (const [name, text] of program.facts) facts.add(name, text);
    facts.add("inputs", ...graph.inputs.slice(0, 40).map((value) => html("div", {}, line("mono", `%${graph.valueName(value)}`), line("type", graph.valueType(value)))));
    facts.add("outputs", ...graph.outputs.slice(0, 40).map((value) => html("div", {}, line("mono", `%${graph.valueName(value)}`), line("type", graph.valueType(value)))));
    facts.add("writes", ...graph.writes.slice(0, 40).map(([target, value]) => html("div", {}, line("mono", `%${graph.valueName(target)}`), " ← ", line("mono", `%${graph.valueName(value)}`))));
    return [heading(program.name || "program", "program"), facts.element, html("p", { class: "dim" }, "Double-click or + opens a box. / searches, ? shows the keys.")];
  }
}

function plural(count, name) { return `${count} ${name}${count === 1 ? "" : "s"}`; }

function heading(title, kind) {
  return html("h2", {}, line("", title), line("dim", kind));
}
