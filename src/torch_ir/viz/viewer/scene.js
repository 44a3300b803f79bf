// What is open, and where everything then stands.
"use strict";

const HEADER = 28, PADDING = 14, PORTS = 4, ROW = 640, LABEL = 34;

function shortened(text, limit = LABEL) {
  return text.length <= limit ? text : `${text.slice(0, limit - 1)}…`;
}

const FONTS = { title: "600 12px", note: "11px", detail: "10.5px", port: "500 10.5px" };
const widths = new Map();
let pen = null;

/** How wide a text is in one of the fonts of the drawing. */
function widthOf(content, font) {
  const key = `${font} ${content}`;
  if (!widths.has(key)) {
    if (!pen) {
      const style = getComputedStyle(document.documentElement);
      pen = document.createElement("canvas").getContext("2d");
      pen.families = { sans: style.getPropertyValue("--sans"), mono: style.getPropertyValue("--mono") };
    }
    pen.font = `${FONTS[font]} ${font === "detail" || font === "port" ? pen.families.mono : pen.families.sans}`;
    widths.set(key, pen.measureText(content).width);
  }
  return widths.get(key);
}

/** One level of a graph: the members of a group, the values that flow between them, in and out. */
function levelOf(graph, group) {
  graph.levels ??= new Map();
  if (graph.levels.has(group)) return graph.levels.get(group);
  const members = graph.members(group), home = new Map();
  members.forEach((member, at) => {
    if (member.group === undefined) home.set(member.node, at);
    else for (const n of graph.nodesOf(member.group)) home.set(n, at);
  });
  const flows = new Map(), ins = new Map(), outs = new Map();
  const flow = (map, from, to, value) => {
    const key = `${from} ${to}`;
    if (!map.has(key)) map.set(key, { from, to, values: new Set() });
    map.get(key).values.add(value);
  };
  for (const [n, at] of home) {
    for (const value of graph.taken(n)) {
      if (graph.isWeight(value)) continue;
      const source = graph.maker[value] >= 0 ? home.get(graph.maker[value]) : undefined;
      if (source === undefined) (ins.get(value) ?? ins.set(value, new Set()).get(value)).add(at);
      else if (source !== at) flow(flows, source, at, value);
    }
    for (const value of graph.made(n)) {
      const leaves = graph.outputSet.has(value) || (group > 0 && graph.users(value).some((user) => !home.has(user)));
      if (leaves) outs.set(value, at);
    }
  }
  if (group === 0) {
    for (const value of graph.inputs) if (!ins.has(value)) ins.set(value, new Set());
    for (const value of graph.outputs) if (graph.maker[value] < 0 && !graph.isWeight(value)) outs.set(value, -1);
  }
  const level = { members, flows: [...flows.values()], ins, outs };
  graph.levels.set(group, level);
  return level;
}

/** The open boxes of one program, and their places. */
class Scene {
  constructor(program) {
    this.program = program;
    this.open = new Set();
    this.cache = new Map();
    this.loose = new Set(); // functions that nothing calls, once something in them is looked at
  }

  root() {
    const main = this.container("", this.program.graphs[0], 0);
    if (!this.loose.size) return main;
    let x = 0;
    const boxes = [main, ...[...this.loose].map((n) => this.container(`~${n}/`, this.program.graphs[n], 0))];
    const children = boxes.map((box) => { const child = { box, x, y: 0 }; x += box.w + 3 * PADDING; return child; });
    return { ...main, key: "all", bare: true, children, lines: [], ports: new Map(), w: x, h: Math.max(...boxes.map((box) => box.h)), element: undefined };
  }

  isOpen(key) { return this.open.has(key); }

  /** Open or close; what is around has to be laid out anew. */
  set(key, open) {
    if (open === this.open.has(key)) return false;
    if (open) this.open.add(key); else this.open.delete(key);
    this.forget(key);
    return true;
  }

  forget(key) {
    this.cache.delete(key);
    for (const outer of this.enclosing(key)) this.cache.delete(outer);
    this.cache.delete("g0");
  }

  /** The keys of all boxes around a box, from the outside in. */
  enclosing(key) {
    const { prefix, kind, number } = splitKey(key), keys = [];
    let before = "", graph = this.program.graphs[0];
    const chain = (g) => { for (const each of g) keys.push(`${before}g${each}`); };
    for (const step of prefix.split("/").filter(Boolean)) {
      const node = step[0] === "~" ? -1 : Number(step.split(".")[0]);
      if (node >= 0) {
        chain(graph.around(node));
        keys.push(`${before}n${node}`);
      }
      keys.push(`${before}${step}/g0`);
      graph = this.program.after(graph, step);
      before += `${step}/`;
    }
    chain(kind === "n" ? graph.around(number) : graph.chain(number).slice(0, -1));
    return keys;
  }

  /** Open all that is around a box, so that it can be seen. */
  reveal(key) {
    const loose = /^~(\d+)\//.exec(key);
    let changed = Boolean(loose) && !this.loose.has(Number(loose[1]));
    if (loose) this.loose.add(Number(loose[1]));
    for (const outer of this.enclosing(key)) {
      if (!outer.endsWith("/g0")) changed = this.set(outer, true) || changed;
    }
    return changed;
  }

  member(prefix, graph, member) {
    if (member.group !== undefined) {
      const key = `${prefix}g${member.group}`;
      return this.open.has(key) ? this.container(prefix, graph, member.group) : this.closed(prefix, graph, member.group);
    }
    const key = `${prefix}n${member.node}`;
    return this.open.has(key) && graph.calls.has(member.node)
      ? this.called(prefix, graph, member.node) : this.node(prefix, graph, member.node);
  }

  kept(key, make) {
    if (!this.cache.has(key)) this.cache.set(key, make());
    return this.cache.get(key);
  }

  node(prefix, graph, n) {
    return this.kept(`${prefix}n${n}`, () => {
      const title = shortened(shortOperator(graph.operator(n)));
      const inside = graph.groupPath(graph.nodes.group[n]), path = graph.module(n);
      const module = path.startsWith(inside) && path !== inside ? path.slice(inside.length).replace(/^\./, "") : "";
      const types = graph.made(n).map((value) => graph.valueType(value));
      const detail = shortened(types.length > 1 ? `${types[0]} + ${types.length - 1}` : types[0] ?? "no result", 40);
      const calls = graph.calls.get(n);
      const note = shortened(module, 26);
      const left = calls ? 24 : 12;
      const w = left + 12 + Math.max(50, widthOf(title, "title") + (note ? widthOf(note, "note") + 8 : 0), widthOf(detail, "detail"));
      return { key: `${prefix}n${n}`, kind: "node", graph, number: n, title, note, detail, calls: Boolean(calls), w: Math.round(w), h: 42 };
    });
  }

  closed(prefix, graph, g) {
    return this.kept(`${prefix}g${g}`, () => {
      const times = graph.repeats(g), count = graph.groups.count[g];
      const title = shortened(graph.groupLabel(g)), note = times ? `× ${times}` : "";
      const detail = shortened([graph.groupType(g), `${count} node${count === 1 ? "" : "s"}`].filter(Boolean).join(" · "), 44);
      const w = 38 + Math.max(70, widthOf(title, "title") + (note ? widthOf(note, "title") + 8 : 0), widthOf(detail, "detail"));
      return { key: `${prefix}g${g}`, kind: "group", graph, number: g, title, note, detail, times, w: Math.round(w), h: 48 };
    });
  }

  /** An open call of functions: their bodies side by side. */
  called(prefix, graph, n) {
    const key = `${prefix}n${n}`;
    return this.kept(key, () => {
      const bodies = graph.calls.get(n).map(([name, target], slot) => {
        const body = this.container(`${prefix}${n}.${slot}/`, this.program.graphs[target], 0);
        return { ...body, title: name, calledBy: key };
      });
      let x = PADDING, h = 0;
      const children = bodies.map((box) => {
        const child = { box, x, y: HEADER + 4 };
        x += box.w + PADDING;
        h = Math.max(h, box.h);
        return child;
      });
      const title = shortOperator(graph.operator(n));
      return { key, kind: "node", open: true, graph, number: n, title, note: graph.name(n), w: Math.max(x, 60 + widthOf(title, "title") + widthOf(graph.name(n), "note")), h: h + HEADER + 4 + PADDING, children, lines: [], ports: new Map() };
    });
  }

  /** An open group with everything in it. */
  container(prefix, graph, g) {
    const key = `${prefix}g${g}`;
    return this.kept(key, () => {
      const level = levelOf(graph, g);
      const ins = ports(graph, [...level.ins.keys()], "in", key), outs = ports(graph, [...level.outs.keys()], "out", key);
      const boxes = level.members.map((member) => this.member(prefix, graph, member));
      const all = [...ins, ...boxes, ...outs], first = ins.length, last = first + boxes.length;
      const items = all.map((box) => ({ w: box.w, h: box.h, pin: box.kind === "in" ? "first" : box.kind === "out" ? "last" : undefined }));
      const flows = level.flows.map(({ from, to, values }) => ({ from: from + first, to: to + first, values: [...values] }));
      ins.forEach((port, at) => {
        const targets = new Map();
        for (const value of port.values) for (const to of level.ins.get(value)) (targets.get(to) ?? targets.set(to, []).get(to)).push(value);
        for (const [to, values] of targets) flows.push({ from: at, to: to + first, values });
      });
      outs.forEach((port, at) => {
        const sources = new Map();
        for (const value of port.values) {
          const from = level.outs.get(value);
          const source = from >= 0 ? from + first : ins.findIndex((each) => each.values.includes(value));
          if (source >= 0) (sources.get(source) ?? sources.set(source, []).get(source)).push(value);
        }
        for (const [from, values] of sources) flows.push({ from, to: at + last, values });
      });
      const placed = layered(items, flows.map(({ from, to }) => [from, to]));
      return this.framed(prefix, graph, g, all, flows, placed);
    });
  }

  framed(prefix, graph, g, all, flows, placed) {
    const bare = g === 0 && !prefix;
    const left = PADDING, top = bare ? PADDING : HEADER + 8;
    const title = g === 0 ? graph.title : graph.groupLabel(g), type = graph.groupType(g);
    const w = Math.max(placed.w + 2 * PADDING, bare ? 0 : widthOf(title, "title") + widthOf(type, "note") + 90);
    const shift = left + (w - 2 * PADDING - placed.w) / 2;
    const children = all.map((box, i) => ({ box, x: placed.x[i] + shift, y: placed.y[i] + top }));
    const inward = new Map(), ports = new Map();
    children.forEach(({ box, x }) => {
      if (box.kind === "in") for (const value of box.values) ports.set(`in ${value}`, x + box.w / 2);
      if (box.kind === "out") for (const value of box.values) ports.set(`out ${value}`, x + box.w / 2);
    });
    const lines = flows.map((each, i) => {
      const lane = placed.lines[i].map(([px, py]) => [px + shift, py + top]);
      const from = children[each.from], to = children[each.to];
      const start = [from.x + anchor(from.box, "out", each.values), from.y + from.box.h];
      const line = { ...each, graph, prefix, points: [start, ...lane, [0, to.y]], lane };
      const own = to.box.ports?.get(`in ${each.values[0]}`);
      if (own !== undefined) line.points[line.points.length - 1][0] = to.x + own;
      else (inward.get(each.to) ?? inward.set(each.to, []).get(each.to)).push(line);
      return line;
    });
    for (const [at, list] of inward) {
      const { box, x } = children[at], step = Math.min(16, (box.w - 24) / Math.max(1, list.length - 1));
      list.sort((a, b) => a.points[a.points.length - 2][0] - b.points[b.points.length - 2][0]);
      list.forEach((line, k) => { line.points[line.points.length - 1][0] = x + box.w / 2 + (k - (list.length - 1) / 2) * step; });
    }
    return { key: `${prefix}g${g}`, kind: "group", open: true, bare, graph, number: g, title, note: type, times: graph.repeats(g), w: Math.round(w), h: Math.round(placed.h + top + PADDING), children, lines, ports };
  }
}

function anchor(box, side, values) {
  return box.ports?.get(`${side} ${values[0]}`) ?? box.w / 2;
}

/** A small box for a value that comes in or goes out. */
function port(graph, value, kind, key) {
  const title = shortened(graph.valueName(value), 26), detail = shortened(graph.valueType(value), 26);
  return { key: `${key} ${kind} ${value}`, kind, graph, values: [value], title, detail, w: Math.round(widthOf(title, "port") + widthOf(detail, "detail") + 28), h: 22 };
}

/** Boxes for values, in a row of bounded width; the last one stands for those that have none. */
function ports(graph, values, kind, key) {
  const boxes = [];
  let room = values.length > PORTS ? ROW : Infinity;
  for (const value of values) {
    const box = port(graph, value, kind, key);
    room -= box.w;
    if (boxes.length > 1 && room < 0) break;
    boxes.push(box);
  }
  const rest = values.slice(boxes.length);
  if (rest.length) boxes.push({ key: `${key} ${kind} more`, kind, graph, values: rest, title: `${rest.length} more`, detail: "", w: 90, h: 22 });
  return boxes;
}
