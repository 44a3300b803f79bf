// Tensors in row-major order, the safetensors files that hold them, and one loop each over memory,
// elements, sums and products.

import { writeFileSync } from "node:fs";

const LIMIT = 2 ** 27; // elements of one tensor

export function fail(text) {
  throw new Error(text);
}

export function need(condition, text) {
  if (!condition) fail(text);
}

/** How the elements of a type lie in a file, and how a number is rounded to it. */
export const TYPES = {
  float32: { code: "F32", size: 4, get: "readFloatLE", put: "writeFloatLE", round: Math.fround },
  int64: { code: "I64", size: 8, get: "readBigInt64LE", put: "writeBigInt64LE", round: whole },
  bool: {
    code: "BOOL",
    size: 1,
    get: "readUInt8",
    put: "writeUInt8",
    round: (x) => Number(x !== 0),
  },
};

function whole(number) {
  need(Math.abs(number) <= 2 ** 53, "an integer is beyond 2^53");
  return Math.trunc(number);
}

export function decoded(bytes, shape, dtype) {
  const { size, get } = TYPES[dtype];
  need(bytes.length === size * count(shape), "a tensor has another size");
  return typed(
    mapped(tensor(shape), (_, i) => Number(bytes[get](size * i))),
    dtype,
  );
}

export function typed(made, dtype) {
  need(Object.hasOwn(TYPES, dtype), `there is no ${dtype} here`);
  return { ...mapped(made, TYPES[dtype].round), dtype };
}

/** The tensors of a safetensors file by name; those of other types are left out. */
export function safetensors(data) {
  const length = Number(data.readBigUInt64LE(0));
  need(length + 8 <= data.length, "the header of a safetensors file is cut off");
  const header = JSON.parse(data.toString("utf8", 8, 8 + length));
  const body = data.subarray(8 + length);
  const found = new Map();
  for (const [name, record] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const {
      shape,
      data_offsets: [begin, end],
    } = record;
    need(0 <= begin && begin <= end && end <= body.length, `tensor ${name} is cut off`);
    const dtype = Object.keys(TYPES).find((key) => TYPES[key].code === record.dtype);
    if (dtype) found.set(name, decoded(body.subarray(begin, end), shape, dtype));
  }
  const same = JSON.parse(header.__metadata__?.["torch-ir-same"] ?? "{}");
  for (const [key, first] of Object.entries(same)) found.set(key, found.get(first));
  return found;
}

export function writeSafetensors(path, named) {
  const header = {};
  const parts = [];
  let at = 0;
  for (const [name, { shape, data, dtype }] of named) {
    const { code, size, put } = TYPES[dtype];
    const bytes = Buffer.alloc(size * data.length);
    data.forEach((x, i) => bytes[put](dtype === "int64" ? BigInt(x) : x, size * i));
    header[name] = { dtype: code, shape, data_offsets: [at, (at += bytes.length)] };
    parts.push(bytes);
  }
  const text = Buffer.from(JSON.stringify(header).padEnd(8), "utf8");
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length), 0);
  writeFileSync(path, Buffer.concat([length, text, ...parts]));
}

// -- tensors --------------------------------------------------------------------------------------

export function count(shape) {
  need(Array.isArray(shape) && shape.every((n) => Number.isInteger(n) && n >= 0), "no such shape");
  const total = shape.reduce((product, n) => product * n, 1);
  need(total <= LIMIT, `a tensor of ${total} elements`);
  return total;
}

export function tensor(shape, fill = 0) {
  return { shape: [...shape], data: new Float64Array(count(shape)).fill(fill) };
}

export function mapped(source, compute) {
  return { shape: source.shape, data: source.data.map(compute) };
}

export function reshaped(source, shape) {
  need(
    count(shape) === source.data.length,
    `no view of ${source.data.length} elements as ${shape}`,
  );
  return { shape: [...shape], data: source.data };
}

export function strides(shape) {
  const found = new Array(shape.length);
  for (let d = shape.length - 1, step = 1; d >= 0; step *= shape[d--]) found[d] = step;
  return found;
}

export function axis(dim, rank) {
  const found = dim < 0 ? dim + rank : dim;
  need(Number.isInteger(found) && found >= 0 && found < Math.max(rank, 1), `no dimension ${dim}`);
  return found;
}

/** Call a function with the number and the place of each element that strides reach in a tensor. */
function walk(memory, shape, steps, offset, visit) {
  const [total, index] = [count(shape), new Array(shape.length).fill(0)];
  need(total === 0 || steps.every((n) => n >= 0), "no such strides");
  const last = shape.reduce((sum, n, d) => sum + (n - 1) * steps[d], offset);
  need(total === 0 || (offset >= 0 && last < memory.data.length), "a view of missing elements");
  for (let i = 0, at = offset; i < total; i++) {
    visit(i, at);
    for (let d = shape.length - 1; d >= 0; index[d--] = 0) {
      at += steps[d];
      if (++index[d] < shape[d]) break;
      at -= steps[d] * shape[d];
    }
  }
}

export function strided(source, shape, steps, offset = 0) {
  const made = tensor(shape);
  walk(source, shape, steps, offset, (i, at) => (made.data[i] = source.data[at]));
  return made;
}

export function paste(source, target, offset) {
  const copy = (i, at) => (target.data[at] = source.data[i]);
  walk(target, source.shape, strides(target.shape), offset, copy);
}

export function permuted(x, order) {
  const dims = order.map((dim) => axis(dim, x.shape.length));
  need(new Set(dims).size === x.shape.length, "no such order of dimensions");
  const own = strides(x.shape);
  return strided(
    x,
    dims.map((d) => x.shape[d]),
    dims.map((d) => own[d]),
  );
}

/** Bring tensors to the shape in which they go together. */
export function broadcast(given) {
  const rank = Math.max(...given.map((x) => x.shape.length));
  const full = given.map((x) => [...new Array(rank - x.shape.length).fill(1), ...x.shape]);
  const shape = Array.from({ length: rank }, (_, d) => full.find((own) => own[d] !== 1)?.[d] ?? 1);
  return given.map((x, n) => {
    need(
      full[n].every((size, d) => size === 1 || size === shape[d]),
      "sizes do not go together",
    );
    const steps = strides(full[n]).map((step, d) => (full[n][d] === 1 ? 0 : step));
    return x.shape.join() === shape.join() ? x : strided(x, shape, steps);
  });
}

export function elementwise(given, compute) {
  const [first, ...rest] = broadcast(given);
  const [a, b, c, d, e] = rest.map((x) => x.data);
  const all = (x, i) => compute(x, a?.[i], b?.[i], c?.[i], d?.[i], e?.[i]);
  return mapped(first, all);
}

/** Fold the elements along some dimensions, or all, which keep the size 1. */
export function folded(x, dims, fold, start = 0) {
  const gone = new Set(
    (dims.length > 0 ? dims : [...x.shape.keys()]).map((dim) => axis(dim, x.shape.length)),
  );
  const shape = x.shape.map((n, d) => (gone.has(d) ? 1 : n));
  const made = tensor(shape, start);
  const steps = strides(shape).map((step, d) => (shape[d] === 1 ? 0 : step));
  walk(made, x.shape, steps, 0, (i, at) => (made.data[at] = fold(made.data[at], x.data[i])));
  return made;
}

export const sum = (a, b) => a + b;
export const squares = (a, b) => a + b * b;
export const larger = (a, b) => Math.max(a, b);
export const divide = (a, b) => a / b;

/** The product of two matrices, or of each two in two lists. */
export function product(left, right) {
  const [[n, k], [rows, m]] = [left.shape.slice(-2), right.shape.slice(-2)];
  const lists = left.shape.slice(0, -2);
  need(k === rows && m >= 0 && lists.join() === right.shape.slice(0, -2).join(), "no product");
  const made = tensor([...lists, n, m]);
  for (let row = 0; row < count(lists) * n; row++) {
    for (let p = 0; p < k; p++) {
      const [value, from] = [left.data[row * k + p], (Math.floor(row / n) * k + p) * m];
      for (let j = 0; j < m; j++) made.data[row * m + j] += value * right.data[from + j];
    }
  }
  return made;
}
