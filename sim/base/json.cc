#include "sim/base/json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/check.h"
#include "sim/base/error_parts.h"
#include "sim/base/json_fault.h"

namespace pipewright {
namespace {

// Whoever walks a value recurses.
constexpr size_t kMostDepth = 1000;

// The length of the character of UTF-8 at the start of `text`; 0 where there is
// none, and *bad is then how many bytes one U+FFFD stands for.
size_t Utf8Length(absl::string_view text, size_t* bad) {
  const auto byte = [text](size_t index) {
    return static_cast<unsigned char>(text[index]);
  };
  *bad = 1;
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  const size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // Neither too long a form, nor half of a pair, nor above U+10FFFF.
  unsigned least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  unsigned most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  for (size_t index = 1; index < length; ++index) {
    if (index == text.size() || byte(index) < least || byte(index) > most) {
      *bad = index;
      return 0;
    }
    least = 0x80;
    most = 0xbf;
  }
  return length;
}

// Nothing that JSON escapes, and no UTF-8 of several bytes.
bool IsPlain(char letter) {
  // Where char has no sign these bytes are large.
  return static_cast<signed char>(letter) >= 0x20 && letter != '"' && letter != '\\';
}

void AppendEscaped(char letter, std::string* out) {
  switch (letter) {
    case '"':
      *out += "\\\"";
      return;
    case '\\':
      *out += "\\\\";
      return;
    case '\b':
      *out += "\\b";
      return;
    case '\f':
      *out += "\\f";
      return;
    case '\n':
      *out += "\\n";
      return;
    case '\r':
      *out += "\\r";
      return;
    case '\t':
      *out += "\\t";
      return;
    default:
      absl::StrAppendFormat(out, "\\u%04x", static_cast<int>(letter));
  }
}

void AppendDouble(double number, std::string* out) {
  if (!std::isfinite(number)) {
    *out += "null";
    return;
  }
  char digits[64];
  const char* const end =
      nlohmann::detail::to_chars(digits, digits + sizeof(digits), number);
  out->append(digits, static_cast<size_t>(end - digits));
}

// Opens, separates and closes what stands in a list or an object.
class Brackets {
 public:
  // `step` below 0: no lines.
  Brackets(const char* pair, size_t size, int step, int level, std::string* out)
      : close_(pair[1]), size_(size), step_(step), level_(level), out_(*out) {
    out_ += pair[0];
  }
  void Next() {
    if (count_++ > 0) out_ += ',';
    Line(level_ + 1);
  }
  void Close() {
    if (size_ > 0) Line(level_);
    out_ += close_;
  }

 private:
  void Line(int level) {
    if (step_ < 0) return;
    out_ += '\n';
    out_.append(static_cast<size_t>(level * step_), ' ');
  }

  const char close_;
  const size_t size_;
  const int step_;
  const int level_;
  size_t count_ = 0;
  std::string& out_;
};

void Write(const Json& json, int step, int level, std::string* out) {
  switch (json.type()) {
    case Json::Type::kNull:
      *out += "null";
      return;
    case Json::Type::kBoolean:
      *out += json.get<bool>() ? "true" : "false";
      return;
    case Json::Type::kInteger:
      absl::StrAppend(out, json.get<int64_t>());
      return;
    case Json::Type::kUnsigned:
      absl::StrAppend(out, json.get<uint64_t>());
      return;
    case Json::Type::kDouble:
      AppendDouble(json.get<double>(), out);
      return;
    case Json::Type::kString:
      AppendQuotedJson(json.text(), out);
      return;
    case Json::Type::kArray: {
      Brackets brackets("[]", json.size(), step, level, out);
      for (const Json& each : json) {
        brackets.Next();
        Write(each, step, level + 1, out);
      }
      brackets.Close();
      return;
    }
    case Json::Type::kObject: {
      Brackets brackets("{}", json.size(), step, level, out);
      for (const auto& [key, value] : json.items()) {
        brackets.Next();
        AppendQuotedJson(key, out);
        *out += step < 0 ? ":" : ": ";
        Write(value, step, level + 1, out);
      }
      brackets.Close();
      return;
    }
  }
}

// Builds what nlohmann reads.
class TreeHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  const absl::Status& status() const { return status_; }
  Json Take() { return std::move(root_); }

  bool null() override { return Put(nullptr); }
  bool boolean(bool value) override { return Put(value); }
  bool number_integer(number_integer_t value) override { return Put(value); }
  bool number_unsigned(number_unsigned_t value) override { return Put(value); }
  bool number_float(number_float_t value, const string_t&) override {
    return Put(value);
  }
  bool string(string_t& value) override { return Put(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Open(Json::object()); }
  bool key(string_t& value) override {
    next_ = &(*open_.back())[value];
    return true;
  }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override { return Open(Json::array()); }
  bool end_array() override { return Close(); }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ...",
    // "[json.exception.out_of_range.406] number overflow parsing '1e999'"
    absl::string_view words = error.what();
    for (const absl::string_view before : {"] ", "parse error at "}) {
      const size_t found = words.find(before);
      if (found != absl::string_view::npos) {
        words.remove_prefix(found + before.size());
      }
    }
    return Fail(words);
  }

 private:
  bool Fail(absl::string_view why) {
    status_ = absl::InvalidArgumentError(absl::StrCat("not JSON: ", why));
    return false;
  }
  // Where the value stands now; what is open around it does not grow before it
  // is closed.
  Json* Place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      return &open_.back()->back();
    }
    *next_ = std::move(value);
    return next_;
  }
  bool Put(Json value) {
    Place(std::move(value));
    return true;
  }
  bool Open(Json value) {
    if (open_.size() >= kMostDepth) {
      return Fail(absl::StrCat("nested deeper than ", kMostDepth));
    }
    open_.push_back(Place(std::move(value)));
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_;
  Json* next_ = nullptr;  // of the key that was read last
  absl::Status status_;
};

}  // namespace

Json::Json(const char* text) { SetText(text); }

void Json::SetText(std::string text) {
  value_.text = new std::string(std::move(text));
  type_ = Type::kString;
}

Json::Json(std::initializer_list<Field> fields) : Json(object()) {
  value_.members->reserve(fields.size());
  for (const Field& field : fields) {
    PW_CHECK(!contains(field.key));
    Member& member = value_.members->emplace_back();
    member.key = std::string(field.key);
    member.value.Take(field.value);
  }
}

Json::Json(const Json& other) : type_(other.type_), value_(other.value_) {
  switch (type_) {
    case Type::kString:
      value_.text = new std::string(*other.value_.text);
      return;
    case Type::kArray:
      value_.list = new std::vector<Json>(*other.value_.list);
      return;
    case Type::kObject:
      value_.members = new std::vector<Member>(*other.value_.members);
      return;
    default:
      return;
  }
}

Json& Json::operator=(Json other) noexcept {
  std::swap(type_, other.type_);
  std::swap(value_, other.value_);
  return *this;
}

void Json::Destroy() {
  switch (type_) {
    case Type::kString:
      delete value_.text;
      return;
    case Type::kArray:
      delete value_.list;
      return;
    case Type::kObject:
      delete value_.members;
      return;
    default:
      return;
  }
}

Json Json::object() {
  Json out;
  out.value_.members = new std::vector<Member>();
  out.type_ = Type::kObject;
  return out;
}

Json Json::array() {
  Json out;
  out.value_.list = new std::vector<Json>();
  out.type_ = Type::kArray;
  return out;
}

Json Json::array(std::initializer_list<Json> list) {
  Json out = array();
  out.reserve(list.size());
  for (const Json& each : list) out.value_.list->emplace_back().Take(each);
  return out;
}

template <>
bool Json::get<bool>() const {
  PW_CHECK(is_boolean());
  return value_.boolean;
}

template <>
int64_t Json::get<int64_t>() const {
  PW_CHECK(is_number());
  return type_ == Type::kDouble ? static_cast<int64_t>(value_.number)
                                : value_.integer;
}

template <>
uint64_t Json::get<uint64_t>() const {
  PW_CHECK(is_number());
  return type_ == Type::kDouble ? static_cast<uint64_t>(value_.number)
                                : value_.natural;
}

template <>
int Json::get<int>() const {
  return static_cast<int>(get<int64_t>());
}

template <>
double Json::get<double>() const {
  PW_CHECK(is_number());
  if (type_ == Type::kInteger) return static_cast<double>(value_.integer);
  if (type_ == Type::kUnsigned) return static_cast<double>(value_.natural);
  return value_.number;
}

template <>
std::string Json::get<std::string>() const {
  return text();
}

const std::string& Json::text() const {
  PW_CHECK(is_string());
  return *value_.text;
}

size_t Json::size() const {
  if (is_array()) return value_.list->size();
  if (is_object()) return value_.members->size();
  PW_CHECK(is_null());
  return 0;
}

void Json::reserve(size_t size) {
  if (is_object()) {
    value_.members->reserve(size);
  } else {
    List().reserve(size);
  }
}

std::vector<Json>& Json::List() {
  if (is_null()) *this = array();
  PW_CHECK(is_array());
  return *value_.list;
}

std::vector<Json::Member>& Json::Members() {
  if (is_null()) *this = object();
  PW_CHECK(is_object());
  return *value_.members;
}

Json& Json::At(size_t index) {
  PW_CHECK(is_array() && index < value_.list->size());
  return (*value_.list)[index];
}

void Json::push_back(Json value) { List().push_back(std::move(value)); }

Json* Json::begin() { return is_null() ? nullptr : List().data(); }

Json* Json::end() { return begin() + size(); }

const Json* Json::begin() const { return const_cast<Json*>(this)->begin(); }

const Json* Json::end() const { return const_cast<Json*>(this)->end(); }

Json& Json::operator[](absl::string_view key) {
  std::vector<Member>& members = Members();
  for (Member& member : members) {
    if (member.key == key) return member.value;
  }
  return members.emplace_back(Member{.key = std::string(key), .value = {}})
      .value;
}

const Json& Json::operator[](absl::string_view key) const {
  const Json* const found = find(key);
  PW_CHECK(found != nullptr);
  return *found;
}

const Json* Json::find(absl::string_view key) const {
  if (!is_object()) return nullptr;
  for (const Member& member : *value_.members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

const std::vector<Json::Member>& Json::items() const {
  PW_CHECK(is_object());
  return *value_.members;
}

void Json::append(absl::string_view key, Json value) {
  Members().push_back({.key = std::string(key), .value = std::move(value)});
}

void Json::update(Json other) {
  for (Member& member : other.Members()) {
    (*this)[member.key] = std::move(member.value);
  }
}

std::string Json::dump(int indent) const {
  std::string out;
  append_to(&out, indent);
  return out;
}

void Json::append_to(std::string* out, int indent) const {
  Write(*this, indent, 0, out);
}

bool operator==(const Json& a, const Json& b) {
  using Type = Json::Type;
  if (a.is_number() && b.is_number()) {
    if (a.type_ == Type::kDouble || b.type_ == Type::kDouble) {
      return a.get<double>() == b.get<double>();
    }
    // The bits of one below 0 are those of a large one.
    return a.value_.integer == b.value_.integer &&
           (a.type_ == b.type_ || a.value_.integer >= 0);
  }
  if (a.type_ != b.type_) return false;
  switch (a.type_) {
    case Type::kBoolean:
      return a.value_.boolean == b.value_.boolean;
    case Type::kString:
      return *a.value_.text == *b.value_.text;
    case Type::kArray:
      return *a.value_.list == *b.value_.list;
    case Type::kObject:
      return std::equal(a.items().begin(), a.items().end(), b.items().begin(),
                        b.items().end(),
                        [](const Json::Member& one, const Json::Member& two) {
                          return one.key == two.key && one.value == two.value;
                        });
    default:
      return true;
  }
}

std::ostream& operator<<(std::ostream& out, const Json& json) {
  return out << json.dump();
}

std::string QuotedJson(absl::string_view text) {
  std::string out;
  AppendQuotedJson(text, &out);
  return out;
}

void AppendQuotedJson(absl::string_view text, std::string* out) {
  *out += '"';
  while (!text.empty()) {
    const size_t plain = static_cast<size_t>(
        std::find_if_not(text.begin(), text.end(), IsPlain) - text.begin());
    out->append(text.data(), plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    size_t length = 1;
    if (static_cast<signed char>(text[0]) >= 0) {
      AppendEscaped(text[0], out);
    } else {
      size_t bad = 0;
      length = Utf8Length(text, &bad);
      if (length > 0) {
        out->append(text.data(), length);
      } else {
        *out += "\xEF\xBF\xBD";
        length = bad;
      }
    }
    text.remove_prefix(length);
  }
  *out += '"';
}

absl::StatusOr<Json> ParseJson(absl::string_view text) {
  TreeHandler handler;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &handler)) {
    return handler.status();
  }
  return handler.Take();
}

absl::Status JsonFault(absl::string_view text, absl::string_view source) {
  try {
    [[maybe_unused]] const auto json =
        nlohmann::json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::exception& error) {
    // A number out of range has no place.
    const auto* const syntax =
        dynamic_cast<const nlohmann::json::parse_error*>(&error);
    int64_t line = 0;
    if (syntax != nullptr) {
      // `byte` counts from 1, and is 0 where nobody knows.
      const size_t before =
          std::min(std::max<size_t>(syntax->byte, 1) - 1, text.size());
      line = 1 + std::count(text.begin(), text.begin() + before, '\n');
    }
    return InFile(source, line,
                  absl::InvalidArgumentError(JsonFaultOf(error.what())));
  }
  return absl::OkStatus();
}

// "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
std::string JsonFaultOf(absl::string_view message) {
  const size_t start = message.find(": ");
  return absl::StrCat("not JSON: ", start == absl::string_view::npos
                                        ? message
                                        : message.substr(start + 2));
}

}  // namespace pipewright
