// Runs a program of torch-ir, in core ATen, from its archive and nothing else.
//
//     g++ -std=c++17 -O2 -o reader reader.cpp
//     ./reader PROGRAM.tir INPUTS.safetensors OUTPUTS.safetensors
//
// Inputs and outputs go by their names in the graph. Values are float32, int64 (to 2^53) or bool:
// they are computed in double, and rounded to the type that the program records. A damaged file
// ends in one line on stderr and status 1; members are compared with the CRC-32 of the zip.

#include <fstream>
#include <iostream>

#include "json.hpp"

using std::string;
using Ints = std::vector<int64_t>;
using Files = std::map<string, string>;

constexpr int64_t LIMIT = int64_t(1) << 27;  // elements of one tensor

// -- tensors, in row-major order ------------------------------------------------------------------
int64_t count(const Ints& shape) {
    int64_t total = 1;
    for (int64_t n : shape) {
        need(0 <= n && n <= LIMIT && total * n <= LIMIT, "no such shape");
        total *= n;
    }
    return total;
}

struct Tensor {
    Ints shape;
    std::vector<double> data;
    string dtype;
    explicit Tensor(const Ints& n, double fill = 0) : shape(n), data(size_t(count(n)), fill) {}
    Tensor(double number = 0) : data(1, number) {}
    int64_t size() const { return int64_t(data.size()); }
    // Where an element lies; a dimension of size 1, or none, stands for any size.
    size_t place(const Ints& index) const {
        size_t place = 0, more = index.size() - shape.size();
        for (size_t d = 0; d < shape.size(); d++) {
            int64_t i = shape[d] == 1 ? 0 : index.at(more + d);
            need(0 <= i && i < shape[d], "an index is out of range");
            place = place * size_t(shape[d]) + size_t(i);
        }
        return place;
    }
    double at(const Ints& index) const { return data[place(index)]; }
};

using Tensors = std::map<string, Tensor>;

// A tensor whose elements are a function of their indices.
template <class F>
Tensor built(const Ints& shape, F element) {
    Tensor made(shape);
    Ints index(shape.size());
    for (double& value : made.data) {
        value = element(index);
        for (size_t d = shape.size(); d-- > 0 && ++index[d] == shape[d];) index[d] = 0;
    }
    return made;
}

// The same elements in another shape, or each as often as a larger shape asks.
Tensor shaped(Tensor x, const Ints& shape) {
    need(x.size() <= count(shape), "sizes do not go together");
    if (x.size() < count(shape)) return built(shape, [&](auto& index) { return x.at(index); });
    x.shape = shape;
    return x;
}

size_t axis(int64_t dim, const Ints& shape) {
    int64_t rank = int64_t(shape.size()), found = dim < 0 ? dim + rank : dim;
    need(0 <= found && found < rank, "no such dimension");
    return size_t(found);
}

// The same function of each element of one to three tensors, which are brought to one shape.
template <class F>
Tensor each(F compute, const Tensor& x, const Tensor& y = 0, const Tensor& z = 0) {
    Ints shape(std::max({x.shape.size(), y.shape.size(), z.shape.size()}), 1);
    for (auto* sizes : {&x.shape, &y.shape, &z.shape})
        for (size_t d = sizes->size(), to = shape.size(); to--, d-- > 0;) {
            need(shape[to] == 1 || (*sizes)[d] == 1 || (*sizes)[d] == shape[to], "other sizes");
            if ((*sizes)[d] != 1) shape[to] = (*sizes)[d];
        }
    return built(shape, [&](auto& i) { return compute(x.at(i), y.at(i), z.at(i)); });
}

#define EACH(result) [](double x, double y, double z) { return void(y), void(z), double(result); }
Tensor operator+(const Tensor& a, const Tensor& b) { return each(EACH(x + y), a, b); }
Tensor operator-(const Tensor& a, const Tensor& b) { return each(EACH(x - y), a, b); }
Tensor operator*(const Tensor& a, const Tensor& b) { return each(EACH(x * y), a, b); }
Tensor operator/(const Tensor& a, const Tensor& b) { return each(EACH(x / y), a, b); }
Tensor sqrt(const Tensor& a) { return each(EACH(std::sqrt(x)), a); }
double sum(double a, double b) { return a + b; }
double squares(double a, double b) { return a + b * b; }
double larger(double a, double b) { return b > a || std::isnan(b) ? b : a; }

// Folds the elements along some dimensions, or all, which keep the size 1.
Tensor folded(const Tensor& x, const Ints& dims, double (*fold)(double, double), double start = 0) {
    Ints shape = dims.empty() ? Ints(x.shape.size(), 1) : x.shape;
    for (int64_t dim : dims)
        if (!shape.empty()) shape[axis(dim, shape)] = 1;
    Tensor made(shape, start);
    built(x.shape, [&](auto& index) {
        double& total = made.data[made.place(index)];
        return total = fold(total, x.at(index));
    });
    return made;
}

// The product of two matrices, or of each two in two lists.
Tensor product(const Tensor& left, const Tensor& right) {
    Ints shape = left.shape, other = right.shape;
    need(shape.size() > 1 && shape.size() == other.size() && shape.back() == other.end()[-2] &&
             std::equal(shape.begin(), shape.end() - 2, other.begin()),
         "no product of matrices");
    size_t n = size_t(shape.end()[-2]), k = size_t(shape.back()), m = size_t(other.back());
    shape.back() = other.back();
    Tensor made(shape);
    for (size_t i = 0; i < made.data.size(); i++)
        for (size_t p = 0; p < k; p++)
            made.data[i] += left.data[i / m * k + p] * right.data[(i / m / n * k + p) * m + i % m];
    return made;
}

// -- files, on a little-endian machine ------------------------------------------------------------
string read(const string& path) {
    std::ifstream file(path, std::ios::binary);
    need(bool(file), "cannot read " + path);
    return {std::istreambuf_iterator<char>(file), {}};
}

string part(const string& data, uint64_t at, uint64_t size) {
    need(at <= data.size() && size <= data.size() - at, "a file is cut off");
    return data.substr(at, size);
}

uint64_t little(const string& data, uint64_t at, uint64_t size) {
    uint64_t made = 0;
    std::memcpy(&made, part(data, at, size).data(), size);
    return made;
}

template <class T>
string bytes_of(T value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
}

const std::map<string, std::pair<string, size_t>> TYPES{
    {"float32", {"F32", 4}}, {"int64", {"I64", 8}}, {"bool", {"BOOL", 1}}};

double decoded(const string& bytes) {
    union { float single; int64_t whole; uint8_t flag; } value{};
    std::memcpy(&value, bytes.data(), bytes.size());
    if (bytes.size() == 4) return value.single;
    return bytes.size() == 8 ? double(value.whole) : double(value.flag);
}

string encoded(double number, const string& dtype) {
    size_t size = lookup(TYPES, dtype).second;
    need(size != 8 || std::abs(number) <= 0x1p53, "an integer beyond 2^53");
    if (size == 8) return bytes_of(int64_t(number));
    return size == 4 ? bytes_of(float(number)) : bytes_of(char(number != 0));
}

// The tensors of a safetensors file; those of other types are left out.
Tensors safetensors(const string& data) {
    if (data.empty()) return {};
    uint64_t length = little(data, 0, 8);
    Json header = parse_json(part(data, 8, length));
    Tensors found;
    for (auto& [name, record] : header.fields)
        for (auto& [dtype, type] : TYPES) {
            if (name == "__metadata__" || record.at("dtype").str() != type.first) continue;
            Tensor& made = found[name] = Tensor(record.at("shape").ints());
            Ints span = record.at("data_offsets").ints();
            uint64_t at = 8 + length + uint64_t(span.at(0)), size = type.second;
            need(span[0] >= 0 && span.at(1) - span[0] == made.size() * int64_t(size),
                 "a tensor has another size: " + name);
            made.dtype = dtype;
            for (size_t i = 0; i < made.data.size(); i++)
                made.data[i] = decoded(part(data, at + i * size, size));
        }
    if (const Json* same = header.get("__metadata__").find("torch-ir-same"))
        for (auto& [key, first] : parse_json(same->str()).fields) found[key] = found[first.str()];
    return found;
}

void write(const string& path, const Tensors& named) {
    string header, body;
    for (auto& [name, tensor] : named) {
        string sizes, from = std::to_string(body.size());
        for (int64_t n : tensor.shape) sizes += (sizes.empty() ? "" : ",") + std::to_string(n);
        for (double number : tensor.data) body += encoded(number, tensor.dtype);
        header += (header.empty() ? "" : ",") + quoted_json(name) + ":{\"dtype\":\"" +
                  TYPES.at(tensor.dtype).first + "\",\"shape\":[" + sizes + "],\"data_offsets\":[" +
                  from + "," + std::to_string(body.size()) + "]}";
    }
    std::ofstream file(path, std::ios::binary);
    file << bytes_of(uint64_t(header.size() + 2)) << '{' << header << '}' << body << std::flush;
    need(bool(file), "cannot write " + path);
}

uint32_t crc32(const string& data) {
    uint32_t rest = ~0u;
    for (size_t bit = 0; bit < 8 * data.size(); bit++) {
        rest ^= bit % 8 == 0 ? uint8_t(data[bit / 8]) : 0;
        rest = rest >> 1 ^ (rest & 1 ? 0xEDB88320u : 0);
    }
    return ~rest;
}

// The members of an archive.
Files archive(const string& path) {
    string file = read(path);
    size_t end = file.rfind(string("PK\5\6", 4));
    need(end != string::npos, "not a zip archive");
    uint64_t at = little(file, end + 16, 4);
    Files found;
    for (uint64_t count = little(file, end + 10, 2); count > 0; count--) {
        uint64_t size = little(file, at + 24, 4), name = little(file, at + 28, 2);
        uint64_t local = little(file, at + 42, 4), method = little(file, at + 10, 2);
        string key = part(file, at + 46, name);
        uint64_t start = local + 30 + little(file, local + 26, 2) + little(file, local + 28, 2);
        found[key] = part(file, start, size);
        need(method == 0 && crc32(found[key]) == little(file, at + 16, 4), key + " is damaged");
        at += 46 + name + little(file, at + 30, 2) + little(file, at + 32, 2);
    }
    Json manifest = parse_json(lookup(found, "manifest.json"));
    need(manifest.at("version").real() == 1, "an unknown version");
    for (auto& member : manifest.at("members").fields) lookup(found, member.first);
    return found;
}

// -- operators ------------------------------------------------------------------------------------
// One node with the values that it takes, and the shape of its first result.
struct Call {
    const Json& node;
    const Tensors& values;
    Ints shape;
    const Json* attr(const string& name) const { return node.at("attrs").find(name); }
    const Tensor& value(const Json& position) const {
        auto& input = node.at("inputs").items.at(size_t(position.whole()));
        return lookup(values, input.at("name").str());
    }
    std::vector<Tensor> tensors(const string& name) const {
        std::vector<Tensor> made;
        for (auto& position : node.at("operands").at(name).items) made.push_back(value(position));
        return made;
    }
    // What a file leaves out has the default of the schema (docs/operators.json).
    double real(const string& name, double fallback = NAN) const {
        need(attr(name) || !std::isnan(fallback), "there is no " + name);
        return attr(name) ? attr(name)->real() : fallback;
    }
    int64_t whole(const string& name, int64_t fallback) const {
        return int64_t(std::clamp(real(name, double(fallback)), -0x1p53, 0x1p53));
    }
    // A list, of which one number may stand for all.
    Ints ints(const string& name, size_t rank = 0, int64_t fallback = 0) const {
        Ints made = attr(name) ? attr(name)->ints() : Ints{};
        if (rank > 0 && made.size() < 2) made.resize(rank, made.empty() ? fallback : made[0]);
        need(rank == 0 || made.size() == rank, "there are more or fewer " + name);
        for (int64_t n : made) need(std::abs(n) <= LIMIT, "no such " + name);
        return made;
    }
    // A tensor, or a number as one, which torch rounds to the type of the tensors beside it.
    Tensor operator()(const string& name = "self", double fallback = NAN) const {
        if (const Json* position = node.at("operands").find(name)) return value(*position);
        auto& inputs = node.at("inputs").items;
        bool is_single = !inputs.empty() && inputs[0].at("dtype").str() == "float32";
        return is_single ? float(real(name, fallback)) : real(name, fallback);
    }
    // A tensor of one dimension, beside the channels of the result.
    Tensor channels(const string& name, double fallback = NAN) const {
        Tensor made = (*this)(name, fallback);
        if (made.shape.size() == 1) made.shape.resize(shape.size() - 1, 1);
        return made;
    }
};

// The windows on the last dimensions of a tensor: [..., elements..., places...].
Tensor windows(const Call& c, const Tensor& x, Ints kernel, Ints stride, double fill) {
    size_t n = kernel.size(), lead = x.shape.size() - n;
    need(x.shape.size() >= n && c.shape.size() == x.shape.size(), "no such window");
    Ints pads = c.ints("padding", n, 0), gaps = c.ints("dilation", n, 1), shape = c.shape;
    std::copy(x.shape.begin(), x.shape.begin() + lead, shape.begin());
    shape.insert(shape.begin() + lead, kernel.begin(), kernel.end());
    return built(shape, [&](const Ints& index) {
        Ints at(index.begin(), index.begin() + lead);
        for (size_t d = 0; d < n; d++) {
            at.push_back(index[lead + n + d] * stride[d] - pads[d] + index[lead + d] * gaps[d]);
            if (at.back() < 0 || at.back() >= x.shape[lead + d]) return fill;
        }
        return x.at(at);
    });
}

// A product of matrices for each group: the weights, and the windows.
Tensor convolution(const Call& call) {
    Tensor x = call("input"), w = call("weight");
    int64_t groups = call.whole("groups", 1);
    need(groups > 0 && w.shape.at(0) % groups == 0 && x.shape.at(1) == w.shape.at(1) * groups &&
             w.shape.size() == x.shape.size(), "channels and groups do not fit");
    Ints kernel(w.shape.begin() + 2, w.shape.end());
    Tensor seen = windows(call, x, kernel, call.ints("stride", kernel.size(), 1), 0);
    int64_t n = x.shape[0], features = w.shape[0] / groups, length = w.shape[1] * count(kernel);
    Tensor left = shaped(shaped(w, {1, w.size()}), {n, w.size()});
    Tensor made = product(shaped(left, {n * groups, features, length}),
                          shaped(seen, {n * groups, length, seen.size() / (n * groups * length)}));
    return shaped(made, call.shape) + call.channels("bias", 0);
}

// The elements of a tensor where tensors of indices stand for its first dimensions.
Tensor indexed(const Call& c, const Tensor& x, std::vector<Tensor> indices) {
    size_t rest = x.shape.size() - indices.size();
    need(indices.size() <= x.shape.size() && rest <= c.shape.size(), "too many indices");
    for (auto& i : indices) i = shaped(i, Ints(c.shape.begin(), c.shape.end() - rest));
    return built(c.shape, [&](const Ints& index) {
        Ints lead(index.begin(), index.end() - rest), at;
        for (auto& i : indices) at.push_back(int64_t(i.at(lead)));
        for (size_t d = 0; d < at.size(); d++) {
            at[d] += at[d] < 0 ? x.shape[d] : 0;
            need(0 <= at[d] && at[d] < x.shape[d], "an index is out of range");
        }
        at.insert(at.end(), index.end() - rest, index.end());
        return x.at(at);
    });
}

#define OP(names, result) {names, [](const Call& c) -> Tensor { return result; }}
const std::map<string, Tensor (*)(const Call&)> OPERATORS{
    OP("aten._native_batch_norm_legit_no_training.default",
       (c("input") - c.channels("running_mean")) / sqrt(c.channels("running_var") + c.real("eps")) *
               c.channels("weight", 1) + c.channels("bias", 0)),
    {"aten._softmax.default", [](const Call& c) {
        Tensor x = c(), most = folded(x, c.ints("dim"), larger, -INFINITY);
        Tensor powers = each(EACH(std::exp(x - y)), x, most);
        return powers / folded(powers, c.ints("dim"), sum);
    }},
    OP("aten._to_copy.default aten.clone.default aten.expand.default aten.expand_copy.default "
       "aten.unsqueeze.default aten.unsqueeze_copy.default aten.view.default "
       "aten.view_copy.default", c()),  // run() gives it the recorded shape and type
    OP("aten.add.Scalar aten.add.Tensor", c() + c("other") * c("alpha", 1)),
    OP("aten.addmm.default", c() * c("beta", 1) + product(c("mat1"), c("mat2")) * c("alpha", 1)),
    OP("aten.any.dim", each(EACH(x != 0), folded(c(), c.ints("dim"), squares))),
    OP("aten.arange.start_step",
       built(c.shape, [&](auto& i) { return c.real("start") + double(i[0]) * c.real("step", 1); })),
    OP("aten.bitwise_and.Tensor", each(EACH(double(int64_t(x) & int64_t(y))), c(), c("other"))),
    OP("aten.bmm.default aten.mm.default", product(c(), c("mat2"))),
    {"aten.cat.default", [](const Call& c) {
        size_t dim = axis(c.whole("dim", 0), c.shape);
        return built(c.shape, [dim, parts = c.tensors("tensors")](Ints index) {
            for (auto& x : parts) {
                if (x.size() > 0 && index[dim] < x.shape.at(dim)) return x.at(index);
                index[dim] -= x.size() > 0 ? x.shape[dim] : 0;
            }
            return double(NAN);
        });
    }},
    OP("aten.clamp.default",
       each(EACH(x < y ? y : x > z ? z : x), c(), c("min", -INFINITY), c("max", INFINITY))),
    {"aten.convolution.default", convolution},
    OP("aten.div.Tensor", c() / c("other")),
    OP("aten.embedding.default", indexed(c, c("weight"), {c("indices")})),
    OP("aten.eq.Scalar", each(EACH(x == y), c(), c("other"))),
    OP("aten.full.default aten.full_like.default", c("fill_value")),
    OP("aten.ge.Scalar", each(EACH(x >= y), c(), c("other"))),
    OP("aten.gelu.default", each(EACH(x * (1 + std::erf(x / std::sqrt(2.0))) / 2), c())),
    OP("aten.index.Tensor", indexed(c, c(), c.tensors("indices"))),
    OP("aten.linalg_vector_norm.default", sqrt(folded(c(), c.ints("dim"), squares))),
    OP("aten.logical_not.default", each(EACH(x == 0), c())),
    {"aten.max_pool2d_with_indices.default", [](const Call& c) {
        Ints kernel = c.ints("kernel_size", 2);
        Ints stride = c.ints("stride").empty() ? kernel : c.ints("stride", 2);
        return folded(windows(c, c(), kernel, stride, -INFINITY), {-4, -3}, larger, -INFINITY);
    }},
    OP("aten.mean.dim", folded(c(), c.ints("dim"), sum) / (double(c().size()) / count(c.shape))),
    OP("aten.mul.Scalar aten.mul.Tensor", c() * c("other")),
    {"aten.native_layer_norm.default", [](const Call& c) {
        Ints sizes = c.ints("normalized_shape"), dims;
        for (size_t d = 1; d <= sizes.size(); d++) dims.push_back(-int64_t(d));
        Tensor width = double(count(sizes)), x = c("input") - folded(c("input"), dims, sum) / width;
        Tensor variance = folded(x, dims, squares) / width;
        return x / sqrt(variance + c.real("eps")) * c("weight", 1) + c("bias", 0);
    }},
    {"aten.permute.default aten.permute_copy.default", [](const Call& c) {
        Ints dims = c.ints("dims", c.shape.size()), at = dims;
        return built(c.shape, [&, x = c()](const Ints& index) {
            for (size_t d = 0; d < at.size(); d++) at[axis(dims[d], index)] = index[d];
            return x.at(at);
        });
    }},
    OP("aten.relu.default", each(EACH(x < 0 ? 0 : x), c())),
    OP("aten.scalar_tensor.default", c("s")),
    OP("aten.sigmoid.default", each(EACH(1 / (1 + std::exp(-x))), c())),
    {"aten.slice.Tensor aten.slice_copy.Tensor", [](const Call& c) {
        size_t dim = axis(c.whole("dim", 0), c.shape);
        int64_t size = c().shape.at(dim), start = c.whole("start", 0), step = c.whole("step", 1);
        start = std::clamp<int64_t>(start < 0 ? start + size : start, 0, size);
        return built(c.shape, [&, x = c()](Ints index) {
            index[dim] = start + index[dim] * step;
            return x.at(index);
        });
    }},
    OP("aten.sub.Tensor", c() - c("other") * c("alpha", 1)),
    OP("aten.sum.dim_IntList", folded(c(), c.ints("dim"), sum)),
    OP("aten.tanh.default", each(EACH(std::tanh(x)), c())),
    OP("aten.where.self", each(EACH(x != 0 ? y : z), c("condition"), c(), c("other"))),
};

// -- programs -------------------------------------------------------------------------------------
// A constant is stored, one number in each place, or a view of another constant.
Tensor constant(const Json& records, const string& key, const Tensors& stored) {
    const Json &record = records.at(key), *fill = record.find("fill"), *view = record.find("view");
    Ints shape = record.at("shape").ints();
    if (fill) {
        string bytes;
        for (size_t i = 0; i + 1 < fill->str().size(); i += 2)
            bytes += char(std::strtol(fill->text.substr(i, 2).c_str(), nullptr, 16));
        return Tensor(shape, decoded(part(bytes, 0, TYPES.at(record.at("dtype").str()).second)));
    }
    if (!view) return lookup(stored, record.at("tensor").str());
    Tensor base = constant(records, view->at("of").str(), stored);
    Ints steps = view->at("strides").ints();
    return built(shape, [&](const Ints& index) {
        int64_t at = view->at("offset").whole();
        for (size_t d = 0; d < index.size(); d++) at += index[d] * steps.at(d);
        return base.data.at(size_t(at));
    });
}

Tensors run(Files files, const Tensors& inputs) {
    const Json ir = parse_json(lookup(files, "ir.json"));
    need(ir.at("format_version").real() <= 2, "the format version is not known");
    Tensors values, made, weights = safetensors(files["weights.safetensors"]);
    const Tensors stored = safetensors(files["constants.safetensors"]);
    for (auto& [name, key] : ir.get("weight_name_mapping").fields) {
        values[name] = weights[key.str()];
        if (!values[name].dtype.empty()) continue;
        values[name] = constant(ir.get("constants"), key.str(), stored);
        values[name].dtype = ir.at("constants").at(key.str()).at("dtype").str();
    }
    std::map<string, int64_t> symbols;  // sizes that vary, which the inputs bind
    auto sizes = [&](const Json& shape) {
        Ints made;
        for (auto& n : shape.items)
            made.push_back(n.kind == Json::Text ? lookup(symbols, n.text) : n.whole());
        return made;
    };
    for (auto& meta : ir.at("graph_inputs").items) {
        const string& name = meta.at("name").str();
        const Tensor& x = values[name] = lookup(inputs, name);
        auto& shape = meta.at("shape").items;
        for (size_t d = 0; d < std::min(shape.size(), x.shape.size()); d++)
            if (shape[d].kind == Json::Text) symbols.emplace(shape[d].text, x.shape[d]);
        need(x.dtype == meta.at("dtype").str() && x.shape == sizes(meta.at("shape")),
             "the type or shape of an input is another: " + name);
    }
    const Json only = parse_json(R"({"approximate": "none", "ord": 2, "transposed": false})");
    for (auto& node : ir.at("nodes").items) {
        const string &name = node.at("name").str(), &op_type = node.at("op_type").str();
        if (op_type == "aten._assert_tensor_metadata.default") continue;
        auto found = std::find_if(OPERATORS.begin(), OPERATORS.end(), [&](auto& known) {
            return (" " + known.first + " ").find(" " + op_type + " ") != string::npos;
        });
        try {
            need(found != OPERATORS.end(), "there is no operator " + op_type + " here");
            for (auto& [key, value] : only.fields) {
                const Json* given = node.at("attrs").find(key);
                need(!given || *given == value, "another " + key + " is not supported");
            }
            const Json& result = node.at("outputs").items.at(0);
            Ints shape = sizes(result.at("shape"));
            Tensor made = shaped(found->second(Call{node, values, shape}), shape);
            made.dtype = result.at("dtype").str();
            for (double& x : made.data) x = decoded(encoded(x, made.dtype));
            values[result.at("name").str()] = made;
        } catch (const std::exception& error) {
            throw std::runtime_error("node " + name + ": " + error.what());
        }
    }
    for (auto& meta : ir.at("graph_outputs").items)
        made[meta.at("name").str()] = lookup(values, meta.at("name").str());
    return made;
}

int main(int count, char** arguments) {
    try {
        need(count == 4, "usage: reader PROGRAM.tir INPUTS.safetensors OUTPUTS.safetensors");
        write(arguments[3], run(archive(arguments[1]), safetensors(read(arguments[2]))));
    } catch (const std::exception& error) {
        std::cerr << "error: " << error.what() << std::endl;
        return 1;
    }
}
