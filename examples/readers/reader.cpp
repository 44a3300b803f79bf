// Runs a program of torch-ir, in core ATen, from its archive and nothing else.
//
//     g++ -std=c++17 -O2 -o reader reader.cpp
//     ./reader PROGRAM.tir INPUTS.safetensors OUTPUTS.safetensors
//
// Inputs and outputs go by their names in the graph. Values are float32, int64 (to 2^53) or bool:
// they are computed in double, and rounded to the type that the program records. A damaged file
// ends in one line on stderr and status 1; members are compared with the CRC-32 of the zip.

#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>

#include "tensors.hpp"

// -- files ----------------------------------------------------------------------------------------

string read(const string& path) {
    std::ifstream file(path, std::ios::binary);
    need(bool(file), "cannot read " + path);
    return {std::istreambuf_iterator<char>(file), {}};
}

uint32_t crc32(const string& data) {
    uint32_t rest = ~0u;
    for (char byte : data) {
        rest ^= uint8_t(byte);
        for (int bit = 0; bit < 8; bit++) rest = rest >> 1 ^ (rest & 1 ? 0xEDB88320u : 0);
    }
    return ~rest;
}

using Files = std::map<string, string>;

// The members of an archive.
Files archive(const string& path) {
    string file = read(path);
    size_t end = file.rfind(string("PK\5\6", 4));
    need(end != string::npos, "not a zip archive");
    uint64_t at = little(file, end + 16, 4);
    Files found;
    for (uint64_t count = little(file, end + 10, 2); count > 0; count--) {
        need(little(file, at, 4) == 0x02014b50, "the zip directory is damaged");
        uint64_t size = little(file, at + 24, 4), name = little(file, at + 28, 2);
        uint64_t local = little(file, at + 42, 4), method = little(file, at + 10, 2);
        string key = part(file, at + 46, name);
        need(method == 0 && little(file, local, 4) == 0x04034b50, "a member is damaged: " + key);
        uint64_t start = local + 30 + little(file, local + 26, 2) + little(file, local + 28, 2);
        found[key] = part(file, start, size);
        need(crc32(found[key]) == little(file, at + 16, 4), "a member is damaged: " + key);
        at += 46 + name + little(file, at + 30, 2) + little(file, at + 32, 2);
    }
    need(found.count("manifest.json") && found.count("ir.json"), "not a torch-ir archive");
    Json manifest = parse_json(found["manifest.json"]);
    need(manifest.at("format").str() == "torch-ir archive" && manifest.at("version").real() == 1,
         "an unknown version");
    for (auto& member : manifest.at("members").fields)
        need(found.count(member.first) > 0, "there is no member " + member.first);
    return found;
}

// -- operators ------------------------------------------------------------------------------------

// One node with the values that it takes, and the shape of its first result.
struct Call {
    const Json& node;
    const Tensors& values;
    Ints shape;

    const Tensor& value(const Json& position) const {
        auto& inputs = node.at("inputs").items;
        int64_t at = position.whole();
        need(0 <= at && at < int64_t(inputs.size()), "no such input");
        auto found = values.find(inputs[size_t(at)].at("name").str());
        need(found != values.end(), "an input has no value, or one of an unknown type");
        return found->second;
    }
    std::vector<Tensor> tensors(const string& name) const {
        std::vector<Tensor> made;
        for (auto& position : node.at("operands").at(name).items) made.push_back(value(position));
        return made;
    }
    // An attribute; what a file leaves out has the default of the schema (docs/operators.json).
    double real(const string& name, double fallback = NAN) const {
        const Json* found = node.at("attrs").find(name);
        need((found && found->kind != Json::Null) || !std::isnan(fallback), "there is no " + name);
        if (!found || found->kind == Json::Null) return fallback;
        const Json* special = found->find("$float");  // inf, -inf or nan
        return special ? std::strtod(special->str().c_str(), nullptr) : found->real();
    }
    int64_t whole(const string& name, int64_t fallback) const {
        double number = real(name, double(fallback));
        return int64_t(std::clamp(number, -9e15, 9e15));  // the end of a slice may be 2^63 - 1
    }
    Ints ints(const string& name) const {
        const Json* found = node.at("attrs").find(name);
        return found && found->kind != Json::Null ? found->ints() : Ints{};
    }
    // Sizes of a window, of which one may stand for all.
    Ints sizes(const string& name, size_t rank, int64_t fallback) const {
        Ints given = ints(name);
        if (given.size() < 2) given.resize(rank, given.empty() ? fallback : given[0]);
        need(given.size() == rank, "no such window");
        for (int64_t size : given) need(0 <= size && size <= LIMIT, "no such window");
        return given;
    }
    // A tensor, or a number as one, which torch rounds to the type of the tensors beside it.
    Tensor tensor(const string& name = "self", double fallback = NAN) const {
        const Json* position = node.at("operands").find(name);
        if (position && position->kind != Json::Null) return value(*position);
        auto& inputs = node.at("inputs").items;
        bool is_single = !inputs.empty() && inputs[0].at("dtype").str() == "float32";
        double number = real(name, fallback);
        return Tensor({}, is_single ? float(number) : number);
    }
};

using Operator = std::function<Tensor(const Call&)>;

struct Argument {
    string name;
    double fallback;
    Argument(const char* name, double fallback = NAN) : name(name), fallback(fallback) {}
};

// The same function of each element of the arguments, expanded to the shape of the result.
Operator pointwise(const std::vector<Argument>& arguments, double (*compute)(Values)) {
    return [=](const Call& call) {
        std::vector<Tensor> operands;
        for (auto& [name, fallback] : arguments) operands.push_back(call.tensor(name, fallback));
        operands.push_back(Tensor(call.shape));
        return elementwise(operands, compute);
    };
}

// A fold, and what is made of it and of the number of elements.
Operator reduction(Fold fold, double (*finish)(Values)) {
    return [=](const Call& call) {
        Tensor x = call.tensor(), made = folded(x, call.ints("dim"), fold);
        Tensor width({}, double(x.size()) / double(made.size()));
        return elementwise({made, width}, finish);
    };
}

// The windows on the last dimensions of a padded tensor: [..., places..., elements...].
Tensor windows(const Call& call, const Tensor& x, const Ints& kernel, const Ints& stride,
               double fill) {
    size_t n = kernel.size(), lead = x.shape.size() - n;
    need(x.shape.size() >= n && call.shape.size() == x.shape.size(), "no such window");
    Ints pads = call.sizes("padding", n, 0), gaps = call.sizes("dilation", n, 1);
    Ints shape = x.shape, view = x.shape;
    for (size_t d = 0; d < n; d++) {
        int64_t places = call.shape[lead + d], whole = x.shape[lead + d] + 2 * pads[d];
        view[lead + d] = places;
        view.push_back(kernel[d]);
        shape[lead + d] = std::max(whole, (places - 1) * stride[d] + gaps[d] * (kernel[d] - 1) + 1);
    }
    Tensor padded(shape, fill);
    Ints every = strides(shape), steps = every;
    int64_t corner = 0;
    for (size_t d = 0; d < n; d++) {
        corner += pads[d] * every[lead + d];
        steps[lead + d] *= stride[d];
        steps.push_back(every[lead + d] * gaps[d]);
    }
    paste(x, padded, corner);
    return strided(padded, view, steps);
}

Tensor max_pool(const Call& call) {
    Ints kernel = call.sizes("kernel_size", 2, 0);
    Ints stride = call.ints("stride").empty() ? kernel : call.sizes("stride", 2, 0);
    return folded(windows(call, call.tensor(), kernel, stride, -INF), {-2, -1}, larger, -INF);
}

// A product of matrices for each group: the windows, and their weights.
Tensor convolution(const Call& call) {
    Tensor x = call.tensor("input"), w = call.tensor("weight"), bias = call.tensor("bias", 0);
    int64_t groups = call.whole("groups", 1), rank = x.rank();
    need(call.real("transposed") == 0, "transposed convolution is not supported");
    need(rank > 2 && w.rank() == rank && groups > 0 && x.shape[1] == w.shape[1] * groups,
         "channels and groups do not fit");
    int64_t n = x.shape[0], channels = w.shape[1], features = w.shape[0] / groups;
    Ints kernel(w.shape.begin() + 2, w.shape.end()), order{1, 0};
    Tensor seen = windows(call, x, kernel, call.sizes("stride", kernel.size(), 1), 0);
    seen.shape[1] = channels;  // [n, groups, channels, places..., elements...], and groups first
    seen.shape.insert(seen.shape.begin() + 1, groups);
    for (int64_t d = 3; d <= rank; d++) order.push_back(d);
    order.push_back(2);
    for (int64_t d = rank + 1; d < 2 * rank - 1; d++) order.push_back(d);
    int64_t length = channels * count(kernel),
            rows = seen.size() / std::max<int64_t>(groups * length, 1);
    Tensor left = reshaped(permuted(seen, order), {groups, rows, length});
    Tensor right = permuted(reshaped(w, {groups, features, length}), {0, 2, 1});
    Tensor made =
        reshaped(product(left, right), {groups, n, rows / std::max<int64_t>(n, 1), features});
    if (bias.rank() > 0) bias.shape.resize(size_t(rank) - 1, 1);
    Tensor one({}, 1);
    return elementwise({reshaped(permuted(made, {1, 0, 3, 2}), call.shape), bias, one}, add);
}

Tensor batch_norm(const Call& call) {
    std::vector<Tensor> given{call.tensor("input"),       call.tensor("running_mean"),
                              call.tensor("running_var"), call.tensor("weight", 1),
                              call.tensor("bias", 0),     Tensor({}, call.real("eps"))};
    for (size_t i = 1; i < 5; i++)
        if (given[i].rank() == 1) given[i].shape.resize(call.shape.size() - 1, 1);
    return elementwise(given, normalize);
}

Tensor layer_norm(const Call& call) {
    Ints dims;
    Tensor x = call.tensor("input"), width({}, double(count(call.ints("normalized_shape"))));
    for (int64_t d = int64_t(call.ints("normalized_shape").size()); d > 0; d--) dims.push_back(-d);
    Tensor mean = elementwise({folded(x, dims, sum), width}, divide);
    Tensor rest = elementwise({x, mean, Tensor({}, 1)}, subtract);
    Tensor variance = elementwise({folded(rest, dims, squares), width}, divide);
    return elementwise({x, mean, variance, call.tensor("weight", 1), call.tensor("bias", 0),
                        Tensor({}, call.real("eps"))},
                       normalize);
}

Tensor softmax(const Call& call) {
    Ints dim{call.whole("dim", 0)};
    Tensor most = folded(call.tensor(), dim, larger, -INF);
    Tensor made =
        elementwise({call.tensor(), most}, [](Values v) { return std::exp(v[0] - v[1]); });
    return elementwise({made, folded(made, dim, sum)}, divide);
}

Tensor addmm(const Call& call) {
    auto compute = [](Values v) { return v[2] * v[0] + v[3] * v[1]; };
    return elementwise({call.tensor(), product(call.tensor("mat1"), call.tensor("mat2")),
                        call.tensor("beta", 1), call.tensor("alpha", 1)},
                       compute);
}

Tensor gelu(const Call& call) {
    const Json* formula = call.node.at("attrs").find("approximate");
    need(!formula || formula->str() == "none", "an approximation is not supported");
    auto compute = [](Values v) { return v[0] * (1 + std::erf(v[0] / std::sqrt(2.0))) / 2; };
    return elementwise({call.tensor()}, compute);
}

Tensor vector_norm(const Call& call) {
    need(call.real("ord", 2) == 2, "a norm of another order is not supported");
    return reduction(squares, [](Values v) { return std::sqrt(v[0]); })(call);
}

Tensor slice(const Call& call) {
    Tensor x = call.tensor();
    size_t dim = axis(call.whole("dim", 0), x.shape);
    Ints steps = strides(x.shape);
    int64_t size = x.shape.at(dim), start = call.whole("start", 0), step = call.whole("step", 1);
    int64_t first = std::clamp<int64_t>(start < 0 ? start + size : start, 0, size) * steps[dim];
    steps[dim] *= std::clamp<int64_t>(step, 0, LIMIT);
    return strided(x, call.shape, steps, first);
}

Tensor cat(const Call& call) {
    Tensor made(call.shape);
    int64_t offset = 0, step = strides(call.shape).at(axis(call.whole("dim", 0), call.shape));
    for (auto& part : call.tensors("tensors")) {
        if (part.size() == 0) continue;
        paste(part, made, offset);
        offset += part.shape.at(axis(call.whole("dim", 0), call.shape)) * step;
    }
    return made;
}

// The rows of a tensor that tensors of indices name, one for each of its first dimensions.
Tensor indexed(const Tensor& x, std::vector<Tensor> indices) {
    need(!indices.empty() && indices.size() <= x.shape.size(), "too many indices");
    indices = broadcast(std::move(indices));
    Ints own = strides(x.shape);
    int64_t rows = indices[0].size(), width = own[indices.size() - 1];
    Tensor made({rows, width});
    for (int64_t i = 0; i < rows; i++) {
        int64_t from = 0;
        for (size_t d = 0; d < indices.size(); d++) {
            auto at = int64_t(indices[d][i]) + (indices[d][i] < 0 ? x.shape[d] : 0);
            need(0 <= at && at < x.shape[d], "an index is out of range");
            from += at * own[d];
        }
        for (int64_t j = 0; j < width; j++) made[i * width + j] = x[from + j];
    }
    return made;
}

Tensor arange(const Call& call) {
    Tensor made(call.shape);
    for (int64_t i = 0; i < made.size(); i++)
        made[i] = call.real("start") + double(i) * call.real("step", 1);
    return made;
}

Tensor itself(const Call& call) { return call.tensor(); }  // run() gives it the recorded shape

const std::map<string, Operator> OPERATORS{
    {"aten._native_batch_norm_legit_no_training.default", batch_norm},
    {"aten._softmax.default", softmax},
    {"aten._to_copy.default", itself},
    {"aten.add.Scalar", pointwise({"self", "other", {"alpha", 1}}, add)},
    {"aten.add.Tensor", pointwise({"self", "other", {"alpha", 1}}, add)},
    {"aten.addmm.default", addmm},
    {"aten.any.dim", reduction(either, same)},
    {"aten.arange.start_step", arange},
    {"aten.bitwise_and.Tensor",
     pointwise({"self", "other"}, [](Values v) { return double(int64_t(v[0]) & int64_t(v[1])); })},
    {"aten.bmm.default", [](const Call& c) { return product(c.tensor(), c.tensor("mat2")); }},
    {"aten.cat.default", cat},
    {"aten.clamp.default", pointwise({"self", {"min", -INF}, {"max", INF}},
                                     [](Values v) {
                                         return v[0] < v[1] ? v[1] : v[0] > v[2] ? v[2] : v[0];
                                     })},
    {"aten.clone.default", itself},
    {"aten.convolution.default", convolution},
    {"aten.div.Tensor", pointwise({"self", "other"}, divide)},
    {"aten.embedding.default",
     [](const Call& c) { return indexed(c.tensor("weight"), {c.tensor("indices")}); }},
    {"aten.eq.Scalar", pointwise({"self", "other"}, [](Values v) { return double(v[0] == v[1]); })},
    {"aten.expand.default", pointwise({"self"}, same)},
    {"aten.expand_copy.default", pointwise({"self"}, same)},
    {"aten.full.default", pointwise({"fill_value"}, same)},
    {"aten.full_like.default", pointwise({"fill_value"}, same)},
    {"aten.ge.Scalar", pointwise({"self", "other"}, [](Values v) { return double(v[0] >= v[1]); })},
    {"aten.gelu.default", gelu},
    {"aten.index.Tensor", [](const Call& c) { return indexed(c.tensor(), c.tensors("indices")); }},
    {"aten.linalg_vector_norm.default", vector_norm},
    {"aten.logical_not.default", pointwise({"self"}, [](Values v) { return double(v[0] == 0); })},
    {"aten.max_pool2d_with_indices.default", max_pool},
    {"aten.mean.dim", reduction(sum, divide)},
    {"aten.mm.default", [](const Call& c) { return product(c.tensor(), c.tensor("mat2")); }},
    {"aten.mul.Scalar", pointwise({"self", "other"}, multiply)},
    {"aten.mul.Tensor", pointwise({"self", "other"}, multiply)},
    {"aten.native_layer_norm.default", layer_norm},
    {"aten.permute.default", [](const Call& c) { return permuted(c.tensor(), c.ints("dims")); }},
    {"aten.permute_copy.default",
     [](const Call& c) { return permuted(c.tensor(), c.ints("dims")); }},
    {"aten.relu.default", pointwise({"self"}, [](Values v) { return v[0] < 0 ? 0 : v[0]; })},
    {"aten.scalar_tensor.default", pointwise({"s"}, same)},
    {"aten.sigmoid.default",
     pointwise({"self"}, [](Values v) { return 1 / (1 + std::exp(-v[0])); })},
    {"aten.slice.Tensor", slice},
    {"aten.slice_copy.Tensor", slice},
    {"aten.sub.Tensor", pointwise({"self", "other", {"alpha", 1}}, subtract)},
    {"aten.sum.dim_IntList", reduction(sum, same)},
    {"aten.tanh.default", pointwise({"self"}, [](Values v) { return std::tanh(v[0]); })},
    {"aten.unsqueeze.default", itself},
    {"aten.unsqueeze_copy.default", itself},
    {"aten.view.default", itself},
    {"aten.view_copy.default", itself},
    {"aten.where.self",
     pointwise({"condition", "self", "other"}, [](Values v) { return v[0] != 0 ? v[1] : v[2]; })},
};

// -- programs -------------------------------------------------------------------------------------

// The sizes that a program records; one that varies is a symbol, which the inputs bind.
Ints sizes(const Json& shape, const std::map<string, int64_t>& symbols) {
    Ints made;
    for (auto& size : shape.items) {
        bool varies = size.kind == Json::Text;
        need(!varies || symbols.count(size.text), "a size is no plain symbol: " + size.text);
        made.push_back(varies ? symbols.at(size.text) : size.whole());
    }
    return made;
}

// A constant is a stored tensor, one value in each place, or a view of another constant. One whose
// type is not known here has no value: what uses it says so.
bool constant(const Json& records, const string& key, const Tensors& stored, Tensor& made) {
    const Json &record = records.at(key), *fill = record.find("fill"), *shown = record.find("view");
    const string& dtype = record.at("dtype").str();
    Ints shape = record.at("shape").ints();
    if (!TYPES.count(dtype)) return false;
    if (shown) {
        Tensor base;
        if (!constant(records, shown->at("of").str(), stored, base)) return false;
        made = strided(base, shape, shown->at("strides").ints(), shown->at("offset").whole());
    } else if (fill) {
        string bytes;
        for (size_t i = 0; i + 1 < fill->str().size(); i += 2)
            bytes += char(std::strtol(fill->text.substr(i, 2).c_str(), nullptr, 16));
        made = Tensor(shape, decoded({}, bytes, dtype)[0]);
    } else {
        const string& name = record.at("tensor").str();
        need(stored.count(name) > 0, "there is no constant " + name);
        made = stored.at(name);
    }
    made.dtype = dtype;
    return true;
}

Tensors run(const Json& ir, Files& files, const Tensors& inputs) {
    double version = ir.at("format_version").real();
    need(version == 1 || version == 2, "the format version is not known");
    auto tensors = [&](const string& name) {
        return files.count(name) ? safetensors(files[name]) : Tensors{};
    };
    Tensors values, weights = tensors("weights.safetensors");
    const Tensors stored = tensors("constants.safetensors");
    const Json none, *named = ir.find("weight_name_mapping"), *constants = ir.find("constants");
    for (auto& [name, key] : named ? named->fields : none.fields) {
        auto weight = weights.find(key.str());
        bool is_known = constants && constants->find(key.str());
        Tensor made;
        if (weight != weights.end())
            values[name] = weight->second;
        else if (is_known && constant(*constants, key.str(), stored, made))
            values[name] = made;
    }
    std::map<string, int64_t> symbols;
    for (auto& meta : ir.at("graph_inputs").items) {
        auto given = inputs.find(meta.at("name").str());
        need(given != inputs.end(), "there is no input " + meta.at("name").str());
        const Tensor& x = values[given->first] = given->second;
        auto& shape = meta.at("shape").items;
        for (size_t d = 0; d < std::min(shape.size(), x.shape.size()); d++)
            if (shape[d].kind == Json::Text) symbols.emplace(shape[d].text, x.shape[d]);
        need(x.dtype == meta.at("dtype").str() && x.shape == sizes(meta.at("shape"), symbols),
             "the type or shape of an input is another: " + given->first);
    }
    for (auto& node : ir.at("nodes").items) {
        const string &name = node.at("name").str(), &op_type = node.at("op_type").str();
        if (op_type == "aten._assert_tensor_metadata.default") continue;
        auto known = OPERATORS.find(op_type);
        need(known != OPERATORS.end(),
             "node " + name + ": there is no operator " + op_type + " here");
        try {
            need(!node.at("outputs").items.empty(), "it has no result");
            const Json& first = node.at("outputs").items[0];
            Ints shape = sizes(first.at("shape"), symbols);
            Tensor made = reshaped(known->second(Call{node, values, shape}), shape);
            const string& dtype = first.at("dtype").str();
            values[first.at("name").str()] = decoded(shape, encoded(made, dtype), dtype);
        } catch (const std::exception& error) {
            throw std::runtime_error("node " + name + ": " + error.what());
        }
    }
    Tensors made;
    for (auto& meta : ir.at("graph_outputs").items) {
        auto found = values.find(meta.at("name").str());
        need(found != values.end(), "an output has no value");
        made[found->first] = found->second;
    }
    return made;
}

int main(int count, char** arguments) {
    try {
        need(count == 4, "usage: reader PROGRAM.tir INPUTS.safetensors OUTPUTS.safetensors");
        Files files = archive(arguments[1]);
        Json ir = parse_json(files["ir.json"]);
        write(arguments[3], run(ir, files, safetensors(read(arguments[2]))));
    } catch (const std::exception& error) {
        std::cerr << "error: " << error.what() << std::endl;
        return 1;
    }
}
