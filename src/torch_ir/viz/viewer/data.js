// The document: decoded, with the indexes that everything else asks.
"use strict";

const KIND_MODULE = 0, KIND_REPEAT = 1, KIND_PART = 2;

/** Decode base64 of deflated JSON. */
async function decodeDocument(text) {
  const raw = atob(text.trim());
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

/** Offsets of consecutive runs of the given lengths. */
function offsetsOf(lengths) {
  const offsets = new Int32Array(lengths.length + 1);
  for (let i = 0; i < lengths.length; i++) offsets[i + 1] = offsets[i] + lengths[i];
  return offsets;
}

/** One graph: the program's own, or the body of a function. */
class Graph {
  constructor(document, record, number, program) {
    this.document = document;
    this.program = program;
    this.number = number;
    this.path = record.path;
    this.title = record.path.replace(/\/$/, "").split("/").pop();
    this.inputs = record.inputs;
    this.outputs = record.outputs;
    this.writes = record.writes;
    this.values = record.values;
    this.nodes = record.nodes;
    this.groups = record.groups;
    this.size = record.nodes.name.length;
    this.keys = new Map(record.keys.map(([value, key, held]) => [value, { key, held }]));
    this.calls = new Map(record.calls);
    this.takesAt = offsetsOf(record.nodes.takes);
    this.maker = new Int32Array(record.values.name.length).fill(-1);
    for (let n = 0; n < this.size; n++) {
      for (let k = 0; k < this.nodes.makes[n]; k++) this.maker[this.nodes.first[n] + k] = n;
    }
    this.outputSet = new Set([...this.outputs, ...this.writes.map((each) => each[1])]);
    this.userRows = null;
    this.memberRows = null;
    this.callers = []; // [graph, node, slot]
  }

  text(index) { return index < 0 ? "" : this.document.texts[index]; }
  name(node) { return this.text(this.nodes.name[node]); }
  operator(node) { return this.text(this.nodes.op[node]); }
  valueName(value) { return this.text(this.values.name[value]); }
  valueType(value) { return this.text(this.values.type[value]); }
  isWeight(value) { return this.keys.has(value); }
  taken(node) { return this.nodes.uses.slice(this.takesAt[node], this.takesAt[node + 1]); }
  made(node) {
    return Array.from({ length: this.nodes.makes[node] }, (_, k) => this.nodes.first[node] + k);
  }

  /** Where a node came from: line, file, code, module, module type; null if unknown. */
  location(node) {
    const index = this.nodes.location[node];
    if (index < 0) return null;
    const [line, file, code, module, type] = this.document.locations[index];
    return { line, file: this.text(file), code: this.text(code), module: this.text(module), type: this.text(type) };
  }
  module(node) {
    const index = this.nodes.location[node];
    return index < 0 ? "" : this.text(this.document.locations[index][3]);
  }

  /** The nodes that take a value, in program order. */
  users(value) {
    if (!this.userRows) {
      this.userRows = this.values.name.map(() => []);
      for (let n = 0; n < this.size; n++) {
        for (let k = this.takesAt[n]; k < this.takesAt[n + 1]; k++) {
          const row = this.userRows[this.nodes.uses[k]];
          if (row[row.length - 1] !== n) row.push(n);
        }
      }
    }
    return this.userRows[value];
  }

  groupCount() { return this.groups.parent.length; }
  groupLabel(group) {
    const label = this.text(this.groups.label[group]);
    if (this.groups.kind[group] !== KIND_PART) return label;
    const members = this.members(group);
    return `${this.edgeLabel(members[0])} … ${this.edgeLabel(members[members.length - 1], true)}`;
  }
  /** What stands for a member at the end of a part. */
  edgeLabel(member, last = false) {
    if (member.group === undefined) return this.name(member.node);
    if (this.groups.kind[member.group] !== KIND_PART) return this.text(this.groups.label[member.group]);
    const members = this.members(member.group);
    return this.edgeLabel(members[last ? members.length - 1 : 0], last);
  }
  groupPath(group) { return this.text(this.groups.path[group]); }
  groupType(group) { return this.text(this.groups.type[group]).split(".").pop(); }
  repeats(group) {
    if (this.groups.kind[group] !== KIND_REPEAT) return 0;
    const inside = (g) => this.members(g).reduce(
      (sum, m) => sum + (m.group !== undefined && this.groups.kind[m.group] === KIND_PART ? inside(m.group) : 1), 0);
    return inside(group);
  }

  /** Members of a group in program order: {node} or {group}. */
  members(group) {
    if (!this.memberRows) {
      const rows = this.groups.parent.map(() => []);
      const seen = new Uint8Array(this.groupCount());
      seen[0] = 1;
      const show = (g) => {
        if (seen[g]) return;
        seen[g] = 1;
        show(this.groups.parent[g]);
        rows[this.groups.parent[g]].push({ group: g });
      };
      for (let n = 0; n < this.size; n++) {
        const g = this.nodes.group[n];
        show(g);
        rows[g].push({ node: n });
      }
      this.memberRows = rows;
    }
    return this.memberRows[group];
  }

  nodesOf(group) {
    const found = [], stack = [group];
    while (stack.length) {
      for (const member of this.members(stack.pop())) {
        if (member.group === undefined) found.push(member.node); else stack.push(member.group);
      }
    }
    return found.sort((a, b) => a - b);
  }

  /** Groups around a node, from the outside in, without the root. */
  around(node) { return this.chain(this.nodes.group[node]); }
  chain(group) {
    const chain = [];
    for (let g = group; g > 0; g = this.groups.parent[g]) chain.unshift(g);
    return chain;
  }
}

/** One program with its graphs; graph 0 is its own. */
class Program {
  constructor(document, record, number) {
    this.number = number;
    this.name = record.name;
    this.facts = record.facts;
    this.graphs = record.graphs.map((each, at) => new Graph(document, each, at, this));
    for (const graph of this.graphs) {
      for (const [node, called] of graph.calls) {
        called.forEach(([, target], slot) => this.graphs[target].callers.push([graph, node, slot]));
      }
    }
    this.size = this.graphs.reduce((sum, graph) => sum + graph.size, 0);
  }

  /** Where a graph is first shown: "", "12.0/" of the node and slot calling it, "~3/" if none does. */
  firstInstance(graph) {
    if (graph.number === 0) return "";
    if (!graph.callers.length) return `~${graph.number}/`;
    const [caller, node, slot] = graph.callers[0];
    return `${this.firstInstance(caller)}${node}.${slot}/`;
  }

  /** The graph that an instance prefix such as "12.0/3.1/" leads to. */
  graphAt(prefix) {
    let graph = this.graphs[0];
    for (const step of prefix.split("/").filter(Boolean)) graph = this.after(graph, step);
    return graph;
  }

  /** The graph that one step of a prefix leads to. */
  after(graph, step) {
    if (step[0] === "~") return this.graphs[Number(step.slice(1))];
    const [node, slot] = step.split(".").map(Number);
    return this.graphs[graph.calls.get(node)[slot][1]];
  }
}

/** Read keys: prefix, then n(ode) or g(roup) and its number. */
function splitKey(key) {
  const cut = key.lastIndexOf("/") + 1;
  return { prefix: key.slice(0, cut), kind: key[cut], number: Number(key.slice(cut + 1)) };
}

/** An operator without what most have, and without the library where that leaves no place for the name. */
function shortOperator(operator) {
  const short = operator.replace(/^aten\./, "").replace(/^higher_order\./, "").replace(/\.default$/, "");
  return short.length > 28 ? short.replace(/^\w+\.(?=.)/, "…") : short;
}
