// Tensors in row-major order, the safetensors files that hold them, and one loop each over memory,
// elements, sums and products.

#pragma once

#include <fstream>
#include <limits>
#include <type_traits>
#include <utility>

#include "json.hpp"

using std::string;
using Ints = std::vector<int64_t>;

constexpr int64_t LIMIT = int64_t(1) << 27;  // elements of one tensor
constexpr double INF = std::numeric_limits<double>::infinity();

// -- files ----------------------------------------------------------------------------------------

inline string part(const string& data, uint64_t at, uint64_t size) {
    need(at <= data.size() && size <= data.size() - at, "a file is cut off");
    return data.substr(at, size);
}

inline uint64_t little(const string& data, uint64_t at, uint64_t size) {
    string bytes = part(data, at, size);
    uint64_t made = 0;
    while (size-- > 0) made = made << 8 | uint8_t(bytes[size]);
    return made;
}

// How the elements of a type lie in a file.
struct Type {
    string code;
    size_t size;
    double (*get)(const char*);
    void (*put)(double, char*);
};

template <class T>
Type type(const string& code) {
    auto get = [](const char* at) {
        T value;
        std::memcpy(&value, at, sizeof(T));  // on a little-endian machine
        return double(value);
    };
    auto put = [](double number, char* at) {
        T value = T(std::is_same_v<T, uint8_t> ? number != 0 : number);
        need(!std::is_same_v<T, int64_t> || std::abs(number) <= 0x1p53, "an integer beyond 2^53");
        std::memcpy(at, &value, sizeof(T));
    };
    return {code, sizeof(T), get, put};
}

inline const std::map<string, Type> TYPES{{"float32", type<float>("F32")},
                                          {"int64", type<int64_t>("I64")},
                                          {"bool", type<uint8_t>("BOOL")}};

inline int64_t count(const Ints& shape) {
    int64_t total = 1;
    need(shape.size() <= 64, "too many dimensions");
    for (int64_t n : shape) {
        need(n >= 0 && n <= LIMIT, "no such shape");
        total *= n;
        need(total <= LIMIT, "a tensor is too large");
    }
    return total;
}

struct Tensor {
    Ints shape;
    std::vector<double> data;
    string dtype;

    explicit Tensor(Ints sizes = {}, double fill = 0)
        : shape(std::move(sizes)), data(size_t(count(shape)), fill) {}
    int64_t size() const { return int64_t(data.size()); }
    int64_t rank() const { return int64_t(shape.size()); }
    double& operator[](int64_t i) { return data[size_t(i)]; }
    double operator[](int64_t i) const { return data[size_t(i)]; }
};

using Tensors = std::map<string, Tensor>;

inline string encoded(const Tensor& tensor, const string& dtype) {
    need(TYPES.count(dtype) > 0, "there is no " + dtype + " here");
    auto& type = TYPES.at(dtype);
    string bytes(type.size * tensor.data.size(), 0);
    for (size_t i = 0; i < tensor.data.size(); i++) type.put(tensor.data[i], &bytes[i * type.size]);
    return bytes;
}

inline Tensor decoded(const Ints& shape, const string& bytes, const string& dtype) {
    auto& type = TYPES.at(dtype);
    need(bytes.size() == type.size * size_t(count(shape)), "a tensor has another size");
    Tensor made(shape);
    for (size_t i = 0; i < made.data.size(); i++) made.data[i] = type.get(&bytes[i * type.size]);
    made.dtype = dtype;
    return made;
}

// The tensors of a safetensors file; those of other types are left out.
inline Tensors safetensors(const string& data) {
    uint64_t length = little(data, 0, 8);
    Json header = parse_json(part(data, 8, length));
    need(header.kind == Json::Object, "the header of a safetensors file is damaged");
    Tensors found;
    for (auto& [name, record] : header.fields)
        for (auto& [dtype, type] : TYPES) {
            if (name == "__metadata__" || record.at("dtype").str() != type.code) continue;
            Ints place = record.at("data_offsets").ints();
            need(place.size() == 2 && 0 <= place[0] && place[0] <= place[1], "no place: " + name);
            string bytes =
                part(data, 8 + length + uint64_t(place[0]), uint64_t(place[1] - place[0]));
            found.emplace(name, decoded(record.at("shape").ints(), bytes, dtype));
        }
    const Json* notes = header.find("__metadata__");
    const Json* same = notes ? notes->find("torch-ir-same") : nullptr;
    if (same)
        for (auto& [key, first] : parse_json(same->str()).fields) found[key] = found[first.str()];
    return found;
}

inline void write(const string& path, const Tensors& named) {
    string header, body;
    for (auto& [name, tensor] : named) {
        string sizes, from = std::to_string(body.size());
        for (int64_t n : tensor.shape) sizes += (sizes.empty() ? "" : ",") + std::to_string(n);
        body += encoded(tensor, tensor.dtype);
        header += (header.empty() ? "{" : ",") + quoted_json(name) + ":{\"dtype\":\"" +
                  TYPES.at(tensor.dtype).code + "\",\"shape\":[" + sizes + "],\"data_offsets\":[" +
                  from + "," + std::to_string(body.size()) + "]}";
    }
    header += header.empty() ? "{}" : "}";
    std::ofstream file(path, std::ios::binary);
    for (int i = 0; i < 8; i++) file.put(char(uint64_t(header.size()) >> (8 * i)));
    need(bool(file << header << body), "cannot write " + path);
}

// -- loops ----------------------------------------------------------------------------------------

inline size_t axis(int64_t dim, const Ints& shape) {
    auto rank = std::max<int64_t>(int64_t(shape.size()), 1);
    int64_t found = dim < 0 ? dim + rank : dim;
    need(found >= 0 && found < rank, "no such dimension");
    return size_t(found);
}

inline Ints strides(const Ints& shape) {
    Ints made(shape.size(), 1);
    for (size_t d = shape.size(); d-- > 1;) made[d - 1] = made[d] * shape[d];
    return made;
}

// Calls a function with the number and the place of each element that strides reach in a tensor.
template <class F>
void walk(const Tensor& memory, const Ints& shape, const Ints& steps, int64_t at, F visit) {
    int64_t last = at, total = count(shape);
    need(steps.size() == shape.size(), "a view with other strides");
    for (size_t d = 0; d < shape.size(); d++) {
        need(shape[d] < 2 || (0 <= steps[d] && steps[d] <= LIMIT), "no such strides");
        last += shape[d] < 2 ? 0 : (shape[d] - 1) * steps[d];
    }
    need(total == 0 || (0 <= at && last < memory.size()), "a view of elements that are not there");
    Ints index(shape.size());
    for (int64_t i = 0; i < total; i++) {
        visit(i, at);
        for (size_t d = shape.size(); d-- > 0; index[d] = 0) {
            at += steps[d];
            if (++index[d] < shape[d]) break;
            at -= steps[d] * shape[d];
        }
    }
}

inline Tensor strided(const Tensor& x, const Ints& shape, const Ints& steps, int64_t offset = 0) {
    Tensor made(shape);
    walk(x, shape, steps, offset, [&](int64_t i, int64_t at) { made[i] = x[at]; });
    return made;
}

inline void paste(const Tensor& x, Tensor& target, int64_t offset) {
    auto copy = [&](int64_t i, int64_t at) { target[at] = x[i]; };
    walk(target, x.shape, strides(target.shape), offset, copy);
}

inline Tensor reshaped(Tensor x, const Ints& shape) {
    need(count(shape) == x.size(), "no view of so many elements");
    x.shape = shape;
    return x;
}

inline Tensor permuted(const Tensor& x, const Ints& dims) {
    Ints own = strides(x.shape), shape, steps, seen(x.shape.size());
    for (int64_t dim : dims) {
        size_t d = axis(dim, x.shape);
        need(!x.shape.empty() && !seen[d]++, "no such order of dimensions");
        shape.push_back(x.shape[d]);
        steps.push_back(own[d]);
    }
    need(shape.size() == x.shape.size(), "no such order of dimensions");
    return strided(x, shape, steps);
}

// Brings tensors to the shape in which they go together.
inline std::vector<Tensor> broadcast(std::vector<Tensor> given) {
    Ints shape;
    for (auto& x : given) {
        shape.insert(shape.begin(), std::max(x.shape.size(), shape.size()) - shape.size(), 1);
        for (size_t d = 1; d <= x.shape.size(); d++)
            if (x.shape.end()[-int64_t(d)] != 1)
                shape.end()[-int64_t(d)] = x.shape.end()[-int64_t(d)];
    }
    for (auto& x : given) {
        if (x.shape == shape) continue;
        x.shape.insert(x.shape.begin(), shape.size() - x.shape.size(), 1);
        Ints steps = strides(x.shape);
        for (size_t d = 0; d < shape.size(); d++) {
            need(x.shape[d] == 1 || x.shape[d] == shape[d], "sizes do not go together");
            if (x.shape[d] == 1) steps[d] = 0;
        }
        x = strided(x, shape, steps);
    }
    return given;
}

using Values = const double*;

inline double same(Values v) { return v[0]; }
inline double add(Values v) { return v[0] + v[2] * v[1]; }
inline double subtract(Values v) { return v[0] - v[2] * v[1]; }
inline double multiply(Values v) { return v[0] * v[1]; }
inline double divide(Values v) { return v[0] / v[1]; }
inline double normalize(Values v) { return (v[0] - v[1]) / std::sqrt(v[2] + v[5]) * v[3] + v[4]; }

inline Tensor elementwise(std::vector<Tensor> given, double (*compute)(Values)) {
    given = broadcast(std::move(given));
    Tensor made(given.at(0).shape);
    std::vector<double> values(given.size());
    for (int64_t i = 0; i < made.size(); i++) {
        for (size_t n = 0; n < given.size(); n++) values[n] = given[n][i];
        made[i] = compute(values.data());
    }
    return made;
}

using Fold = double (*)(double, double);

inline double sum(double a, double b) { return a + b; }
inline double squares(double a, double b) { return a + b * b; }
inline double either(double a, double b) { return a != 0 || b != 0; }
inline double larger(double a, double b) { return b > a || std::isnan(b) ? b : a; }

// Folds the elements along some dimensions, or all, which keep the size 1.
inline Tensor folded(const Tensor& x, const Ints& dims, Fold fold, double start = 0) {
    Ints shape = dims.empty() ? Ints(x.shape.size(), 1) : x.shape;
    for (int64_t dim : dims)
        if (!shape.empty()) shape[axis(dim, shape)] = 1;
    Tensor made(shape, start);
    Ints steps = strides(shape);
    for (size_t d = 0; d < shape.size(); d++)
        if (shape[d] == 1) steps[d] = 0;
    walk(made, x.shape, steps, 0, [&](int64_t i, int64_t at) { made[at] = fold(made[at], x[i]); });
    return made;
}

// The product of two matrices, or of each two in two lists.
inline Tensor product(const Tensor& left, const Tensor& right) {
    Ints shape = left.shape, other = right.shape;
    need(shape.size() > 1 && shape.size() == other.size(), "no matrices");
    int64_t n = *(shape.end() - 2), k = shape.back(), m = other.back();
    shape.back() = m;
    other.end()[-2] = n;
    need(shape == other && right.shape.end()[-2] == k, "no product of matrices");
    Tensor made(shape);
    for (int64_t row = 0; m > 0 && row < made.size() / m; row++)
        for (int64_t p = 0; p < k; p++)
            for (int64_t j = 0; j < m; j++)
                made[row * m + j] += left[row * k + p] * right[(row / n * k + p) * m + j];
    return made;
}
