// A JSON document as a value: what reader.cpp needs of a JSON library.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

inline void need(bool condition, const std::string& text) {
    if (!condition) throw std::runtime_error(text);
}

template <class M>
auto& lookup(M& named, const std::string& key) {
    auto found = named.find(key);
    need(found != named.end(), "there is no " + key);
    return found->second;
}

struct Json {
    enum Kind { Null, Bool, Number, Text, List, Object } kind = Null;
    double number = 0;  // 0 or 1 for false and true
    std::string text;
    std::vector<Json> items;
    std::map<std::string, Json> fields;

    bool operator==(const Json& other) const {
        return kind == other.kind && number == other.number && text == other.text &&
               items == other.items && fields == other.fields;
    }

    // What stands under a key, if it is there and not null.
    const Json* find(const std::string& key) const {
        auto found = fields.find(key);
        return found == fields.end() || found->second.kind == Null ? nullptr : &found->second;
    }

    const Json& get(const std::string& key) const {
        static const Json nothing;
        return find(key) ? *find(key) : nothing;
    }

    const Json& at(const std::string& key) const { return lookup(fields, key); }

    const std::string& str() const {
        need(kind == Text, "a text is wanted");
        return text;
    }

    // A number; what JSON has none for is {"$float": "inf"}, "-inf" or "nan".
    double real() const {
        if (find("$float")) return std::strtod(at("$float").str().c_str(), nullptr);
        need(kind == Number || kind == Bool, "a number is wanted");
        return number;
    }

    int64_t whole() const {
        need(kind == Number && number == std::floor(number), "an integer is wanted");
        return int64_t(std::clamp(number, -9e15, 9e15));  // the end of a slice may be 2^63 - 1
    }

    std::vector<int64_t> ints() const {
        if (kind == Number) return {whole()};
        need(kind == List, "a list is wanted");
        std::vector<int64_t> made;
        for (auto& item : items) made.push_back(item.whole());
        return made;
    }
};

struct JsonParser {
    const std::string& text;
    size_t at = 0;
    int depth = 0;

    char peek() {
        while (at < text.size() && std::strchr(" \n\r\t", text[at])) at++;
        need(at < text.size(), "a document is cut off");
        return text[at];
    }

    bool take(char wanted) {
        bool is_there = peek() == wanted;
        at += is_there;
        return is_there;
    }

    void expect(char wanted) { need(take(wanted), std::string("a document without ") + wanted); }

    // Reads what stands between two brackets, item by item.
    template <class F>
    void each(char open, char close, F item) {
        expect(open);
        if (take(close)) return;
        do item();
        while (take(','));
        expect(close);
    }

    Json value() {
        Json made;
        need(++depth < 200, "a document is nested too deeply");
        char first = peek();
        if (first == '{') {
            made.kind = Json::Object;
            each('{', '}', [&] {
                std::string key = quoted();
                expect(':');
                made.fields[key] = value();
            });
        } else if (first == '[') {
            made.kind = Json::List;
            each('[', ']', [&] { made.items.push_back(value()); });
        } else if (first == '"') {
            made.kind = Json::Text;
            made.text = quoted();
        } else {
            made = word();
        }
        depth--;
        return made;
    }

    Json word() {
        size_t end = std::min(text.find_first_of(",]} \n\r\t", at), text.size());
        std::string word = text.substr(at, end - at);
        at = end;
        Json made;
        if (word == "null") return made;
        made.kind = word == "true" || word == "false" ? Json::Bool : Json::Number;
        made.number = word == "true";
        if (made.kind == Json::Bool) return made;
        char* rest = nullptr;
        made.number = std::strtod(word.c_str(), &rest);
        need(!word.empty() && *rest == 0, "a document has an unknown word");
        return made;
    }

    std::string quoted() {
        expect('"');
        std::string made;
        for (char c = next(); c != '"'; c = next()) {
            if (c != '\\') {
                made += c;
                continue;
            }
            c = next();
            const char *names = "bfnrt", *codes = "\b\f\n\r\t", *known = std::strchr(names, c);
            if (c == 'u')
                made += character();
            else
                made += known ? codes[known - names] : c;
        }
        return made;
    }

    char next() {
        need(at < text.size(), "a document is cut off");
        return text[at++];
    }

    // The UTF-8 of four hexadecimal digits; each half of a pair stands alone.
    std::string character() {
        need(at + 4 <= text.size(), "a document is cut off");
        auto code = unsigned(std::strtoul(text.substr(at, 4).c_str(), nullptr, 16));
        auto tail = [&](int shift) { return char(0x80 | (code >> shift & 63)); };
        at += 4;
        if (code < 0x80) return {char(code)};
        if (code < 0x800) return {char(0xC0 | code >> 6), tail(0)};
        return {char(0xE0 | code >> 12), tail(6), tail(0)};
    }
};

inline Json parse_json(const std::string& text) {
    JsonParser parser{text};
    return parser.value();
}

inline std::string quoted_json(const std::string& text) {
    std::string made = "\"";
    for (char c : text) {
        if (c == '"' || c == '\\') made += '\\';
        made += c;
    }
    return made + '"';
}
