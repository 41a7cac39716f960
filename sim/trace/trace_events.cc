#include "sim/trace/trace_events.h"

#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

using Json = nlohmann::json;

template <typename Value>
const Value* Find(const std::vector<std::pair<std::string, Value>>& list,
                  absl::string_view name) {
  for (const auto& [key, value] : list) {
    if (key == name) return &value;
  }
  return nullptr;
}

class Handler : public nlohmann::json_sax<Json> {
 public:
  Handler(const std::function<absl::Status(const TraceEvent&)>& see,
          TraceHeader* header)
      : see_(see), header_(*header) {}

  bool found() const { return found_; }
  const absl::Status& status() const { return status_; }

  bool null() override { return true; }
  bool boolean(bool value) override { return Number(value ? 1 : 0, ""); }
  bool number_integer(number_integer_t value) override {
    return Number(static_cast<double>(value), absl::StrCat(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return Number(static_cast<double>(value), absl::StrCat(value));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    return Number(value, text);
  }
  bool string(string_t& value) override {
    if (InArgs()) {
      event_.words.emplace_back(key(), value);
    } else if (InEvent()) {
      if (key() == "ph") event_.phase = value;
      if (key() == "cat") event_.category = value;
      if (key() == "name") event_.name = value;
      if (key() == "pid") event_.process = value;
      if (key() == "tid") event_.thread = value;
    } else if (Beside("otherData")) {
      header_.other_data.emplace_back(key(), value);
    } else if (InDevice() && key() == "name") {
      header_.device = value;
    }
    return true;
  }
  bool binary(binary_t&) override { return true; }

  bool start_object(std::size_t) override {
    keys_.emplace_back();
    if (InEvent()) {
      const int64_t index = event_.index;
      event_ = {};
      event_.index = index;
    } else if (AmongDevices()) {
      ++devices_;
    }
    return true;
  }
  bool key(string_t& value) override {
    keys_.back() = value;
    return true;
  }
  bool end_object() override {
    if (InEvent()) {
      status_ = Prefix(absl::StrCat("event ", event_.index), see_(event_));
      ++event_.index;
      if (!status_.ok()) return false;
    }
    keys_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override {
    if (keys_.empty()) bare_ = true;
    found_ |= bare_ || (keys_.size() == 1 && keys_[0] == "traceEvents");
    keys_.emplace_back();
    return true;
  }
  bool end_array() override {
    keys_.pop_back();
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    status_ = absl::InvalidArgumentError(
        absl::StrCat("no JSON at byte ", position, " (", error.what(), ")"));
    return false;
  }

 private:
  const std::string& key() const { return keys_.back(); }
  // Open objects and lists around an event, itself included.
  size_t depth() const { return bare_ ? 2 : 3; }
  bool AmongEvents() const { return bare_ || keys_[0] == "traceEvents"; }
  bool InEvent() const { return keys_.size() == depth() && AmongEvents(); }
  bool InArgs() const {
    return keys_.size() == depth() + 1 && AmongEvents() &&
           keys_[depth() - 1] == "args";
  }
  bool Beside(absl::string_view object) const {
    return keys_.size() == 2 && !bare_ && keys_[0] == object;
  }
  bool AmongDevices() const {
    return keys_.size() == 3 && !bare_ && keys_[0] == "deviceProperties";
  }
  bool InDevice() const { return AmongDevices() && devices_ == 1; }
  bool Number(double value, const std::string& text) {
    if (InArgs()) {
      event_.numbers.emplace_back(key(), value);
    } else if (InEvent()) {
      if (key() == "ts") event_.start_us = value;
      if (key() == "dur") event_.duration_us = value;
      if (key() == "pid") event_.process = text;
      if (key() == "tid") event_.thread = text;
    } else if (Beside("distributedInfo") && key() == "rank") {
      header_.rank = static_cast<int>(std::lround(value));
    } else if (InDevice() && key() == "totalGlobalMem") {
      header_.device_memory_bytes = static_cast<int64_t>(value);
    }
    return true;
  }

  const std::function<absl::Status(const TraceEvent&)>& see_;
  TraceHeader& header_;
  std::vector<std::string> keys_;  // of every open object or list
  TraceEvent event_;
  int devices_ = 0;
  bool bare_ = false;
  bool found_ = false;
  absl::Status status_;
};

}  // namespace

const double* TraceEvent::Number(absl::string_view key) const {
  return Find(numbers, key);
}

const std::string* TraceEvent::Word(absl::string_view key) const {
  return Find(words, key);
}

const std::string* TraceHeader::Other(absl::string_view key) const {
  return Find(other_data, key);
}

absl::Status ReadTraceEvents(
    std::istream& in, const std::string& source,
    const std::function<absl::Status(const TraceEvent&)>& see,
    TraceHeader* header) {
  // The first byte of gzip; unpacking is left to gunzip.
  if (in.peek() == 0x1f) {
    return absl::InvalidArgumentError(absl::StrCat(
        source, ": is packed; allowed: the JSON itself (gunzip FILE.gz)"));
  }
  Handler handler(see, header);
  if (!Json::sax_parse(in, &handler)) return Prefix(source, handler.status());
  if (!handler.found()) {
    return absl::InvalidArgumentError(absl::StrCat(
        source,
        ": has no list \"traceEvents\"; allowed: a Chrome trace, as "
        "simulate --trace or PyTorch's profiler (export_chrome_trace) "
        "writes it"));
  }
  return absl::OkStatus();
}

}  // namespace pipewright
