// Runs a float32 program of torch-ir, in core ATen, from its archive and nothing else.
//
//     node reader.mjs PROGRAM.tir INPUTS.safetensors OUTPUTS.safetensors
//
// Inputs and outputs go by their names in the graph. Every tensor here lies in row-major order.
// What docs/format.md says is checked: a damaged file ends in one line on stderr and status 1.

import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";

const LIMIT = 2 ** 28; // elements of one tensor

function fail(text) {
  throw new Error(text);
}

function need(condition, text) {
  if (!condition) fail(text);
}

// -- files ----------------------------------------------------------------------------------------

/** The members of a zip whose members are stored, by name. */
function members(file) {
  let end = file.length - 22;
  while (end >= 0 && file.readUInt32LE(end) !== 0x06054b50) end--;
  need(end >= 0, "not a zip archive");
  const found = new Map();
  let at = file.readUInt32LE(end + 16);
  for (let i = file.readUInt16LE(end + 10); i > 0; i--) {
    need(file.readUInt32LE(at) === 0x02014b50, "the zip directory is damaged");
    const [method, size] = [file.readUInt16LE(at + 10), file.readUInt32LE(at + 24)];
    const [name, extra, note] = [28, 30, 32].map((offset) => file.readUInt16LE(at + offset));
    const local = file.readUInt32LE(at + 42);
    const key = file.toString("utf8", at + 46, at + 46 + name);
    need(method === 0 && file.readUInt32LE(local) === 0x04034b50, `member ${key} is damaged`);
    const start = local + 30 + file.readUInt16LE(local + 26) + file.readUInt16LE(local + 28);
    need(start + size <= file.length, `member ${key} is cut off`);
    found.set(key, file.subarray(start, start + size));
    at += 46 + name + extra + note;
  }
  return found;
}

/** The members of an archive, each compared with its hash in the manifest. */
function archive(path) {
  const found = members(readFileSync(path));
  need(found.has("manifest.json") && found.has("ir.json"), "not a torch-ir archive");
  const manifest = JSON.parse(found.get("manifest.json").toString("utf8"));
  need(manifest.format === "torch-ir archive" && manifest.version === 1, "an unknown version");
  for (const [name, { sha256, size }] of Object.entries(manifest.members)) {
    const data = found.get(name) ?? fail(`there is no member ${name}`);
    const digest = createHash("sha256").update(data).digest("hex");
    need(data.length === size && digest === sha256, `member ${name} has another hash`);
  }
  for (const name of found.keys()) {
    need(name === "manifest.json" || name in manifest.members, `member ${name} is not listed`);
  }
  return found;
}

/** The tensors of a safetensors file by name; those of other types than float32 without values. */
function safetensors(data) {
  const length = Number(data.readBigUInt64LE(0));
  need(length + 8 <= data.length, "the header of a safetensors file is cut off");
  const header = JSON.parse(data.toString("utf8", 8, 8 + length));
  const body = data.subarray(8 + length);
  const found = new Map();
  for (const [name, record] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const { shape, data_offsets: [begin, end] } = record;
    need(0 <= begin && begin <= end && end <= body.length, `tensor ${name} is cut off`);
    const made = record.dtype === "F32" ? tensor(shape) : { shape, data: null };
    found.set(name, made);
    if (!made.data) continue;
    need(end - begin === 4 * made.data.length, `tensor ${name} has another size`);
    for (let i = 0; i < made.data.length; i++) made.data[i] = body.readFloatLE(begin + 4 * i);
  }
  const same = JSON.parse(header.__metadata__?.["torch-ir-same"] ?? "{}");
  for (const [key, first] of Object.entries(same)) found.set(key, found.get(first));
  return found;
}

function writeSafetensors(path, named) {
  const header = {};
  let at = 0;
  for (const [name, { shape, data }] of named) {
    header[name] = { dtype: "F32", shape, data_offsets: [at, (at += 4 * data.length)] };
  }
  const text = Buffer.from(JSON.stringify(header).padEnd(8), "utf8");
  const out = Buffer.alloc(8 + text.length + at);
  out.writeBigUInt64LE(BigInt(text.length), 0);
  text.copy(out, 8);
  at = 8 + text.length;
  for (const { data } of named.values()) for (const x of data) at = out.writeFloatLE(x, at);
  writeFileSync(path, out);
}

// -- tensors --------------------------------------------------------------------------------------

function count(shape) {
  need(Array.isArray(shape) && shape.every((n) => Number.isInteger(n) && n >= 0), "no such shape");
  const total = shape.reduce((product, n) => product * n, 1);
  need(total <= LIMIT, `a tensor of ${total} elements`);
  return total;
}

function tensor(shape) {
  return { shape: [...shape], data: new Float32Array(count(shape)) };
}

function strides(shape) {
  const found = new Array(shape.length);
  for (let d = shape.length - 1, step = 1; d >= 0; step *= shape[d--]) found[d] = step;
  return found;
}

/** Call a function with each position of a shape in row-major order, and its number. */
function each(shape, visit) {
  const index = new Array(shape.length).fill(0);
  for (let i = 0, total = count(shape); i < total; i++) {
    visit(index, i);
    for (let d = shape.length - 1; d >= 0 && ++index[d] === shape[d]; d--) index[d] = 0;
  }
}

/** A tensor of a shape whose elements lie in another by an offset and strides. */
function gather(source, shape, steps, offset = 0) {
  const made = tensor(shape);
  each(shape, (index, i) => {
    const at = index.reduce((sum, n, d) => sum + n * steps[d], offset);
    need(at >= 0 && at < source.data.length, "a view of elements that are not there");
    made.data[i] = source.data[at];
  });
  return made;
}

function expanded(source, shape) {
  const own = strides(source.shape);
  const ahead = shape.length - source.shape.length;
  const steps = shape.map((n, d) => (d < ahead || source.shape[d - ahead] === 1 ? 0 : own[d - ahead]));
  return gather(source, shape, steps);
}

function pointwise(left, right, compute) {
  const rank = Math.max(left.shape.length, right.shape.length);
  const size = (t, d) => t.shape[d - rank + t.shape.length] ?? 1;
  const shape = Array.from({ length: rank }, (_, d) => {
    const [a, b] = [size(left, d), size(right, d)];
    need(a === b || a === 1 || b === 1, `sizes ${a} and ${b} do not go together`);
    return a === 1 ? b : a;
  });
  const { data } = expanded(right, shape);
  return mapped(expanded(left, shape), (value, i) => compute(value, data[i]));
}

function mapped(source, compute) {
  return { shape: source.shape, data: source.data.map(compute) };
}

function axis(dim, rank) {
  const found = dim < 0 ? dim + rank : dim;
  need(Number.isInteger(found) && found >= 0 && found < Math.max(rank, 1), `no dimension ${dim}`);
  return found;
}

function product(left, right) {
  const [[n, k], [rows, m]] = [left.shape, right.shape];
  need(k === rows && left.shape.length === 2 && right.shape.length === 2, "no product of matrices");
  return mapped(tensor([n, m]), (_, at) => {
    const [row, column] = [Math.floor(at / m) * k, at % m];
    let sum = 0;
    for (let p = 0; p < k; p++) sum += left.data[row + p] * right.data[p * m + column];
    return sum;
  });
}

// -- operators ------------------------------------------------------------------------------------

function pair(value, rank, fallback) {
  const list = value === undefined || value.length === 0 ? [fallback] : [value].flat();
  const full = list.length === 1 ? new Array(rank).fill(list[0]) : list;
  need(full.length === rank && full.every(Number.isInteger), "no such sizes of a window");
  return rank === 1 ? [fallback, ...full] : full; // a line is an image of one row
}

/** The places of a window: for each output position, the input position and that in the window. */
function windows(size, kernel, stride, padding, dilation, ceil) {
  need(stride > 0 && dilation > 0 && kernel > 0 && padding >= 0, "no such window");
  const span = (size + 2 * padding - dilation * (kernel - 1) - 1) / stride;
  let total = (ceil ? Math.ceil(span) : Math.floor(span)) + 1;
  if (ceil && (total - 1) * stride >= size + padding) total--;
  need(total >= 0 && total <= LIMIT, "no such window");
  return Array.from({ length: total }, (_, o) => {
    const places = Array.from({ length: kernel }, (_, k) => [o * stride - padding + k * dilation, k]);
    return places.filter(([i]) => i >= 0 && i < size);
  });
}

function convolution(call) {
  const [x, w, bias] = [call.tensor("input"), call.tensor("weight"), call.optional("bias")];
  need(!call.attr("transposed", false), "transposed convolution is not supported");
  const rank = x.shape.length - 2;
  need((rank === 1 || rank === 2) && w.shape.length === x.shape.length, "a convolution of 1 or 2");
  const [groups, stride] = [call.attr("groups", 1), pair(call.attr("stride"), rank, 1)];
  const padding = pair(call.attr("padding"), rank, 0);
  const dilation = pair(call.attr("dilation"), rank, 1);
  const [n, c, h, v] = rank === 1 ? [x.shape[0], x.shape[1], 1, x.shape[2]] : x.shape;
  const [f, g, kh, kv] = rank === 1 ? [w.shape[0], w.shape[1], 1, w.shape[2]] : w.shape;
  need(groups > 0 && c === g * groups && f % groups === 0, "channels and groups do not fit");
  const rows = windows(h, kh, stride[0], padding[0], dilation[0]);
  const columns = windows(v, kv, stride[1], padding[1], dilation[1]);
  const image = rank === 1 ? [columns.length] : [rows.length, columns.length];
  const made = tensor([n, f, ...image]);
  let at = 0;
  for (let b = 0; b < n; b++) {
    for (let o = 0; o < f; o++) {
      const first = Math.floor(o / (f / groups)) * g;
      for (const row of rows) {
        for (const column of columns) {
          let sum = bias ? bias.data[o] : 0;
          for (let i = 0; i < g; i++) {
            for (const [y, p] of row) {
              const from = ((b * c + first + i) * h + y) * v;
              const weights = ((o * g + i) * kh + p) * kv;
              for (const [z, q] of column) sum += x.data[from + z] * w.data[weights + q];
            }
          }
          made.data[at++] = sum;
        }
      }
    }
  }
  return made;
}

function maxPool(call) {
  const x = call.tensor("self");
  need(x.shape.length >= 3, "max_pool2d takes images");
  const kernel = pair(call.attr("kernel_size"), 2, 1);
  const given = call.attr("stride", []);
  const stride = [given].flat().length === 0 ? kernel : pair(given, 2, 1);
  const [padding, dilation] = [pair(call.attr("padding"), 2, 0), pair(call.attr("dilation"), 2, 1)];
  const [h, v] = x.shape.slice(-2);
  const ceil = call.attr("ceil_mode", false);
  const rows = windows(h, kernel[0], stride[0], padding[0], dilation[0], ceil);
  const columns = windows(v, kernel[1], stride[1], padding[1], dilation[1], ceil);
  const made = tensor([...x.shape.slice(0, -2), rows.length, columns.length]);
  let at = 0;
  for (let image = 0; image < x.data.length; image += h * v) {
    for (const row of rows) {
      for (const column of columns) {
        let most = -Infinity;
        for (const [y] of row) {
          for (const [z] of column) {
            const value = x.data[image + y * v + z];
            if (value > most || Number.isNaN(value)) most = value;
          }
        }
        made.data[at++] = most;
      }
    }
  }
  return made;
}

function batchNorm(call) {
  const x = call.tensor("input");
  const [mean, variance] = [call.tensor("running_mean"), call.tensor("running_var")];
  const [weight, bias] = [call.optional("weight"), call.optional("bias")];
  const eps = call.attr("eps");
  const inner = count(x.shape.slice(2));
  return mapped(x, (value, i) => {
    const c = Math.floor(i / inner) % x.shape[1];
    const scaled = (value - mean.data[c]) / Math.sqrt(variance.data[c] + eps);
    return scaled * (weight ? weight.data[c] : 1) + (bias ? bias.data[c] : 0);
  });
}

/** Replace the elements along some dimensions by what a function makes of their list. */
function reduced(x, dims, keep, compute) {
  const gone = new Set(dims.map((dim) => axis(dim, x.shape.length)));
  const [own, kept] = [strides(x.shape), x.shape.map((_, d) => d).filter((d) => !gone.has(d))];
  const [outer, inner] = [kept.map((d) => x.shape[d]), [...gone]];
  const made = tensor(outer);
  each(outer, (index, i) => {
    const offset = index.reduce((sum, n, d) => sum + n * own[kept[d]], 0);
    const sizes = inner.map((d) => x.shape[d]);
    made.data[i] = compute(gather(x, sizes, inner.map((d) => own[d]), offset).data);
  });
  if (keep) made.shape = x.shape.map((n, d) => (gone.has(d) ? 1 : n));
  return made;
}

function softmax(call) {
  const x = call.tensor("self");
  const dim = [call.attr("dim")];
  const most = reduced(x, dim, true, (values) => Math.max(...values));
  const powers = pointwise(x, most, (a, b) => Math.exp(a - b));
  const total = reduced(powers, dim, true, (values) => values.reduce((sum, v) => sum + v, 0));
  return pointwise(powers, total, (a, b) => a / b);
}

function view(call) {
  const x = call.tensor("self");
  const size = [...call.attr("size")];
  const known = size.reduce((total, n) => (n === -1 ? total : total * n), 1);
  const open = size.indexOf(-1);
  if (open >= 0) size[open] = x.data.length / known;
  need(count(size) === x.data.length, `no view of ${x.data.length} elements as ${size}`);
  return { shape: size, data: x.data };
}

function permute(call) {
  const x = call.tensor("self");
  const dims = call.attr("dims").map((dim) => axis(dim, x.shape.length));
  need(new Set(dims).size === x.shape.length, "no such order of dimensions");
  const own = strides(x.shape);
  return gather(x, dims.map((d) => x.shape[d]), dims.map((d) => own[d]));
}

function slice(call) {
  const x = call.tensor("self");
  const dim = axis(call.attr("dim", 0), x.shape.length);
  const [size, step] = [x.shape[dim], call.attr("step", 1)];
  const bound = (at) => Math.min(Math.max(at < 0 ? at + size : at, 0), size);
  const [start, end] = [bound(call.attr("start", 0) ?? 0), bound(call.attr("end", size) ?? size)];
  need(step > 0, "a step is positive");
  const own = strides(x.shape);
  const shape = x.shape.map((n, d) => (d === dim ? Math.max(Math.ceil((end - start) / step), 0) : n));
  const steps = own.map((n, d) => (d === dim ? n * step : n));
  return gather(x, shape, steps, start * own[dim]);
}

function cat(call) {
  const parts = call.tensors("tensors").filter((part) => part.shape.join() !== "0");
  need(parts.length > 0, "nothing to join");
  const dim = axis(call.attr("dim", 0), parts[0].shape.length);
  const outer = count(parts[0].shape.slice(0, dim));
  const shape = [...parts[0].shape];
  shape[dim] = parts.reduce((sum, part) => sum + part.shape[dim], 0);
  const made = tensor(shape);
  let at = 0;
  for (let i = 0; i < outer; i++) {
    for (const { data } of parts) {
      const length = data.length / outer;
      made.data.set(data.subarray(i * length, (i + 1) * length), at);
      at += length;
    }
  }
  return made;
}

function mean(call) {
  const x = call.tensor("self");
  const given = call.attr("dim", null);
  const dims = given === null || given.length === 0 ? x.shape.map((_, d) => d) : given;
  const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  return reduced(x, dims, call.attr("keepdim", false), average);
}

function addmm(call) {
  const [beta, alpha] = [call.attr("beta", 1), call.attr("alpha", 1)];
  const made = product(call.tensor("mat1"), call.tensor("mat2"));
  return pointwise(call.tensor("self"), made, (a, b) => beta * a + alpha * b);
}

const OPERATORS = {
  "aten.convolution.default": convolution,
  "aten._native_batch_norm_legit_no_training.default": batchNorm,
  "aten.relu.default": (call) => mapped(call.tensor("self"), (x) => (x < 0 ? 0 : x)),
  "aten.sigmoid.default": (call) => mapped(call.tensor("self"), (x) => 1 / (1 + Math.exp(-x))),
  "aten.tanh.default": (call) => mapped(call.tensor("self"), Math.tanh),
  "aten.add.Tensor": (call) => call.binary((a, b, alpha) => a + alpha * b),
  "aten.sub.Tensor": (call) => call.binary((a, b, alpha) => a - alpha * b),
  "aten.mul.Tensor": (call) => call.binary((a, b) => a * b),
  "aten.addmm.default": addmm,
  "aten.mm.default": (call) => product(call.tensor("self"), call.tensor("mat2")),
  "aten.mean.dim": mean,
  "aten.view.default": view,
  "aten.view_copy.default": view,
  "aten.permute.default": permute,
  "aten.permute_copy.default": permute,
  "aten.clone.default": (call) => call.tensor("self"),
  "aten._softmax.default": softmax,
  "aten.max_pool2d_with_indices.default": maxPool,
  "aten.cat.default": cat,
  "aten.slice.Tensor": slice,
  "aten.slice_copy.Tensor": slice,
};

// -- programs -------------------------------------------------------------------------------------

/** One node with the values that it takes. */
class Call {
  constructor(node, values) {
    Object.assign(this, { node, values });
  }

  value(position) {
    const name = this.node.inputs[position]?.name;
    return this.values.get(name) ?? fail(`%${name} has no value`);
  }

  optional(name) {
    const position = this.node.operands?.[name];
    if (position === undefined || position === null) return null;
    const found = this.value(position);
    return found.data ? found : fail(`${name} is not float32`);
  }

  tensor(name) {
    return this.optional(name) ?? fail(`there is no ${name}`);
  }

  tensors(name) {
    return (this.node.operands[name] ?? []).map((position) => this.value(position));
  }

  /** An attribute; what a file leaves out has the default of the schema (docs/operators.json). */
  attr(name, fallback) {
    const value = this.node.attrs[name];
    if (value === undefined) return fallback;
    const tagged = [value].flat().some((item) => item !== null && typeof item === "object");
    return tagged ? fail(`${name} is no plain value`) : value;
  }

  binary(compute) {
    const number = this.attr("other", null);
    const other = this.optional("other") ?? { shape: [], data: Float32Array.of(number) };
    const alpha = this.attr("alpha", 1);
    return pointwise(this.tensor("self"), other, (a, b) => compute(a, b, alpha));
  }
}

/** The weights and constants of a program, by the names under which nodes use them. */
function externals(ir, files) {
  const weights = files.has("weights.safetensors")
    ? safetensors(files.get("weights.safetensors"))
    : new Map();
  const stored = files.has("constants.safetensors")
    ? safetensors(files.get("constants.safetensors"))
    : new Map();
  const constant = (key) => {
    const record = ir.constants?.[key] ?? fail(`there is no weight or constant ${key}`);
    if (record.fill && record.dtype === "float32") {
      need(/^[0-9a-f]{8}$/.test(record.fill), `constant ${key} has no float32`);
      const made = tensor(record.shape);
      made.data.fill(Buffer.from(record.fill, "hex").readFloatLE(0));
      return made;
    }
    if (!record.view) return stored.get(record.tensor) ?? fail(`constant ${key} is missing`);
    const base = constant(record.view.of);
    return gather(base, record.shape, record.view.strides, record.view.offset);
  };
  const names = Object.entries(ir.weight_name_mapping ?? {});
  return new Map(names.map(([name, key]) => [name, weights.get(key) ?? constant(key)]));
}

/** Whether a tensor has a recorded shape; a size that varies is an expression, a string. */
function fits(shape, recorded) {
  const same = recorded.every((n, d) => typeof n === "string" || n === shape[d]);
  return same && shape.length === recorded.length;
}

function run(ir, files, inputs) {
  need([1, 2].includes(ir.format_version), `format version ${ir.format_version} is not known`);
  const values = externals(ir, files);
  for (const { name, shape } of ir.graph_inputs) {
    const given = inputs.get(name) ?? fail(`there is no input ${name}`);
    need(given.data && fits(given.shape, shape), `input ${name}: its type is another`);
    values.set(name, given);
  }
  for (const node of ir.nodes) {
    const operator = Object.hasOwn(OPERATORS, node.op_type) ? OPERATORS[node.op_type] : null;
    need(operator, `node ${node.name}: there is no operator ${node.op_type} here`);
    const [first] = node.outputs;
    try {
      const made = operator(new Call(node, values));
      need(fits(made.shape, first.shape), `it gives ${made.shape}`);
      values.set(first.name, made);
    } catch (error) {
      fail(`node ${node.name}: ${error.message}`);
    }
  }
  const result = (name) => values.get(name) ?? fail(`%${name} has no value`);
  return new Map(ir.graph_outputs.map(({ name }) => [name, result(name)]));
}

try {
  const [program, given, results] = process.argv.slice(2);
  need(results, "usage: node reader.mjs PROGRAM.tir INPUTS.safetensors OUTPUTS.safetensors");
  const files = archive(program);
  const ir = JSON.parse(files.get("ir.json").toString("utf8"));
  writeSafetensors(results, run(ir, files, safetensors(readFileSync(given))));
} catch (error) {
  console.error(`error: ${error.message}`);
  process.exitCode = 1;
}
