#include "sim/config/config_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/json_fault.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr int kMaxTreeDepth = 32;

// Both parsers tell what they meet one event at a time; this makes a tree of
// it. The first error is kept, and everything after it ignored.
class TreeBuilder {
 public:
  explicit TreeBuilder(absl::string_view source) : source_(source) {}

  bool Fail(int line, absl::string_view message) {
    if (status_.ok()) {
      status_ = InFile(source_, line, absl::InvalidArgumentError(message));
    }
    return false;
  }

  bool Open(ConfigNode::Kind kind, int line) {
    if (AwaitsKey()) return Fail(line, "a key must be a plain word");
    if (static_cast<int>(open_.size()) >= kMaxTreeDepth) {
      return Fail(line, absl::StrCat("nested deeper than ", kMaxTreeDepth));
    }
    ConfigNode node;
    node.kind = kind;
    node.line = line;
    open_.push_back({std::move(node), "", 0, false});
    return status_.ok();
  }

  bool Close() {
    if (!status_.ok()) return false;
    ConfigNode node = std::move(open_.back().node);
    open_.pop_back();
    return Put(std::move(node));
  }

  bool Key(absl::string_view key, int line) {
    if (!status_.ok()) return false;
    for (const ConfigNode::Entry& entry : open_.back().node.entries) {
      if (entry.key != key) continue;
      return Fail(line, absl::StrCat("key '", key, "' stands here twice; the ",
                                     "first is on line ", entry.line));
    }
    open_.back().key = std::string(key);
    open_.back().key_line = line;
    open_.back().has_key = true;
    return true;
  }

  // YAML has no event for keys: a scalar where a key is due is one.
  bool AwaitsKey() const {
    return !open_.empty() && !open_.back().has_key &&
           open_.back().node.kind == ConfigNode::Kind::kMap;
  }

  bool Scalar(absl::string_view text, bool quoted, int line) {
    ConfigNode node;
    node.kind = ConfigNode::Kind::kScalar;
    node.text = std::string(text);
    node.quoted = quoted;
    node.line = line;
    return Put(std::move(node));
  }

  bool Null(int line) {
    ConfigNode node;
    node.line = line;
    return Put(std::move(node));
  }

  absl::StatusOr<ConfigNode> Finish() && {
    if (!status_.ok()) return status_;
    return std::move(root_);
  }
  bool ok() const { return status_.ok(); }

 private:
  struct Level {
    ConfigNode node;
    std::string key;
    int key_line;
    bool has_key;
  };

  bool Put(ConfigNode node) {
    if (!status_.ok()) return false;
    if (open_.empty()) {
      root_ = std::move(node);
      return true;
    }
    Level& level = open_.back();
    if (level.node.kind == ConfigNode::Kind::kList) {
      level.node.items.push_back(std::move(node));
      return true;
    }
    level.node.entries.push_back(
        {std::move(level.key), level.key_line, std::move(node)});
    level.has_key = false;
    return true;
  }

  std::string source_;
  absl::Status status_;
  ConfigNode root_;
  std::vector<Level> open_;
};

class YamlHandler : public YAML::EventHandler {
 public:
  explicit YamlHandler(TreeBuilder* builder) : builder_(builder) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    if (builder_->AwaitsKey()) {
      builder_->Fail(mark.line + 1, "a key is empty");
    } else {
      builder_->Null(mark.line + 1);
    }
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    builder_->Fail(mark.line + 1, "aliases (*name) are not supported");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& value) override {
    if (builder_->AwaitsKey()) {
      builder_->Key(value, mark.line + 1);
    } else {
      builder_->Scalar(value, tag != "?", mark.line + 1);
    }
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&,
                       YAML::anchor_t, YAML::EmitterStyle::value) override {
    builder_->Open(ConfigNode::Kind::kList, mark.line + 1);
  }
  void OnSequenceEnd() override { builder_->Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    builder_->Open(ConfigNode::Kind::kMap, mark.line + 1);
  }
  void OnMapEnd() override { builder_->Close(); }

 private:
  TreeBuilder* builder_;
};

// Reads characters and counts the lines that it has passed, so that SAX
// events know where they are (nlohmann's parser does not tell).
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, int* line) : at_(at), line_(line) {}
  const char& operator*() const { return *at_; }
  CountingIterator& operator++() {
    if (*at_ == '\n') ++*line_;
    ++at_;
    return *this;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) {
    return a.at_ == b.at_;
  }
  friend bool operator!=(const CountingIterator& a, const CountingIterator& b) {
    return a.at_ != b.at_;
  }

 private:
  const char* at_;
  int* line_;
};

// A number ends one character late, so a line break behind it has been
// counted already; *line_ is that of the next character.
class JsonHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonHandler(TreeBuilder* builder, const int* line)
      : builder_(builder), line_(line) {}

  bool null() override { return builder_->Null(*line_); }
  bool boolean(bool value) override {
    return builder_->Scalar(value ? "true" : "false", false, *line_);
  }
  bool number_integer(number_integer_t value) override {
    return builder_->Scalar(absl::StrCat(value), false, *line_);
  }
  bool number_unsigned(number_unsigned_t value) override {
    return builder_->Scalar(absl::StrCat(value), false, *line_);
  }
  bool number_float(number_float_t, const string_t& text) override {
    return builder_->Scalar(text, false, *line_);
  }
  bool string(string_t& value) override {
    return builder_->Scalar(value, true, *line_);
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override {
    return builder_->Open(ConfigNode::Kind::kMap, *line_);
  }
  bool key(string_t& value) override { return builder_->Key(value, *line_); }
  bool end_object() override { return builder_->Close(); }
  bool start_array(std::size_t) override {
    return builder_->Open(ConfigNode::Kind::kList, *line_);
  }
  bool end_array() override { return builder_->Close(); }
  bool parse_error(std::size_t, const std::string& token,
                   const nlohmann::detail::exception& error) override {
    constexpr int kNumberOverflow = 406;  // nlohmann's id of the exception
    if (error.id == kNumberOverflow) {
      return builder_->Fail(*line_,
                            absl::StrCat(token,
                                         " is not allowed; allowed: a finite "
                                         "number"));
    }
    return builder_->Fail(*line_, JsonFaultOf(error.what()));
  }

 private:
  TreeBuilder* builder_;
  const int* line_;
};

}  // namespace

std::string ConfigNode::Describe() const {
  switch (kind) {
    case Kind::kNull:
      return "nothing";
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a mapping";
    case Kind::kScalar:
      return quoted ? absl::StrCat("\"", text, "\"") : text;
  }
  return "";
}

absl::StatusOr<ConfigNode> ParseYamlTree(absl::string_view text,
                                         absl::string_view source) {
  TreeBuilder builder(source);
  YamlHandler handler(&builder);
  std::istringstream stream{std::string(text)};
  try {
    YAML::Parser parser(stream);
    if (parser.HandleNextDocument(handler) && builder.ok()) {
      TreeBuilder ignored(source);
      YamlHandler second(&ignored);
      if (parser.HandleNextDocument(second)) {
        builder.Fail(1, "contains several YAML documents; allowed: one");
      }
    }
  } catch (const YAML::Exception& error) {
    builder.Fail(error.mark.line + 1, absl::StrCat("not YAML: ", error.msg));
  }
  return std::move(builder).Finish();
}

absl::StatusOr<ConfigNode> ParseJsonTree(absl::string_view text,
                                         absl::string_view source) {
  TreeBuilder builder(source);
  int line = 1;
  JsonHandler handler(&builder, &line);
  nlohmann::json::sax_parse(CountingIterator(text.data(), &line),
                            CountingIterator(text.data() + text.size(), &line),
                            &handler);
  return std::move(builder).Finish();
}

}  // namespace pipewright
