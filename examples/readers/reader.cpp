// Runs a float32 program of torch-ir, in core ATen, from its archive and nothing else.
//
//     g++ -std=c++17 -O2 -o reader reader.cpp
//     ./reader PROGRAM.tir INPUTS.safetensors OUTPUTS.safetensors
//
// Inputs and outputs go by their names in the graph. Every tensor here lies in row-major order.
// What docs/format.md says is checked: a damaged file ends in one line on stderr and status 1.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using std::string;
using Ints = std::vector<int64_t>;

constexpr int64_t LIMIT = int64_t(1) << 28;  // elements of one tensor

void need(bool condition, const string& text) {
    if (!condition) throw std::runtime_error(text);
}

// -- JSON -----------------------------------------------------------------------------------------

struct Json {
    enum Kind { Null, Bool, Number, Text, List, Object } kind = Null;
    bool truth = false;
    double number = 0;
    string text;
    std::vector<Json> items;
    std::map<string, Json> fields;

    const Json* find(const string& key) const {
        auto found = fields.find(key);
        return found == fields.end() ? nullptr : &found->second;
    }
    const Json& at(const string& key) const {
        need(kind == Object && find(key), "a document without " + key);
        return *find(key);
    }
    const string& str() const { return need(kind == Text, "a text is wanted"), text; }
    double real() const { return need(kind == Number, "a number is wanted"), number; }
    int64_t whole() const {
        need(kind == Number && number == std::floor(number), "an integer is wanted");
        return int64_t(std::clamp(number, -9e15, 9e15));  // the end of a slice may be 2^63 - 1
    }
    Ints ints() const {
        if (kind == Number) return {whole()};
        need(kind == List, "a list is wanted");
        Ints made;
        for (auto& item : items) made.push_back(item.whole());
        return made;
    }
};

struct Parser {
    const string& text;
    size_t at = 0;
    int depth = 0;

    char peek() {
        while (at < text.size() && std::strchr(" \n\r\t", text[at])) at++;
        need(at < text.size(), "a document is cut off");
        return text[at];
    }
    bool take(char wanted) { return peek() == wanted ? ++at : false; }
    void expect(char wanted) { need(take(wanted), string("a document without ") + wanted); }

    Json value() {
        Json made;
        need(++depth < 200, "a document is nested too deeply");
        char first = peek();
        if (first == '{') {
            made.kind = Json::Object;
            at++;
            if (!take('}')) {
                do {
                    peek();
                    string key = quoted();
                    expect(':');
                    made.fields[key] = value();
                } while (take(','));
                expect('}');
            }
        } else if (first == '[') {
            made.kind = Json::List;
            at++;
            if (!take(']')) {
                do made.items.push_back(value());
                while (take(','));
                expect(']');
            }
        } else if (first == '"') {
            made.kind = Json::Text;
            made.text = quoted();
        } else {
            size_t end = text.find_first_of(",]} \n\r\t", at);
            string word = text.substr(at, end == string::npos ? end : end - at);
            at += word.size();
            if (word == "true" || word == "false") {
                made.kind = Json::Bool;
                made.truth = word == "true";
            } else if (word != "null") {
                size_t used = 0;
                made.kind = Json::Number;
                try {
                    made.number = std::stod(word, &used);
                } catch (const std::exception&) {
                }
                need(used == word.size() && used > 0, "a document has an unknown word");
            }
        }
        depth--;
        return made;
    }

    string quoted() {
        expect('"');
        string made;
        while (true) {
            need(at < text.size(), "a document is cut off");
            char c = text[at++];
            if (c == '"') return made;
            if (c != '\\') {
                made += c;
                continue;
            }
            need(at < text.size(), "a document is cut off");
            c = text[at++];
            const char *names = "bfnrt", *codes = "\b\f\n\r\t", *known = std::strchr(names, c);
            if (c == 'u') {
                need(at + 4 <= text.size(), "a document is cut off");
                unsigned code = unsigned(std::strtoul(text.substr(at, 4).c_str(), nullptr, 16));
                at += 4;
                if (code < 0x80) made += char(code);
                else if (code < 0x800) made += {char(0xC0 | code >> 6), char(0x80 | (code & 63))};
                else made += {char(0xE0 | code >> 12), char(0x80 | ((code >> 6) & 63)),
                              char(0x80 | (code & 63))};
            } else {
                made += known ? codes[known - names] : c;
            }
        }
    }
};

Json parse(const string& text) {
    Parser parser{text};
    return parser.value();
}

string escaped(const string& text) {
    string made = "\"";
    for (char c : text) made += (c == '"' || c == '\\') ? string{'\\', c} : string{c};
    return made + '"';
}

// -- files ----------------------------------------------------------------------------------------

string read(const string& path) {
    std::ifstream file(path, std::ios::binary);
    need(bool(file), "cannot read " + path);
    return {std::istreambuf_iterator<char>(file), {}};
}

uint64_t little(const string& data, size_t at, int bytes) {
    need(at <= data.size() && data.size() - at >= size_t(bytes), "a file is cut off");
    uint64_t made = 0;
    while (bytes-- > 0) made = made << 8 | uint8_t(data[at + size_t(bytes)]);
    return made;
}

string part(const string& data, uint64_t at, uint64_t size, const string& what) {
    need(at <= data.size() && size <= data.size() - at, what + " is cut off");
    return data.substr(at, size);
}

string sha256(string data) {
    static const auto roots = [](int count, double power) {
        std::vector<uint32_t> made;  // the first bits of roots of primes
        for (int n = 2; int(made.size()) < count; n++) {
            bool prime = true;
            for (int d = 2; d * d <= n; d++) prime &= n % d != 0;
            long double root = std::pow((long double)n, (long double)1 / power);
            if (prime) made.push_back(uint32_t((root - std::floor(root)) * 4294967296.0L));
        }
        return made;
    };
    static const auto k = roots(64, 3);
    auto state = roots(8, 2);
    auto turn = [](uint32_t x, int n) { return x >> n | x << (32 - n); };
    uint64_t bits = data.size() * 8;
    data += char(0x80);
    while (data.size() % 64 != 56) data += char(0);
    for (int i = 7; i >= 0; i--) data += char(bits >> (8 * i));
    for (size_t block = 0; block < data.size(); block += 64) {
        uint32_t w[64];
        for (size_t i = 0; i < 16; i++) {
            w[i] = 0;
            for (size_t j = 0; j < 4; j++) w[i] = w[i] << 8 | uint8_t(data[block + 4 * i + j]);
        }
        for (int i = 16; i < 64; i++) {
            uint32_t a = w[i - 15], b = w[i - 2];
            w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] +
                   (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
        }
        auto s = state;
        for (size_t i = 0; i < 64; i++) {
            uint32_t first = s[7] + (turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25)) +
                             ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
            uint32_t second = (turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22)) +
                              ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
            s = {first + second, s[0], s[1], s[2], s[3] + first, s[4], s[5], s[6]};
        }
        for (size_t i = 0; i < 8; i++) state[i] += s[i];
    }
    string made;
    for (uint32_t word : state)
        for (int i = 28; i >= 0; i -= 4) made += "0123456789abcdef"[word >> i & 15];
    return made;
}

using Files = std::map<string, string>;

// The members of an archive, each compared with its hash in the manifest.
Files archive(const string& path) {
    string file = read(path);
    size_t end = file.rfind(string("PK\5\6", 4));
    need(end != string::npos, "not a zip archive");
    uint64_t at = little(file, end + 16, 4), count = little(file, end + 10, 2);
    Files found;
    while (count-- > 0) {
        need(little(file, at, 4) == 0x02014b50, "the zip directory is damaged");
        uint64_t size = little(file, at + 24, 4), name = little(file, at + 28, 2);
        uint64_t local = little(file, at + 42, 4), method = little(file, at + 10, 2);
        string key = part(file, at + 46, name, "the zip directory");
        need(method == 0 && little(file, local, 4) == 0x04034b50, "a member is damaged");
        uint64_t start = local + 30 + little(file, local + 26, 2) + little(file, local + 28, 2);
        found[key] = part(file, start, size, "a member");
        at += 46 + name + little(file, at + 30, 2) + little(file, at + 32, 2);
    }
    need(found.count("manifest.json") && found.count("ir.json"), "not a torch-ir archive");
    Json manifest = parse(found["manifest.json"]);
    need(manifest.at("format").str() == "torch-ir archive" && manifest.at("version").real() == 1,
         "an unknown version");
    auto& listed = manifest.at("members").fields;
    for (auto& [name, record] : listed) {
        need(found.count(name) > 0, "there is no member " + name);
        need(sha256(found[name]) == record.at("sha256").str(), "a member has another hash: " + name);
    }
    need(found.size() == listed.size() + 1, "a member is not listed");
    return found;
}

// -- tensors --------------------------------------------------------------------------------------

int64_t count(const Ints& shape) {
    int64_t total = 1;
    for (int64_t n : shape) {
        need(n >= 0 && n <= LIMIT, "no such shape");
        total *= n;
        need(total <= LIMIT, "a tensor is too large");
    }
    return total;
}

struct Tensor {
    Ints shape;
    std::vector<float> data;
    explicit Tensor(Ints sizes = {}) : shape(std::move(sizes)), data(size_t(count(shape))) {}
    int64_t size() const { return int64_t(data.size()); }
    int64_t rank() const { return int64_t(shape.size()); }
    float& operator[](int64_t i) { return data[size_t(i)]; }
    float operator[](int64_t i) const { return data[size_t(i)]; }
};

using Tensors = std::map<string, Tensor>;

Tensors safetensors(const string& data) {
    uint64_t length = little(data, 0, 8);
    Json header = parse(part(data, 8, length, "the header of a safetensors file"));
    need(header.kind == Json::Object, "the header of a safetensors file is damaged");
    Tensors found;
    for (auto& [name, record] : header.fields) {
        if (name == "__metadata__" || record.at("dtype").str() != "F32") continue;
        Ints place = record.at("data_offsets").ints();
        Tensor made(record.at("shape").ints());
        need(place.size() == 2 && place[0] >= 0 && place[1] - place[0] == 4 * made.size(),
             "a tensor has another size: " + name);
        string bytes = part(data, 8 + length + uint64_t(place[0]), 4 * made.data.size(), name);
        std::memcpy(made.data.data(), bytes.data(), bytes.size());  // on a little-endian machine
        found.emplace(name, made);
    }
    const Json* notes = header.find("__metadata__");
    const Json* same = notes ? notes->find("torch-ir-same") : nullptr;
    if (same)
        for (auto& [key, first] : parse(same->str()).fields) found[key] = found[first.str()];
    return found;
}

void write(const string& path, const Tensors& named) {
    string header = "{", body;
    for (auto& [name, tensor] : named) {
        string sizes;
        for (int64_t n : tensor.shape) sizes += (sizes.empty() ? "" : ",") + std::to_string(n);
        size_t from = body.size();
        body.append(reinterpret_cast<const char*>(tensor.data.data()), 4 * tensor.data.size());
        header += (header == "{" ? "" : ",") + escaped(name) + ":{\"dtype\":\"F32\",\"shape\":[" +
                  sizes + "],\"data_offsets\":[" + std::to_string(from) + "," +
                  std::to_string(body.size()) + "]}";
    }
    header += "}";
    std::ofstream file(path, std::ios::binary);
    for (int i = 0; i < 8; i++) file.put(char(uint64_t(header.size()) >> (8 * i)));
    need(bool(file << header << body), "cannot write " + path);
}

Ints strides(const Ints& shape) {
    Ints made(shape.size(), 1);
    for (size_t d = shape.size(); d-- > 1;) made[d - 1] = made[d] * shape[d];
    return made;
}

Tensor gather(const Tensor& source, const Ints& shape, const Ints& steps, int64_t offset = 0) {
    Tensor made(shape);
    Ints index(shape.size());
    for (int64_t i = 0; i < made.size(); i++) {
        int64_t at = offset;
        for (size_t d = 0; d < shape.size(); d++) at += index[d] * steps[d];
        need(at >= 0 && at < source.size(), "a view of elements that are not there");
        made[i] = source[at];
        for (size_t d = shape.size(); d-- > 0 && ++index[d] == shape[d];) index[d] = 0;
    }
    return made;
}

template <class F>
Tensor pointwise(const Tensor& left, const Tensor& right, F compute) {
    Ints shape(std::max(left.shape.size(), right.shape.size()));
    auto size = [&](const Tensor& t, size_t d) {
        size_t ahead = shape.size() - t.shape.size();
        return d < ahead ? 1 : t.shape[d - ahead];
    };
    for (size_t d = 0; d < shape.size(); d++) {
        int64_t a = size(left, d), b = size(right, d);
        need(a == b || a == 1 || b == 1, "sizes do not go together");
        shape[d] = a == 1 ? b : a;
    }
    auto full = [&](const Tensor& t) {
        Ints own = strides(t.shape), steps(shape.size());
        for (size_t d = shape.size() - t.shape.size(), i = 0; d < shape.size(); d++, i++)
            steps[d] = t.shape[i] == 1 ? 0 : own[i];
        return gather(t, shape, steps);
    };
    Tensor made = full(left), other = full(right);
    for (int64_t i = 0; i < made.size(); i++) made[i] = float(compute(made[i], other[i]));
    return made;
}

size_t axis(int64_t dim, size_t rank) {
    int64_t found = dim < 0 ? dim + int64_t(rank) : dim;
    need(found >= 0 && found < std::max<int64_t>(int64_t(rank), 1), "no such dimension");
    return size_t(found);
}

// -- operators ------------------------------------------------------------------------------------

// One node with the values that it takes.
struct Call {
    const Json& node;
    const Tensors& values;

    const Tensor& value(const Json& position) const {
        auto& inputs = node.at("inputs").items;
        need(position.whole() >= 0 && size_t(position.whole()) < inputs.size(), "no such input");
        const string& name = inputs[size_t(position.whole())].at("name").str();
        auto found = values.find(name);
        need(found != values.end(), "%" + name + " has no float32 value");
        return found->second;
    }
    const Tensor* optional(const string& name) const {
        const Json* position = node.at("operands").find(name);
        return position && position->kind != Json::Null ? &value(*position) : nullptr;
    }
    const Tensor& tensor(const string& name = "self") const {
        need(optional(name) != nullptr, "there is no " + name);
        return *optional(name);
    }
    // An attribute; what a file leaves out has the default of the schema (docs/operators.json).
    const Json* attr(const string& name) const {
        const Json* found = node.at("attrs").find(name);
        return found && found->kind != Json::Null ? found : nullptr;
    }
    double real(const string& name, double fallback) const {
        return attr(name) ? attr(name)->real() : fallback;
    }
    int64_t whole(const string& name, int64_t fallback) const {
        return attr(name) ? attr(name)->whole() : fallback;
    }
    bool flag(const string& name) const { return attr(name) && attr(name)->truth; }
    Ints ints(const string& name) const { return attr(name) ? attr(name)->ints() : Ints{}; }
    // Sizes of a window in two dimensions; a line is an image of one row.
    Ints pair(const string& name, size_t rank, int64_t fallback) const {
        Ints given = ints(name);
        if (given.empty()) given = {fallback};
        if (given.size() == 1) given.resize(rank, given[0]);
        need(given.size() == rank, "no such sizes of a window");
        if (rank == 1) given.insert(given.begin(), fallback);
        return given;
    }
};

using Places = std::vector<std::vector<std::pair<int64_t, int64_t>>>;

// For each output position, the input positions and those in the window.
Places windows(int64_t size, int64_t kernel, int64_t stride, int64_t pad, int64_t step, bool ceil) {
    for (int64_t n : {kernel, stride, step}) need(n > 0 && n < LIMIT, "no such window");
    need(pad >= 0 && pad < LIMIT && kernel * step < LIMIT, "no such window");
    double span = double(size + 2 * pad - step * (kernel - 1) - 1) / double(stride);
    int64_t total = int64_t(ceil ? std::ceil(span) : std::floor(span)) + 1;
    if (ceil && (total - 1) * stride >= size + pad) total--;
    need(total >= 0 && total <= LIMIT / kernel, "no such window");
    Places made(static_cast<size_t>(total));
    for (int64_t o = 0; o < total; o++)
        for (int64_t k = 0; k < kernel; k++) {
            int64_t i = o * stride - pad + k * step;
            if (i >= 0 && i < size) made[size_t(o)].push_back({i, k});
        }
    return made;
}

Tensor convolution(const Call& call) {
    const Tensor &x = call.tensor("input"), &w = call.tensor("weight"), *bias = call.optional("bias");
    need(!call.flag("transposed"), "transposed convolution is not supported");
    size_t rank = x.shape.size() - 2;
    need((rank == 1 || rank == 2) && w.rank() == x.rank(), "a convolution of 1 or 2 dimensions");
    Ints stride = call.pair("stride", rank, 1), pad = call.pair("padding", rank, 0);
    Ints step = call.pair("dilation", rank, 1), in = x.shape, kernel = w.shape;
    if (rank == 1) in.insert(in.begin() + 2, 1), kernel.insert(kernel.begin() + 2, 1);
    int64_t groups = call.whole("groups", 1), c = in[1], f = kernel[0], g = kernel[1];
    need(groups > 0 && c == g * groups && f % groups == 0 && (!bias || bias->size() == f),
         "channels and groups do not fit");
    Places rows = windows(in[2], kernel[2], stride[0], pad[0], step[0], false);
    Places columns = windows(in[3], kernel[3], stride[1], pad[1], step[1], false);
    Ints shape{in[0], f, int64_t(rows.size()), int64_t(columns.size())};
    if (rank == 1) shape.erase(shape.begin() + 2);
    Tensor made(shape);
    int64_t at = 0;
    for (int64_t b = 0; b < in[0]; b++)
        for (int64_t o = 0; o < f; o++)
            for (auto& row : rows)
                for (auto& column : columns) {
                    double sum = bias ? (*bias)[o] : 0;
                    for (int64_t i = 0; i < g; i++)
                        for (auto [y, p] : row) {
                            int64_t from = ((b * c + o / (f / groups) * g + i) * in[2] + y) * in[3];
                            int64_t weights = ((o * g + i) * kernel[2] + p) * kernel[3];
                            for (auto [z, q] : column) sum += double(x[from + z]) * w[weights + q];
                        }
                    made[at++] = float(sum);
                }
    return made;
}

Tensor max_pool(const Call& call) {
    const Tensor& x = call.tensor();
    need(x.rank() >= 3, "max_pool2d takes images");
    Ints kernel = call.pair("kernel_size", 2, 1), stride = kernel;
    if (!call.ints("stride").empty()) stride = call.pair("stride", 2, 1);
    Ints pad = call.pair("padding", 2, 0), step = call.pair("dilation", 2, 1), shape = x.shape;
    int64_t &h = shape[shape.size() - 2], &v = shape.back(), height = h, width = v;
    bool ceil = call.flag("ceil_mode");
    Places rows = windows(h, kernel[0], stride[0], pad[0], step[0], ceil);
    Places columns = windows(v, kernel[1], stride[1], pad[1], step[1], ceil);
    h = int64_t(rows.size()), v = int64_t(columns.size());
    Tensor made(shape);
    int64_t at = 0;
    for (int64_t image = 0; image < x.size(); image += height * width)
        for (auto& row : rows)
            for (auto& column : columns) {
                float most = -std::numeric_limits<float>::infinity();
                for (auto [y, p] : row)
                    for (auto [z, q] : column) {
                        float value = x[image + y * width + z];
                        if (value > most || std::isnan(value)) most = value;
                    }
                made[at++] = most;
            }
    return made;
}

Tensor batch_norm(const Call& call) {
    Tensor made = call.tensor("input");
    const Tensor &mean = call.tensor("running_mean"), &variance = call.tensor("running_var");
    const Tensor *weight = call.optional("weight"), *bias = call.optional("bias");
    need(made.rank() >= 2 && mean.size() == made.shape[1] && variance.size() == mean.size() &&
             (!weight || weight->size() == mean.size()) && (!bias || bias->size() == mean.size()),
         "the sizes of a batch norm do not fit");
    int64_t inner = count(Ints(made.shape.begin() + 2, made.shape.end()));
    for (int64_t i = 0; i < made.size(); i++) {
        int64_t c = i / inner % made.shape[1];
        double scaled = (made[i] - mean[c]) / std::sqrt(variance[c] + call.real("eps", 0));
        made[i] = float(scaled * (weight ? (*weight)[c] : 1) + (bias ? (*bias)[c] : 0));
    }
    return made;
}

// Replaces the elements along some dimensions by what a function makes of their list.
template <class F>
Tensor reduced(const Tensor& x, const Ints& dims, bool keep, F compute) {
    std::vector<bool> gone(x.shape.size());
    for (int64_t dim : dims) gone[axis(dim, x.shape.size())] = !x.shape.empty();
    Ints own = strides(x.shape), outer, steps, sizes, inner, kept;
    for (size_t d = 0; d < x.shape.size(); d++) {
        (gone[d] ? sizes : outer).push_back(x.shape[d]);
        (gone[d] ? inner : steps).push_back(own[d]);
        kept.push_back(gone[d] ? 1 : x.shape[d]);
    }
    Tensor made(outer);
    Ints index(outer.size());
    for (int64_t i = 0; i < made.size(); i++) {
        int64_t offset = 0;
        for (size_t d = 0; d < outer.size(); d++) offset += index[d] * steps[d];
        made[i] = float(compute(gather(x, sizes, inner, offset).data));
        for (size_t d = outer.size(); d-- > 0 && ++index[d] == outer[d];) index[d] = 0;
    }
    if (keep) made.shape = kept;
    return made;
}

double total(const std::vector<float>& values) {
    double sum = 0;
    for (float value : values) sum += value;
    return sum;
}

Tensor softmax(const Call& call) {
    Ints dim{call.whole("dim", 0)};
    Tensor most = reduced(call.tensor(), dim, true, [](const std::vector<float>& v) {
        return v.empty() ? 0 : *std::max_element(v.begin(), v.end());
    });
    Tensor powers = pointwise(call.tensor(), most, [](double a, double b) { return std::exp(a - b); });
    return pointwise(powers, reduced(powers, dim, true, total), std::divides<double>());
}

Tensor mean(const Call& call) {
    Ints dims = call.ints("dim");
    for (int64_t d = 0; call.ints("dim").empty() && d < call.tensor().rank(); d++) dims.push_back(d);
    auto average = [](const std::vector<float>& v) { return total(v) / double(v.size()); };
    return reduced(call.tensor(), dims, call.flag("keepdim"), average);
}

Tensor product(const Tensor& left, const Tensor& right) {
    need(left.rank() == 2 && right.rank() == 2 && left.shape[1] == right.shape[0],
         "no product of matrices");
    int64_t k = left.shape[1], m = right.shape[1];
    Tensor made({left.shape[0], m});
    for (int64_t i = 0; i < left.shape[0]; i++)
        for (int64_t j = 0; j < m; j++) {
            double sum = 0;
            for (int64_t p = 0; p < k; p++) sum += double(left[i * k + p]) * right[p * m + j];
            made[i * m + j] = float(sum);
        }
    return made;
}

Tensor addmm(const Call& call) {
    double beta = call.real("beta", 1), alpha = call.real("alpha", 1);
    return pointwise(call.tensor(), product(call.tensor("mat1"), call.tensor("mat2")),
                     [=](double a, double b) { return beta * a + alpha * b; });
}

Tensor view(const Call& call) {
    Tensor made = call.tensor();
    Ints size = call.ints("size");
    auto open = std::find(size.begin(), size.end(), -1);
    if (open != size.end()) {
        *open = 1;
        *open = made.size() / std::max<int64_t>(count(size), 1);
    }
    need(count(size) == made.size(), "no view of so many elements");
    made.shape = size;
    return made;
}

Tensor permute(const Call& call) {
    const Tensor& x = call.tensor();
    Ints own = strides(x.shape), shape, steps, dims = call.ints("dims");
    std::vector<bool> seen(x.shape.size());
    for (int64_t dim : dims) {
        size_t d = axis(dim, x.shape.size());
        need(!x.shape.empty() && !seen[d], "no such order of dimensions");
        seen[d] = true;
        shape.push_back(x.shape[d]);
        steps.push_back(own[d]);
    }
    need(shape.size() == x.shape.size(), "no such order of dimensions");
    return gather(x, shape, steps);
}

Tensor slice(const Call& call) {
    const Tensor& x = call.tensor();
    size_t dim = axis(call.whole("dim", 0), x.shape.size());
    need(!x.shape.empty(), "a number has no slices");
    Ints shape = x.shape, steps = strides(x.shape);
    int64_t size = shape[dim], step = call.whole("step", 1);
    auto bound = [=](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
    int64_t start = bound(call.whole("start", 0)), end = bound(call.whole("end", size));
    need(step > 0 && step <= LIMIT, "a step is positive");
    int64_t offset = start * steps[dim];
    shape[dim] = std::max<int64_t>((end - start + step - 1) / step, 0);
    steps[dim] *= step;
    return gather(x, shape, steps, offset);
}

Tensor cat(const Call& call) {
    std::vector<const Tensor*> parts;
    for (auto& position : call.node.at("operands").at("tensors").items)
        if (call.value(position).shape != Ints{0}) parts.push_back(&call.value(position));
    need(!parts.empty(), "nothing to join");
    Ints shape = parts[0]->shape;
    size_t dim = axis(call.whole("dim", 0), shape.size());
    int64_t outer = count(Ints(shape.begin(), shape.begin() + int64_t(dim)));
    need(!shape.empty(), "numbers are not joined");
    shape[dim] = 0;
    for (auto* part : parts) {
        Ints other = part->shape, same = shape;
        need(other.size() == shape.size(), "tensors of other ranks");
        shape[dim] += other[dim];
        other[dim] = same[dim] = 0;
        need(other == same, "sizes do not go together");
    }
    Tensor made(shape);
    auto at = made.data.begin();
    for (int64_t i = 0; i < outer; i++)
        for (auto* part : parts) {
            int64_t length = part->size() / outer;
            at = std::copy_n(part->data.begin() + i * length, length, at);
        }
    return made;
}

using Operator = std::function<Tensor(const Call&)>;

Operator unary(double (*compute)(double)) {
    return [=](const Call& call) {
        Tensor made = call.tensor();
        for (float& value : made.data) value = float(compute(value));
        return made;
    };
}

Operator binary(double (*compute)(double, double, double)) {
    return [=](const Call& call) {
        Tensor number;
        number[0] = float(call.optional("other") ? 0 : call.real("other", 0));
        const Tensor* other = call.optional("other") ? call.optional("other") : &number;
        double alpha = call.real("alpha", 1);
        auto with = [=](double a, double b) { return compute(a, b, alpha); };
        return pointwise(call.tensor(), *other, with);
    };
}

const std::map<string, Operator> OPERATORS{
    {"aten.convolution.default", convolution},
    {"aten._native_batch_norm_legit_no_training.default", batch_norm},
    {"aten.relu.default", unary([](double x) { return x < 0 ? 0 : x; })},
    {"aten.sigmoid.default", unary([](double x) { return 1 / (1 + std::exp(-x)); })},
    {"aten.tanh.default", unary(std::tanh)},
    {"aten.add.Tensor", binary([](double a, double b, double c) { return a + c * b; })},
    {"aten.sub.Tensor", binary([](double a, double b, double c) { return a - c * b; })},
    {"aten.mul.Tensor", binary([](double a, double b, double) { return a * b; })},
    {"aten.addmm.default", addmm},
    {"aten.mm.default", [](const Call& c) { return product(c.tensor(), c.tensor("mat2")); }},
    {"aten.mean.dim", mean},
    {"aten.view.default", view},
    {"aten.view_copy.default", view},
    {"aten.permute.default", permute},
    {"aten.permute_copy.default", permute},
    {"aten.clone.default", [](const Call& call) { return call.tensor(); }},
    {"aten._softmax.default", softmax},
    {"aten.max_pool2d_with_indices.default", max_pool},
    {"aten.cat.default", cat},
    {"aten.slice.Tensor", slice},
    {"aten.slice_copy.Tensor", slice},
};

// -- programs -------------------------------------------------------------------------------------

bool fits(const Json& shape, const Tensor& tensor) {
    bool same = shape.items.size() == tensor.shape.size();
    for (size_t d = 0; same && d < tensor.shape.size(); d++)
        same = shape.items[d].kind == Json::Text || shape.items[d].whole() == tensor.shape[d];
    return same;
}

Tensor filled(const Json& record) {
    const string& digits = record.at("fill").str();
    bool fits = digits.size() == 8 && digits.find_first_not_of("0123456789abcdef") == string::npos;
    need(fits, "a constant of one value has no float32");
    uint32_t bits = 0;
    for (int i = 6; i >= 0; i -= 2) bits = bits << 8 | uint32_t(std::stoul(digits.substr(i, 2), nullptr, 16));
    Tensor made(record.at("shape").ints());
    for (int64_t i = 0; i < made.size(); i++) std::memcpy(&made[i], &bits, 4);
    return made;
}

Tensors run(const Json& ir, Files& files, const Tensors& inputs) {
    double version = ir.at("format_version").real();
    need(version == 1 || version == 2, "the format version is not known");
    auto tensors = [&](const string& name) {
        return files.count(name) ? safetensors(files[name]) : Tensors{};
    };
    Tensors values, weights = tensors("weights.safetensors");
    Tensors stored = tensors("constants.safetensors");
    std::map<string, string> key_of;  // the stored tensor of a constant
    const Json none, *named = ir.find("weight_name_mapping"), *constants = ir.find("constants");
    auto constant = [&](const string& key) { return constants ? constants->find(key) : nullptr; };
    for (auto& [name, mapped] : named ? named->fields : none.fields) {
        const string& key = mapped.str();
        const Json *record = constant(key), *shown = record ? record->find("view") : nullptr;
        const string& base_key = shown ? shown->at("of").str() : key;
        if (const Json* base = constant(base_key)) {
            bool is_filled = base->find("fill");
            key_of[name] = is_filled ? "fill of " + base_key : base->at("tensor").str();
            if (is_filled && base->at("dtype").str() == "float32" && !stored.count(key_of[name]))
                stored.emplace(key_of[name], filled(*base));
        }
        auto weight = weights.find(key), stored_at = stored.find(key_of[name]);
        if (weight != weights.end()) values[name] = weight->second;
        else if (stored_at == stored.end()) continue;  // it is no float32: what uses it says so
        else if (!shown) values[name] = stored_at->second;
        else
            values[name] = gather(stored_at->second, record->at("shape").ints(),
                                  shown->at("strides").ints(), shown->at("offset").whole());
    }
    for (auto& meta : ir.at("graph_inputs").items) {
        auto given = inputs.find(meta.at("name").str());
        need(given != inputs.end(), "there is no float32 input " + meta.at("name").str());
        need(fits(meta.at("shape"), given->second), "the shape of an input is another");
        values[given->first] = given->second;
    }
    for (auto& node : ir.at("nodes").items) {
        const string &name = node.at("name").str(), &op_type = node.at("op_type").str();
        auto known = OPERATORS.find(op_type);
        need(known != OPERATORS.end(), "node " + name + ": there is no operator " + op_type + " here");
        try {
            need(!node.at("outputs").items.empty(), "it has no result");
            const Json& first = node.at("outputs").items[0];
            Tensor made = known->second(Call{node, values});
            need(fits(first.at("shape"), made), "it gives another shape");
            values[first.at("name").str()] = made;
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
        Json ir = parse(files["ir.json"]);
        write(arguments[3], run(ir, files, safetensors(read(arguments[2]))));
    } catch (const std::exception& error) {
        std::cerr << "error: " << error.what() << std::endl;
        return 1;
    }
}
