// Layered layout of one level: boxes in rows along the flow, long lines through lanes of their own.
"use strict";

const ROW_GAP = 34, COLUMN_GAP = 18, LANE = 8, SWEEPS = 10, PULLS = 32;

/**
 * Place boxes so that values flow down.
 * items: [{w, h, pin}] in program order; pin is "first", "last" or undefined.
 * edges: [[from, to]] without loops.
 * Returns {x, y (of the left upper corners), w, h, routes (points of each edge)}.
 */
function layered(items, edges) {
  const graph = { items, count: items.length };
  const ways = edges.map(([a, b]) => (flowsBack(items, a, b) ? [b, a] : [a, b]));
  const rows = rowsOf(items, ways);
  const lanes = withLanes(items, ways, rows);
  order(lanes);
  const centers = columns(lanes);
  return place(graph, lanes, centers, edges, ways);
}

function flowsBack(items, a, b) {
  const rank = (item, at) => (item.pin === "first" ? -1 : item.pin === "last" ? items.length : at);
  return rank(items[a], a) > rank(items[b], b);
}

/** The row of each box: the longest way to it; sources stand right above what they feed. */
function rowsOf(items, ways) {
  const count = items.length;
  const into = Array.from({ length: count }, () => []), out = Array.from({ length: count }, () => []);
  for (const [a, b] of ways) { into[b].push(a); out[a].push(b); }
  const left = into.map((list) => list.length), row = new Int32Array(count), queue = [];
  for (let i = 0; i < count; i++) if (!left[i]) queue.push(i);
  const first = items.some((item) => item.pin === "first") ? 1 : 0;
  for (let head = 0; head < queue.length; head++) {
    const i = queue[head];
    if (items[i].pin !== "first") row[i] = Math.max(row[i], first);
    for (const j of out[i]) {
      row[j] = Math.max(row[j], row[i] + 1);
      if (!--left[j]) queue.push(j);
    }
  }
  let last = 0;
  items.forEach((item, i) => { if (item.pin !== "last") last = Math.max(last, row[i]); });
  items.forEach((item, i) => { if (item.pin === "last") row[i] = last + 1; });
  for (const i of queue.slice().reverse()) {
    if (items[i].pin || !out[i].length || into[i].length > (out[i].length > 1 ? 0 : 1)) continue;
    const lowest = Math.min(...out[i].map((j) => row[j])) - 1;
    if (!into[i].length && lowest > row[i]) row[i] = lowest;
  }
  return row;
}

/** Boxes and the lanes of long lines, row by row; lines from one box share their lane. */
function withLanes(items, ways, row) {
  const vertices = items.map((item, i) => ({ w: item.w, h: item.h, row: row[i], up: [], down: [], box: i }));
  const lane = new Map();
  const routes = ways.map(([a, b]) => {
    const route = [a];
    let above = a;
    for (let r = row[a] + 1; r < row[b]; r++) {
      const key = `${a} ${r}`;
      if (!lane.has(key)) {
        lane.set(key, vertices.length);
        vertices.push({ w: LANE, h: 0, row: r, up: [above], down: [], box: -1 });
        vertices[above].down.push(lane.get(key));
      }
      above = lane.get(key);
      route.push(above);
    }
    vertices[above].down.push(b);
    vertices[b].up.push(above);
    route.push(b);
    return route;
  });
  const height = vertices.reduce((most, v) => Math.max(most, v.row), 0) + 1;
  const rows = Array.from({ length: height }, () => []);
  vertices.forEach((v, i) => rows[v.row].push(i));
  return { vertices, rows, routes };
}

/** Order the rows so that few lines cross. */
function order(lanes) {
  const { vertices, rows } = lanes;
  const position = new Float64Array(vertices.length);
  const number = () => rows.forEach((list) => list.forEach((v, at) => { position[v] = at; }));
  number();
  let best = rows.map((list) => list.slice()), fewest = crossings(lanes, position);
  for (let sweep = 0; sweep < SWEEPS && fewest; sweep++) {
    const down = sweep % 2 === 0;
    const list = down ? rows : rows.slice().reverse();
    for (const each of list) {
      const weight = new Map(each.map((v) => {
        const near = down ? vertices[v].up : vertices[v].down;
        const mean = near.length ? near.reduce((sum, n) => sum + position[n], 0) / near.length : position[v];
        return [v, mean];
      }));
      each.sort((a, b) => weight.get(a) - weight.get(b) || position[a] - position[b]);
      each.forEach((v, at) => { position[v] = at; });
    }
    const now = crossings(lanes, position);
    if (now < fewest) { fewest = now; best = rows.map((each) => each.slice()); }
  }
  best.forEach((list, at) => { rows[at] = list; });
}

function crossings({ vertices, rows }, position) {
  let total = 0;
  for (const list of rows) {
    const ends = [];
    for (const v of list) {
      for (const p of vertices[v].down.map((n) => position[n]).sort((a, b) => a - b)) ends.push(p);
    }
    if (ends.length < 2) continue;
    const size = Math.max(...ends) + 1, tree = new Int32Array(size + 1);
    for (let k = ends.length - 1; k >= 0; k--) {
      for (let i = ends[k]; i > 0; i -= i & -i) total += tree[i];
      for (let i = ends[k] + 1; i <= size; i += i & -i) tree[i]++;
    }
  }
  return total;
}

/** The centers of the vertices: near to what they are linked with, rows without overlap. */
function columns({ vertices, rows }) {
  const center = new Float64Array(vertices.length);
  const gap = (a, b) => (vertices[a].w + vertices[b].w) / 2 + (vertices[a].box < 0 && vertices[b].box < 0 ? 4 : COLUMN_GAP);
  for (const list of rows) {
    let x = 0;
    list.forEach((v, at) => { x += at ? gap(list[at - 1], v) : 0; center[v] = x; });
    for (const v of list) center[v] -= x / 2;
  }
  const alone = (a, b) => {
    const [u, v] = vertices[a].row < vertices[b].row ? [a, b] : [b, a];
    return vertices[u].down.length === 1 && vertices[v].up.length === 1;
  };
  for (let sweep = 0; sweep < PULLS; sweep++) {
    const both = sweep >= PULLS / 2;
    const list = sweep % 2 ? rows.slice().reverse() : rows;
    for (const each of list) {
      const wanted = [], weights = [];
      for (const v of each) {
        const { up, down, box } = vertices[v];
        let near = both ? [...up, ...down] : sweep % 2 ? down : up;
        if (!near.length) near = both ? [] : sweep % 2 ? up : down;
        let sum = 0, total = 0;
        for (const n of near) {
          const weight = box < 0 && vertices[n].box < 0 ? 16 : alone(v, n) ? 4 : 1;
          sum += weight * center[n];
          total += weight;
        }
        wanted.push(total ? sum / total : center[v]);
        weights.push(total || 0.1);
      }
      spread(each, wanted, weights, gap, center);
    }
  }
  for (const each of [...rows, ...rows]) { // chains and lanes hang straight where there is room
    const hangs = (v) => vertices[v].up.length === 1 && (alone(v, vertices[v].up[0]) || (vertices[v].box < 0 && vertices[vertices[v].up[0]].box < 0));
    spread(each, each.map((v) => center[hangs(v) ? vertices[v].up[0] : v]), each.map((v) => (hangs(v) ? 30 : 1)), gap, center);
  }
  return center;
}

/** Nearest to the wanted centers, in least squares, under the gaps (pool adjacent violators). */
function spread(list, wanted, weights, gap, center) {
  const offset = [0];
  for (let i = 1; i < list.length; i++) offset.push(offset[i - 1] + gap(list[i - 1], list[i]));
  const blocks = [];
  list.forEach((_, i) => {
    let block = { mean: wanted[i] - offset[i], weight: weights[i], from: i };
    while (blocks.length && blocks[blocks.length - 1].mean > block.mean) {
      const other = blocks.pop(), weight = other.weight + block.weight;
      block = { mean: (other.mean * other.weight + block.mean * block.weight) / weight, weight, from: other.from };
    }
    blocks.push(block);
  });
  blocks.forEach((block, at) => {
    const end = at + 1 < blocks.length ? blocks[at + 1].from : list.length;
    for (let i = block.from; i < end; i++) center[list[i]] = block.mean + offset[i];
  });
}

function place({ items }, { vertices, rows, routes }, center, edges, ways) {
  const tops = [], heights = [];
  let top = 0;
  for (const list of rows) {
    const height = list.reduce((most, v) => Math.max(most, vertices[v].h), 0);
    tops.push(top);
    heights.push(height);
    top += height + ROW_GAP + Math.min(40, list.length * 1.5);
  }
  const lefts = vertices.map((v, i) => center[i] - v.w / 2);
  const least = Math.min(0, ...lefts);
  const x = items.map((_, i) => Math.round(lefts[i] - least));
  const y = items.map((item, i) => Math.round(tops[vertices[i].row] + (heights[vertices[i].row] - item.h) / 2));
  const lines = routes.map((route, at) => {
    const points = route.slice(1, -1).flatMap((v) => {
      const lane = Math.round(center[v] - least), from = tops[vertices[v].row];
      return [[lane, from], [lane, from + heights[vertices[v].row]]];
    });
    return edges[at][0] === ways[at][0] ? points : points.reverse();
  });
  const w = Math.max(...vertices.map((v, i) => center[i] + v.w / 2 - least), 0);
  const h = Math.max(...items.map((item, i) => y[i] + item.h), 0);
  return { x, y, w, h, lines };
}
