// Runs a program of torch-ir, in core ATen, from its archive and nothing else.
//
//     node reader.mjs PROGRAM.tir INPUTS.safetensors OUTPUTS.safetensors
//
// Inputs and outputs go by their names in the graph. Values are float32, int64 (to 2^53) or bool:
// they are computed in double, and rounded to the type that the program records. Every tensor here
// lies in row-major order. A damaged file ends in one line on stderr and status 1.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

import {
  TYPES,
  fail,
  need,
  safetensors,
  writeSafetensors,
  decoded,
  typed,
  count,
  tensor,
  mapped,
  reshaped,
  strides,
  axis,
  strided,
  paste,
  permuted,
  broadcast,
  elementwise,
  folded,
  sum,
  squares,
  larger,
  divide,
  product,
} from "./tensors.mjs";

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

// -- operators ------------------------------------------------------------------------------------

/** The windows on the last dimensions of a padded tensor: [..., places..., elements...]. */
function windows(call, x, kernel, stride, fill) {
  const [n, lead] = [kernel.length, x.shape.length - kernel.length];
  need(lead >= 0 && call.shape.length === x.shape.length, "no such window");
  const [pads, gaps] = [call.sizes("padding", n, 0), call.sizes("dilation", n, 1)];
  const places = call.shape.slice(lead);
  const whole = x.shape.slice(lead).map((size, d) => {
    return Math.max(
      size + 2 * pads[d],
      (places[d] - 1) * stride[d] + gaps[d] * (kernel[d] - 1) + 1,
    );
  });
  const padded = tensor([...x.shape.slice(0, lead), ...whole], fill);
  const every = strides(padded.shape);
  paste(
    x,
    padded,
    pads.reduce((at, pad, d) => at + pad * every[lead + d], 0),
  );
  const [outer, last] = [every.slice(0, lead), every.slice(lead)];
  const steps = [
    ...outer,
    ...last.map((n, d) => n * stride[d]),
    ...last.map((n, d) => n * gaps[d]),
  ];
  return strided(padded, [...x.shape.slice(0, lead), ...places, ...kernel], steps);
}

function maxPool(call) {
  const kernel = call.sizes("kernel_size", 2, 0);
  const stride = call.list("stride").length > 0 ? call.sizes("stride", 2, 0) : kernel;
  const seen = windows(call, call.tensor("self"), kernel, stride, -Infinity);
  return folded(seen, [-2, -1], larger, -Infinity);
}

/** A product of matrices for each group: the windows, and their weights. */
function convolution(call) {
  const [x, w, bias] = [call.tensor("input"), call.tensor("weight"), call.tensor("bias", 0)];
  const [groups, rank] = [call.attr("groups", 1), x.shape.length];
  need(!call.attr("transposed", false), "transposed convolution is not supported");
  const [[n, all], [features, channels, ...kernel]] = [x.shape, w.shape];
  need(rank > 2 && w.shape.length === rank && all === channels * groups, "channels do not fit");
  const seen = windows(call, x, kernel, call.sizes("stride", rank - 2, 1), 0);
  seen.shape.splice(1, 1, groups, channels); // [n, groups, channels, places..., elements...]
  const dims = [...seen.shape.keys()];
  const order = [1, 0, ...dims.slice(3, rank + 1), 2, ...dims.slice(rank + 1)];
  const length = channels * count(kernel);
  const rows = seen.data.length / (groups * length);
  const left = reshaped(permuted(seen, order), [groups, rows, length]);
  const right = permuted(reshaped(w, [groups, features / groups, length]), [0, 2, 1]);
  const made = reshaped(product(left, right), [groups, n, rows / n, features / groups]);
  return elementwise([reshaped(permuted(made, [1, 0, 3, 2]), call.shape), column(bias, rank)], sum);
}

/** A tensor of one dimension beside the channels of another. */
function column(x, rank) {
  return x.shape.length === 1 ? reshaped(x, [...x.shape, ...new Array(rank - 2).fill(1)]) : x;
}

function normalized(call, mean, variance, fit) {
  const [weight, bias] = [fit(call.tensor("weight", 1)), fit(call.tensor("bias", 0))];
  const eps = call.attr("eps");
  const compute = (x, m, v, w, b) => ((x - m) / Math.sqrt(v + eps)) * w + b;
  return elementwise([call.tensor("input"), mean, variance, weight, bias], compute);
}

function batchNorm(call) {
  const fit = (x) => column(x, call.shape.length);
  const [mean, variance] = [call.tensor("running_mean"), call.tensor("running_var")];
  return normalized(call, fit(mean), fit(variance), fit);
}

function layerNorm(call) {
  const [x, sizes] = [call.tensor("input"), call.attr("normalized_shape")];
  const dims = sizes.map((_, d) => d - sizes.length);
  const average = (made) => mapped(made, (value) => value / count(sizes));
  const mean = average(folded(x, dims, sum));
  const rest = elementwise([x, mean], (a, b) => a - b);
  return normalized(call, mean, average(folded(rest, dims, squares)), (given) => given);
}

function softmax(call) {
  const [x, dim] = [call.tensor("self"), [call.attr("dim")]];
  const most = folded(x, dim, larger, -Infinity);
  const powers = elementwise([x, most], (a, b) => Math.exp(a - b));
  return elementwise([powers, folded(powers, dim, sum)], divide);
}

function addmm(call) {
  const [beta, alpha] = [call.attr("beta", 1), call.attr("alpha", 1)];
  const made = product(call.tensor("mat1"), call.tensor("mat2"));
  return elementwise([call.tensor("self"), made], (a, b) => beta * a + alpha * b);
}

/** The error function, as a series near 0 and as a continued fraction further out. */
function erf(x) {
  const square = x * x;
  if (Math.abs(x) < 3) {
    let [term, total] = [x, x];
    for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(total); n++) {
      term *= (2 * square) / (2 * n + 1);
      total += term;
    }
    return (2 / Math.sqrt(Math.PI)) * Math.exp(-square) * total;
  }
  let rest = Math.abs(x);
  for (let n = 30; n > 0; n--) rest = Math.abs(x) + n / 2 / rest;
  return Math.sign(x) * (1 - Math.exp(-square) / (rest * Math.sqrt(Math.PI)));
}

function gelu(call) {
  need(call.attr("approximate", "none") === "none", "an approximation is not supported");
  return mapped(call.tensor("self"), (x) => (x * (1 + erf(x / Math.SQRT2))) / 2);
}

function slice(call) {
  const x = call.tensor("self");
  const [dim, own] = [axis(call.attr("dim", 0), x.shape.length), strides(x.shape)];
  const [size, start] = [x.shape[dim], call.attr("start", 0) ?? 0];
  const first = Math.min(Math.max(start < 0 ? start + size : start, 0), size);
  const steps = own.map((n, d) => (d === dim ? n * call.attr("step", 1) : n));
  return strided(x, call.shape, steps, first * own[dim]);
}

function cat(call) {
  const made = tensor(call.shape);
  const dim = axis(call.attr("dim", 0), call.shape.length);
  let offset = 0;
  for (const part of call.tensors("tensors").filter((part) => part.data.length > 0)) {
    paste(part, made, offset);
    offset += part.shape[dim] * strides(call.shape)[dim];
  }
  return made;
}

/** The rows of a tensor that tensors of indices name, one for each of its first dimensions. */
function indexed(x, indices) {
  need(indices.length > 0 && indices.length <= x.shape.length, "too many indices");
  const [own, given] = [strides(x.shape), broadcast(indices)];
  const [rows, width] = [given[0].data.length, own[indices.length - 1]];
  const made = tensor([rows, width]);
  for (let i = 0; i < rows; i++) {
    const from = given.reduce((sum, { data }, d) => {
      const at = data[i] < 0 ? data[i] + x.shape[d] : data[i];
      need(at >= 0 && at < x.shape[d], `index ${data[i]} is out of range`);
      return sum + at * own[d];
    }, 0);
    made.data.set(x.data.subarray(from, from + width), i * width);
  }
  return made;
}

function arange(call) {
  const [start, step] = [call.attr("start"), call.attr("step", 1)];
  return mapped(tensor(call.shape), (_, i) => start + i * step);
}

/** The same function of each element of the arguments, expanded to the shape of the result. */
function pointwise(names, compute) {
  return (call) =>
    elementwise([...names.map((name) => call.tensor(name)), tensor(call.shape)], compute);
}

function reduction(fold, finish = (x) => x) {
  return (call) => {
    const x = call.tensor("self");
    const made = folded(x, call.list("dim"), fold);
    return mapped(made, (value) => finish(value, x.data.length / made.data.length));
  };
}

const itself = (call) => call.tensor("self"); // run() gives it the recorded shape
const permute = (call) => permuted(call.tensor("self"), call.attr("dims"));
const multiplied = (call) => product(call.tensor("self"), call.tensor("mat2"));
const scaled = (call, sign) => {
  const alpha = sign * call.attr("alpha", 1);
  return elementwise([call.tensor("self"), call.tensor("other")], (a, b) => a + alpha * b);
};
const norm = (call) => {
  need(call.attr("ord", 2) === 2, "a norm of another order is not supported");
  return reduction(squares, Math.sqrt)(call);
};
const clamp = (call) => {
  const [least, most] = [call.attr("min", null) ?? -Infinity, call.attr("max", null) ?? Infinity];
  return mapped(call.tensor("self"), (x) => Math.min(Math.max(x, least), most));
};

const OPERATORS = {
  "aten._native_batch_norm_legit_no_training.default": batchNorm,
  "aten._softmax.default": softmax,
  "aten._to_copy.default": itself,
  "aten.add.Scalar": (call) => scaled(call, 1),
  "aten.add.Tensor": (call) => scaled(call, 1),
  "aten.addmm.default": addmm,
  "aten.any.dim": reduction((a, b) => Number(a !== 0 || b !== 0)),
  "aten.arange.start_step": arange,
  "aten.bitwise_and.Tensor": pointwise(["self", "other"], (a, b) => Number(BigInt(a) & BigInt(b))),
  "aten.bmm.default": multiplied,
  "aten.cat.default": cat,
  "aten.clamp.default": clamp,
  "aten.clone.default": itself,
  "aten.convolution.default": convolution,
  "aten.div.Tensor": pointwise(["self", "other"], divide),
  "aten.embedding.default": (call) => indexed(call.tensor("weight"), [call.tensor("indices")]),
  "aten.eq.Scalar": pointwise(["self", "other"], (a, b) => Number(a === b)),
  "aten.expand.default": pointwise(["self"], (x) => x),
  "aten.expand_copy.default": pointwise(["self"], (x) => x),
  "aten.full.default": pointwise(["fill_value"], (x) => x),
  "aten.full_like.default": pointwise(["fill_value"], (x) => x),
  "aten.ge.Scalar": pointwise(["self", "other"], (a, b) => Number(a >= b)),
  "aten.gelu.default": gelu,
  "aten.index.Tensor": (call) => indexed(call.tensor("self"), call.tensors("indices")),
  "aten.linalg_vector_norm.default": norm,
  "aten.logical_not.default": pointwise(["self"], (x) => Number(x === 0)),
  "aten.max_pool2d_with_indices.default": maxPool,
  "aten.mean.dim": reduction(sum, divide),
  "aten.mm.default": multiplied,
  "aten.mul.Scalar": pointwise(["self", "other"], (a, b) => a * b),
  "aten.mul.Tensor": pointwise(["self", "other"], (a, b) => a * b),
  "aten.native_layer_norm.default": layerNorm,
  "aten.permute.default": permute,
  "aten.permute_copy.default": permute,
  "aten.relu.default": pointwise(["self"], (x) => (x < 0 ? 0 : x)),
  "aten.scalar_tensor.default": pointwise(["s"], (x) => x),
  "aten.sigmoid.default": pointwise(["self"], (x) => 1 / (1 + Math.exp(-x))),
  "aten.slice.Tensor": slice,
  "aten.slice_copy.Tensor": slice,
  "aten.sub.Tensor": (call) => scaled(call, -1),
  "aten.sum.dim_IntList": reduction(sum),
  "aten.tanh.default": pointwise(["self"], Math.tanh),
  "aten.unsqueeze.default": itself,
  "aten.unsqueeze_copy.default": itself,
  "aten.view.default": itself,
  "aten.view_copy.default": itself,
  "aten.where.self": pointwise(["condition", "self", "other"], (c, a, b) => (c !== 0 ? a : b)),
};

// -- programs -------------------------------------------------------------------------------------

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
    return (this.node.operands[name] ?? []).map((position) => this.value(position));
  }

  /** A tensor, or a number as one, which torch rounds to the type of the tensors beside it. */
  tensor(name, fallback) {
    const position = this.node.operands?.[name] ?? null;
    if (position !== null) return this.value(position);
    const number = Number(this.attr(name, fallback) ?? fallback ?? fail(`there is no ${name}`));
    const single = this.node.inputs[0]?.dtype === "float32";
    return tensor([], single ? Math.fround(number) : number);
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
    need(
      full.length === rank && full.every((n) => Number.isInteger(n) && n >= 0),
      "no such window",
    );
    return full;
  }
}

/** The weights and constants of a program, by the names under which nodes use them. */
function externals(ir, files) {
  const read = (name) => (files.has(name) ? safetensors(files.get(name)) : new Map());
  const [weights, stored] = [read("weights.safetensors"), read("constants.safetensors")];
  const constant = (key) => {
    const record = ir.constants?.[key] ?? fail(`there is no weight or constant ${key}`);
    const { shape, dtype, fill, view } = record;
    if (!Object.hasOwn(TYPES, dtype)) return undefined; // what uses it says so
    if (view) return { ...strided(constant(view.of), shape, view.strides, view.offset), dtype };
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
    shape.forEach(
      (n, d) => typeof n !== "string" || symbols.has(n) || symbols.set(n, given.shape[d]),
    );
    const fits = given.dtype === dtype && given.shape.join() === sizes(shape).join();
    need(fits, `input ${name}: its type is another`);
    values.set(name, given);
  }
  for (const node of ir.nodes) {
    if (node.op_type === "aten._assert_tensor_metadata.default") continue;
    const operator = Object.hasOwn(OPERATORS, node.op_type) ? OPERATORS[node.op_type] : null;
    need(operator, `node ${node.name}: there is no operator ${node.op_type} here`);
    try {
      const { name, shape, dtype } = node.outputs[0];
      const made = operator(new Call(node, values, sizes(shape)));
      values.set(name, typed(reshaped(made, sizes(shape)), dtype));
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
