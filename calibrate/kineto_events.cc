#include "calibrate/kineto_events.h"

#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"

namespace pipewright {
namespace {

using Json = nlohmann::json;

// Depth of an element of "traceEvents": root, list, event.
constexpr size_t kEventDepth = 3;

class Handler : public nlohmann::json_sax<Json> {
 public:
  Handler(const std::function<void(const KinetoEvent&)>& see,
          KinetoDevice* device)
      : see_(see), device_(device) {}

  bool found() const { return found_; }
  const std::string& error() const { return error_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
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
    if (in_event()) {
      if (key() == "ph") event_.phase = value;
      if (key() == "cat") event_.category = value;
      if (key() == "name") event_.name = value;
      if (key() == "pid") event_.process = value;
      if (key() == "tid") event_.thread = value;
    } else if (in_device() && key() == "name") {
      device_->name = value;
    }
    return true;
  }
  bool binary(binary_t&) override { return true; }

  bool start_object(std::size_t) override {
    keys_.emplace_back();
    if (keys_.size() == kEventDepth && keys_[0] == "traceEvents") event_ = {};
    if (keys_.size() == kEventDepth && keys_[0] == "deviceProperties") {
      ++devices_;
    }
    return true;
  }
  bool key(string_t& value) override {
    keys_.back() = value;
    return true;
  }
  bool end_object() override {
    if (keys_.size() == kEventDepth && keys_[0] == "traceEvents") see_(event_);
    keys_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override {
    found_ |= keys_.size() == 1 && keys_[0] == "traceEvents";
    keys_.emplace_back();
    return true;
  }
  bool end_array() override {
    keys_.pop_back();
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    error_ =
        absl::StrCat("no JSON at byte ", position, " (", error.what(), ")");
    return false;
  }

 private:
  const std::string& key() const { return keys_.back(); }
  bool in_event() const {
    return keys_.size() == kEventDepth && keys_[0] == "traceEvents";
  }
  bool in_device() const {
    return keys_.size() == kEventDepth && keys_[0] == "deviceProperties" &&
           devices_ == 1;
  }
  bool Number(double value, const std::string& text) {
    if (in_event()) {
      if (key() == "ts") event_.start_us = value;
      if (key() == "dur") event_.duration_us = value;
      if (key() == "pid") event_.process = text;
      if (key() == "tid") event_.thread = text;
    } else if (keys_.size() == kEventDepth + 1 && keys_[0] == "traceEvents" &&
               keys_[kEventDepth - 1] == "args" && key() == "correlation") {
      event_.correlation = static_cast<int64_t>(std::llround(value));
    } else if (in_device() && key() == "totalGlobalMem") {
      device_->memory_bytes = static_cast<int64_t>(value);
    }
    return true;
  }

  const std::function<void(const KinetoEvent&)>& see_;
  KinetoDevice* device_;
  std::vector<std::string> keys_;  // of every open object or list
  KinetoEvent event_;
  int devices_ = 0;
  bool found_ = false;
  std::string error_;
};

}  // namespace

absl::Status ReadKineto(std::istream& in, const std::string& source_name,
                        const std::function<void(const KinetoEvent&)>& see,
                        KinetoDevice* device) {
  // Unpacking is left to gunzip.
  if (in.peek() == 0x1f) {
    return absl::InvalidArgumentError(
        absl::StrCat(source_name,
                     ": is packed; allowed: the JSON itself "
                     "(gunzip FILE.json.gz)"));
  }
  Handler handler(see, device);
  if (!Json::sax_parse(in, &handler)) {
    return absl::InvalidArgumentError(
        absl::StrCat(source_name, ": ", handler.error()));
  }
  if (!handler.found()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source_name,
                     ": has no list \"traceEvents\"; allowed: a trace of "
                     "PyTorch's profiler (export_chrome_trace)"));
  }
  return absl::OkStatus();
}

}  // namespace pipewright
