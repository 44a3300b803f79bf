// Runs a program of torch-ir, in core ATen, from its archive and nothing else.
//
//     node reader.mjs PROGRAM.tir INPUTS.safetensors OUTPUTS.safetensors
//
// Inputs and outputs go by their names in the graph. Values are float32, int64 (to 2^53) or bool:
// they are computed in double, and rounded to the type that the program records. A damaged file
// ends in one line on stderr and status 1; members are compared with the hashes of the manifest.

import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";

const LIMIT = 2 ** 27; // elements of one tensor

function fail(text) {
  throw new Error(text);
}

const need = (condition, text) => condition || fail(text);

// -- tensors, in row-major order ------------------------------------------------------------------
function count(shape) {
  const total = shape.reduce((all, n) => (Number.isInteger(n) && n >= 0 ? all * n : NaN), 1);
  return total <= LIMIT ? total : fail(`no such shape: ${shape}`);
}

function tensor(shape, fill = 0) {
  return { shape: [...shape], data: new Float64Array(count(shape)).fill(fill) };
}

const mapped = ({ shape, data }, compute) => ({ shape, data: data.map(compute) });

/** A tensor whose elements are a function of their indices. */
function built(shape, element) {
  const [made, index] = [tensor(shape), new Array(shape.length).fill(0)];
  for (let i = 0; i < made.data.length; i++) {
    made.data[i] = element(index);
    for (let d = shape.length - 1; d >= 0 && ++index[d] === shape[d]; d--) index[d] = 0;
  }
  return made;
}

/** Where an element lies; a dimension of size 1, or none, stands for any size. */
function place({ shape }, index) {
  let at = 0;
  for (let d = 0; d < shape.length; d++) {
    const i = shape[d] === 1 ? 0 : index[index.length - shape.length + d];
    need(0 <= i && i < shape[d], "an index is out of range");
    at = at * shape[d] + i;
  }
  return at;
}

const at = (x, index) => x.data[place(x, index)];

/** The same elements in another shape, or each as often as a larger shape asks. */
function shaped(x, shape) {
  need(x.data.length <= count(shape), `no view of ${x.data.length} elements as ${shape}`);
  if (x.data.length < count(shape)) return built(shape, (index) => at(x, index));
  return { shape: [...shape], data: x.data };
}

function axis(dim, rank) {
  const found = dim < 0 ? dim + rank : dim;
  need(Number.isInteger(found) && found >= 0 && found < rank, `no dimension ${dim}`);
  return found;
}

/** The same function of each element of some tensors, which are brought to one shape. */
function each(compute, ...given) {
  const shape = new Array(Math.max(...given.map((x) => x.shape.length))).fill(1);
  for (const { shape: sizes } of given)
    sizes.forEach((size, d) => {
      const to = shape.length - sizes.length + d;
      need(size === 1 || shape[to] === 1 || size === shape[to], "sizes do not go together");
      if (size !== 1) shape[to] = size;
    });
  const [x, y, z, v, w] = given.map((x) => shaped(x, shape).data);
  return mapped(tensor(shape), (_, i) => compute(x[i], y?.[i], z?.[i], v?.[i], w?.[i]));
}

const add = (x, y) => x + y;
const divide = (x, y) => x / y;
const squares = (x, y) => x + y * y;
const larger = (x, y) => Math.max(x, y);

/** Fold the elements along some dimensions, or all, which keep the size 1. */
function folded(x, dims, fold, start = 0) {
  const rank = x.shape.length;
  const gone = (dims.length > 0 && rank > 0 ? dims : [...x.shape.keys()]).map((d) => axis(d, rank));
  const made = tensor(x.shape.map((n, d) => (gone.includes(d) ? 1 : n)), start);
  built(x.shape, (index) => {
    const to = place(made, index);
    made.data[to] = fold(made.data[to], at(x, index));
  });
  return made;
}

/** The product of two matrices, or of each two in two lists. */
function product(left, right) {
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

// -- files ----------------------------------------------------------------------------------------
const whole = (x) => (Math.abs(x) <= 2 ** 53 ? Math.trunc(x) : fail("an integer is beyond 2^53"));

/** How the elements of a type lie in a file, and how a number is rounded to it. */
const TYPES = {
  float32: { code: "F32", size: 4, get: "readFloatLE", put: "writeFloatLE", round: Math.fround },
  int64: { code: "I64", size: 8, get: "readBigInt64LE", put: "writeBigInt64LE", round: whole },
  bool: { code: "BOOL", size: 1, get: "readUInt8", put: "writeUInt8", round: (x) => +(x !== 0) },
};

function typed(made, dtype) {
  need(Object.hasOwn(TYPES, dtype), `there is no ${dtype} here`);
  return { ...mapped(made, TYPES[dtype].round), dtype };
}

function decoded(bytes, shape, dtype) {
  const { size, get } = TYPES[dtype];
  need(bytes.length === size * count(shape), "a tensor has another size");
  return typed(mapped(tensor(shape), (_, i) => Number(bytes[get](size * i))), dtype);
}

/** The tensors of a safetensors file by name; those of other types are left out. */
function safetensors(data) {
  const found = new Map();
  if (data === undefined) return found;
  const length = Number(data.readBigUInt64LE(0));
  need(length + 8 <= data.length, "the header of a safetensors file is cut off");
  const { __metadata__: notes, ...header } = JSON.parse(data.toString("utf8", 8, 8 + length));
  const body = data.subarray(8 + length);
  for (const [name, record] of Object.entries(header)) {
    const [begin, end] = record.data_offsets;
    need(0 <= begin && begin <= end && end <= body.length, `tensor ${name} is cut off`);
    const dtype = Object.keys(TYPES).find((key) => TYPES[key].code === record.dtype);
    if (dtype) found.set(name, decoded(body.subarray(begin, end), record.shape, dtype));
  }
  const same = JSON.parse(notes?.["torch-ir-same"] ?? "{}");
  for (const [key, first] of Object.entries(same)) found.set(key, found.get(first));
  return found;
}

function writeSafetensors(path, named) {
  const [header, parts] = [{}, []];
  let end = 0;
  for (const [name, { shape, data, dtype }] of named) {
    const { code, size, put } = TYPES[dtype];
    const bytes = Buffer.alloc(size * data.length);
    data.forEach((x, i) => bytes[put](dtype === "int64" ? BigInt(x) : x, size * i));
    header[name] = { dtype: code, shape, data_offsets: [end, (end += bytes.length)] };
    parts.push(bytes);
  }
  const [text, length] = [Buffer.from(JSON.stringify(header), "utf8"), Buffer.alloc(8)];
  length.writeBigUInt64LE(BigInt(text.length), 0);
  writeFileSync(path, Buffer.concat([length, text, ...parts]));
}

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
  const listed = Object.keys(manifest.members).length + 1;
  need(found.size === listed, "a member is not in the manifest");
  return found;
}

// -- operators ------------------------------------------------------------------------------------
/** One node with the values that it takes, and the shape of its first result. */
class Call {
  constructor(node, values, shape) {
    Object.assign(this, { node, values, shape });
  }
  value(position) {
    const name = this.node.inputs[position]?.name;
    return this.values.get(name) ?? fail(`%${name} has no value, or one of an unknown type`);
  }
  tensors(name) {
    return this.node.operands[name].map((position) => this.value(position));
  }

  /** A tensor, or a number as one, which torch rounds to the type of the tensors beside it. */
  tensor(name = "self", fallback = undefined) {
    const position = this.node.operands?.[name] ?? null;
    if (position !== null) return this.value(position);
    const number = Number(this.attr(name, fallback) ?? fallback ?? fail(`there is no ${name}`));
    const single = this.node.inputs[0]?.dtype === "float32";
    return tensor([], single ? Math.fround(number) : number);
  }

  /** A tensor of one dimension, beside the channels of the result. */
  channels(name, fallback) {
    const x = this.tensor(name, fallback);
    return x.shape.length === 1 ? shaped(x, [...x.shape, ...this.shape.slice(2).fill(1)]) : x;
  }

  /** An attribute; what a file leaves out has the default of the schema (docs/operators.json). */
  attr(name, fallback) {
    const value = this.node.attrs[name];
    if (value === undefined) return fallback;
    const special = value === null ? undefined : value.$float; // "inf", "-inf" or "nan"
    if (special !== undefined) return Number(special.replace("inf", "Infinity"));
    const tagged = [value].flat().some((item) => item !== null && typeof item === "object");
    return tagged ? fail(`${name} is no plain value`) : value;
  }

  list(name) {
    return [this.attr(name, null) ?? []].flat();
  }

  /** Sizes of a window, of which one may stand for all. */
  sizes(name, rank, fallback) {
    const given = this.list(name);
    const full = given.length < 2 ? new Array(rank).fill(given[0] ?? fallback) : given;
    const fits = full.length === rank && full.every((n) => Number.isInteger(n) && n >= 0);
    return fits ? full : fail("no such window");
  }
}

/** The windows on the last dimensions of a tensor: [..., elements..., places...]. */
function windows(call, x, kernel, stride, fill) {
  const [n, lead] = [kernel.length, x.shape.length - kernel.length];
  need(lead >= 0 && call.shape.length === x.shape.length, "no such window");
  const [pads, gaps] = [call.sizes("padding", n, 0), call.sizes("dilation", n, 1)];
  const shape = [...x.shape.slice(0, lead), ...kernel, ...call.shape.slice(lead)];
  return built(shape, (index) => {
    const from = index.slice(0, lead);
    for (let d = 0; d < n; d++) {
      from.push(index[lead + n + d] * stride[d] - pads[d] + index[lead + d] * gaps[d]);
      if (from[lead + d] < 0 || from[lead + d] >= x.shape[lead + d]) return fill;
    }
    return at(x, from);
  });
}

function maxPool(call) {
  const kernel = call.sizes("kernel_size", 2, 0);
  const stride = call.list("stride").length > 0 ? call.sizes("stride", 2, 0) : kernel;
  const seen = windows(call, call.tensor(), kernel, stride, -Infinity);
  return folded(seen, [-4, -3], larger, -Infinity);
}

/** A product of matrices for each group: the weights, and the windows. */
function convolution(call) {
  const [x, w] = [call.tensor("input"), call.tensor("weight")];
  const [groups, rank] = [call.attr("groups", 1), x.shape.length];
  const [[n, all], [features, channels, ...kernel]] = [x.shape, w.shape];
  need(rank > 2 && w.shape.length === rank && all === channels * groups, "channels do not fit");
  const seen = windows(call, x, kernel, call.sizes("stride", rank - 2, 1), 0);
  const [length, places] = [channels * count(kernel), count(call.shape.slice(2))];
  const left = shaped(shaped(w, [1, w.data.length]), [n, w.data.length]);
  const right = shaped(seen, [n * groups, length, places]);
  const made = product(shaped(left, [n * groups, features / groups, length]), right);
  return each(add, shaped(made, call.shape), call.channels("bias", 0));
}

function normalized(call, mean, variance, weight, bias) {
  const eps = call.attr("eps");
  const compute = (x, m, v, w, b) => ((x - m) / Math.sqrt(v + eps)) * w + b;
  return each(compute, call.tensor("input"), mean, variance, weight, bias);
}

function batchNorm(call) {
  const given = [["running_mean"], ["running_var"], ["weight", 1], ["bias", 0]];
  return normalized(call, ...given.map((argument) => call.channels(...argument)));
}

function layerNorm(call) {
  const [x, sizes] = [call.tensor("input"), call.list("normalized_shape")];
  const dims = sizes.map((_, d) => d - sizes.length);
  const average = (made) => mapped(made, (value) => value / count(sizes));
  const mean = average(folded(x, dims, add));
  const variance = average(folded(each((a, b) => a - b, x, mean), dims, squares));
  return normalized(call, mean, variance, call.tensor("weight", 1), call.tensor("bias", 0));
}

function softmax(call) {
  const [x, dims] = [call.tensor(), call.list("dim")];
  const most = folded(x, dims, larger, -Infinity);
  const powers = each((a, b) => Math.exp(a - b), x, most);
  return each(divide, powers, folded(powers, dims, add));
}

/** The error function: a series whose terms all have one sign. */
function erf(x) {
  if (Math.abs(x) > 6) return Math.sign(x);
  let [term, total] = [x, x];
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(total); n++) {
    term *= (2 * x * x) / (2 * n + 1);
    total += term;
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * total;
}

function permute(call) {
  const [x, dims, from] = [call.tensor(), call.list("dims"), []];
  return built(call.shape, (index) => {
    dims.forEach((dim, d) => (from[axis(dim, x.shape.length)] = index[d]));
    return at(x, from);
  });
}

function slice(call) {
  const [x, dim] = [call.tensor(), axis(call.attr("dim", 0), call.shape.length)];
  const [size, start, step] = [x.shape[dim], call.attr("start", 0) ?? 0, call.attr("step", 1)];
  const first = Math.min(Math.max(start < 0 ? start + size : start, 0), size);
  return built(call.shape, (index) => at(x, index.with(dim, first + index[dim] * step)));
}

function cat(call) {
  const dim = axis(call.attr("dim", 0), call.shape.length);
  const parts = call.tensors("tensors").filter((part) => part.data.length > 0);
  return built(call.shape, (index) => {
    let [i, n] = [index[dim], 0];
    while (n < parts.length - 1 && i >= parts[n].shape[dim]) i -= parts[n++].shape[dim];
    return at(parts[n], index.with(dim, i));
  });
}

/** The elements of a tensor where tensors of indices stand for its first dimensions. */
function indexed(call, x, given) {
  const rest = x.shape.length - given.length;
  need(rest >= 0 && rest <= call.shape.length, "too many indices");
  const lead = call.shape.length - rest;
  return built(call.shape, (index) => {
    const rows = given.map((indices, d) => {
      const i = at(indices, index.slice(0, lead));
      need(-x.shape[d] <= i && i < x.shape[d], `index ${i} is out of range`);
      return i < 0 ? i + x.shape[d] : i;
    });
    return at(x, [...rows, ...index.slice(lead)]);
  });
}

/** The same function of each element of the arguments: "self other", or with their defaults. */
function pointwise(names, compute, ...defaults) {
  return (call) =>
    each(compute, ...names.split(" ").map((name, i) => call.tensor(name, defaults[i])));
}

const reduction = (fold) => (call) => folded(call.tensor(), call.list("dim"), fold);
const mean = (call) => {
  const part = count(call.shape) / call.tensor().data.length;
  return mapped(reduction(add)(call), (x) => x * part);
};
const addmm = (call) => {
  const [made, beta] = [product(call.tensor("mat1"), call.tensor("mat2")), call.tensor("beta", 1)];
  return each((x, y, b, a) => b * x + a * y, call.tensor(), made, beta, call.tensor("alpha", 1));
};
const arange = (call) => built(call.shape, ([i]) => call.attr("start") + i * call.attr("step", 1));
const itself = (call) => call.tensor(); // run() gives it the recorded shape and type
const clamp = (x, least, most) => Math.min(Math.max(x, least), most);

const TABLE = {
  "_native_batch_norm_legit_no_training.default": batchNorm,
  "_softmax.default": softmax,
  "add.Scalar add.Tensor": pointwise("self other alpha", (x, y, a) => x + a * y, null, null, 1),
  "addmm.default": addmm,
  "any.dim": reduction((x, y) => Number(x !== 0 || y !== 0)),
  "arange.start_step": arange,
  "bitwise_and.Tensor": pointwise("self other", (x, y) => Number(BigInt(x) & BigInt(y))),
  "bmm.default mm.default": (call) => product(call.tensor(), call.tensor("mat2")),
  "cat.default": cat,
  "clamp.default": pointwise("self min max", clamp, null, -Infinity, Infinity),
  "convolution.default": convolution,
  "div.Tensor": pointwise("self other", divide),
  "embedding.default": (call) => indexed(call, call.tensor("weight"), [call.tensor("indices")]),
  "eq.Scalar": pointwise("self other", (x, y) => Number(x === y)),
  "full.default full_like.default": pointwise("fill_value", (x) => x),
  "ge.Scalar": pointwise("self other", (x, y) => Number(x >= y)),
  "gelu.default": pointwise("self", (x) => (x * (1 + erf(x / Math.SQRT2))) / 2),
  "index.Tensor": (call) => indexed(call, call.tensor(), call.tensors("indices")),
  "linalg_vector_norm.default": (call) => mapped(reduction(squares)(call), Math.sqrt),
  "logical_not.default": pointwise("self", (x) => Number(x === 0)),
  "max_pool2d_with_indices.default": maxPool,
  "mean.dim": mean,
  "mul.Scalar mul.Tensor": pointwise("self other", (x, y) => x * y),
  "native_layer_norm.default": layerNorm,
  "permute.default permute_copy.default": permute,
  "relu.default": pointwise("self", (x) => (x < 0 ? 0 : x)),
  "scalar_tensor.default": pointwise("s", (x) => x),
  "sigmoid.default": pointwise("self", (x) => 1 / (1 + Math.exp(-x))),
  "slice.Tensor slice_copy.Tensor": slice,
  "sub.Tensor": pointwise("self other alpha", (x, y, a) => x - a * y, null, null, 1),
  "sum.dim_IntList": reduction(add),
  "tanh.default": pointwise("self", Math.tanh),
  "where.self": pointwise("condition self other", (c, x, y) => (c !== 0 ? x : y)),
  "_to_copy.default clone.default expand.default expand_copy.default": itself,
  "unsqueeze.default unsqueeze_copy.default view.default view_copy.default": itself,
};
const OPERATORS = new Map();
for (const [names, operator] of Object.entries(TABLE))
  for (const name of names.split(" ")) OPERATORS.set(`aten.${name}`, operator);

// -- programs -------------------------------------------------------------------------------------
/** The weights and constants of a program, by the names under which nodes use them. */
function externals(ir, files) {
  const [weights, stored] = ["weights", "constants"].map((name) =>
    safetensors(files.get(`${name}.safetensors`)),
  );
  const constant = (key) => {
    const record = ir.constants?.[key] ?? fail(`there is no weight or constant ${key}`);
    const { shape, dtype, fill, view } = record;
    if (!Object.hasOwn(TYPES, dtype)) return undefined; // what uses it says so
    if (view) {
      const [{ data }, move] = [constant(view.of), (sum, i, d) => sum + i * view.strides[d]];
      const element = (index) => data[index.reduce(move, view.offset)] ?? fail("a view of nothing");
      return { ...built(shape, element), dtype };
    }
    if (!fill) return stored.get(record.tensor) ?? fail(`constant ${key} is missing`);
    const [value] = decoded(Buffer.from(fill, "hex"), [], dtype).data;
    return { ...tensor(shape, value), dtype };
  };
  const names = Object.entries(ir.weight_name_mapping ?? {});
  return new Map(names.map(([name, key]) => [name, weights.get(key) ?? constant(key)]));
}

function run(ir, files, inputs) {
  need([1, 2].includes(ir.format_version), `format version ${ir.format_version} is not known`);
  const [values, symbols] = [externals(ir, files), new Map()];
  const sizes = (shape) =>
    shape.map((n) =>
      Number.isInteger(n) ? n : (symbols.get(n) ?? fail(`${n} is no plain symbol`)),
    );
  for (const { name, shape, dtype } of ir.graph_inputs) {
    const given = inputs.get(name) ?? fail(`there is no input ${name}`);
    for (const [d, n] of shape.entries())
      if (typeof n === "string" && !symbols.has(n)) symbols.set(n, given.shape[d]);
    const fits = given.dtype === dtype && given.shape.join() === sizes(shape).join();
    need(fits, `input ${name}: its type is another`);
    values.set(name, given);
  }
  const only = { approximate: "none", ord: 2, transposed: false }; // what is supported of these
  for (const node of ir.nodes) {
    if (node.op_type === "aten._assert_tensor_metadata.default") continue;
    try {
      const operator = OPERATORS.get(node.op_type);
      need(operator, `there is no operator ${node.op_type} here`);
      for (const [key, value] of Object.entries(only)) {
        need((node.attrs[key] ?? value) === value, `another ${key} is not supported`);
      }
      const { name, shape, dtype } = node.outputs[0];
      const made = operator(new Call(node, values, sizes(shape)));
      values.set(name, typed(shaped(made, sizes(shape)), dtype));
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
