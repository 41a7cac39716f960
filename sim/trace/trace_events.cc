#include "sim/trace/trace_events.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <streambuf>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

template <typename Value>
const Value* Find(const std::vector<std::pair<std::string, Value>>& list,
                  absl::string_view name) {
  for (const auto& [key, value] : list) {
    if (key == name) return &value;
  }
  return nullptr;
}

// A trace may be larger than memory, but not what is held of it at a time: an
// event, a text, what stands beside the events.
constexpr int64_t kMostHeld = int64_t{64} << 20;
constexpr size_t kMostDepth = 64;

// Reads a count: what is no number or below 0 is 0.
int64_t Whole(double value) {
  return value > 0 ? static_cast<int64_t>(std::min(value, 0x1p60)) : 0;
}

absl::Status TooMuch() {
  constexpr char kAllowed[] = "events and texts of at most 64 MiB each";
  return WithValue(
      absl::InvalidArgumentError(absl::StrCat(
          "has an event or a text of more than 64 MiB; allowed: ", kAllowed)),
      "", kAllowed);
}

// Bytes that were read since the last thing that need not be held any more.
class Held {
 public:
  void Add() { ++bytes_; }
  void Release() { bytes_ = 0; }
  bool too_much() const { return bytes_ > kMostHeld; }

 private:
  int64_t bytes_ = 0;
};

// The characters of a stream, which end where too much is held.
class HeldIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  HeldIterator() = default;
  HeldIterator(std::streambuf* buffer, Held* held)
      : buffer_(buffer), held_(held) {}

  char operator*() const {
    return std::streambuf::traits_type::to_char_type(buffer_->sgetc());
  }
  HeldIterator& operator++() {
    buffer_->sbumpc();
    held_->Add();
    return *this;
  }
  // Only for comparing with the end.
  friend bool operator==(const HeldIterator& a, const HeldIterator& b) {
    return a.ended() == b.ended();
  }
  friend bool operator!=(const HeldIterator& a, const HeldIterator& b) {
    return !(a == b);
  }

 private:
  bool ended() const {
    return buffer_ == nullptr || held_->too_much() ||
           buffer_->sgetc() == std::streambuf::traits_type::eof();
  }

  std::streambuf* buffer_ = nullptr;
  Held* held_ = nullptr;
};

class Handler : public nlohmann::json_sax<nlohmann::json> {
 public:
  Handler(const std::function<absl::Status(const TraceEvent&)>& see,
          TraceHeader* header, Held* held)
      : see_(see), header_(*header), held_(*held) {}

  bool found() const { return found_; }
  const absl::Status& status() const { return status_; }

  bool null() override { return Done(); }
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
    } else if (AmongDevices() && key() == "name") {
      header_.devices.back().name = value;
      if (header_.devices.size() == 1) header_.device = value;
    } else if (InGroup() && key() == "pg_desc") {
      header_.groups.back().description = value;
    } else if (InGroup() && key() == "ranks") {
      ReadRanks(value);
    }
    return Done();
  }
  bool binary(binary_t&) override { return true; }

  bool start_object(std::size_t) override {
    if (!Deeper(false)) return false;
    if (InEvent()) {
      const int64_t index = event_.index;
      event_ = {};
      event_.index = index;
    } else if (AmongDevices()) {
      header_.devices.emplace_back();
    } else if (InGroup()) {
      header_.groups.emplace_back();
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
    Leave();
    return Done();
  }
  bool start_array(std::size_t) override {
    if (keys_.empty()) bare_ = true;
    found_ |= bare_ || (keys_.size() == 1 && keys_[0] == "traceEvents");
    if (InDims(2)) event_.input_dims.emplace_back();
    return Deeper(true);
  }
  bool end_array() override {
    Leave();
    return Done();
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    status_ = absl::InvalidArgumentError(
        absl::StrCat("no JSON at byte ", position, " (", error.what(), ")"));
    return false;
  }

 private:
  bool Deeper(bool list) {
    if (keys_.size() >= kMostDepth) {
      status_ = absl::InvalidArgumentError(
          absl::StrCat("is nested deeper than ", kMostDepth));
      return false;
    }
    keys_.emplace_back();
    lists_.push_back(list);
    return true;
  }
  void Leave() {
    keys_.pop_back();
    lists_.pop_back();
  }
  // What was read is held no more, unless it is part of something that is.
  bool Done() {
    const bool is_kept = keys_.size() >= depth() && AmongEvents();
    if (!is_kept && !Beside("otherData")) held_.Release();
    return true;
  }
  const std::string& key() const { return keys_.back(); }
  bool InList() const { return lists_.back(); }
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
  bool InGroup() const {
    return keys_.size() == 4 && !bare_ && keys_[0] == "distributedInfo" &&
           keys_[1] == "pg_config";
  }
  bool AmongRanks() const {
    return keys_.size() == 5 && !bare_ && keys_[0] == "distributedInfo" &&
           keys_[1] == "pg_config" && keys_[3] == "ranks";
  }
  // So many lists below the arguments.
  bool InDims(size_t below) const {
    return keys_.size() == depth() + below && AmongEvents() &&
           keys_[depth() - 1] == "args" && keys_[depth()] == "Input Dims";
  }
  // "[0, 4, 8]"
  void ReadRanks(const std::string& text) {
    std::vector<int64_t>& ranks = header_.groups.back().ranks;
    for (const absl::string_view part :
         absl::StrSplit(text, absl::ByAnyChar("[], "), absl::SkipEmpty())) {
      int64_t rank = 0;
      if (absl::SimpleAtoi(part, &rank)) ranks.push_back(rank);
    }
  }
  bool Number(double value, const std::string& text) {
    if (InArgs()) {
      event_.numbers.emplace_back(key(), value);
    } else if (InEvent()) {
      if (key() == "ts") event_.start_us = value;
      if (key() == "dur") event_.duration_us = value;
      if (key() == "pid") event_.process = text;
      if (key() == "tid") event_.thread = text;
    } else if (InDims(3) && InList()) {
      event_.input_dims.back().push_back(Whole(value));
    } else if (Beside("distributedInfo") && key() == "rank") {
      header_.rank =
          static_cast<int>(std::lround(std::clamp(value, -1.0, 1e9)));
    } else if (Beside("distributedInfo") && key() == "world_size") {
      header_.world_size = Whole(value);
    } else if (InGroup() && key() == "pg_size") {
      header_.groups.back().size = Whole(value);
    } else if (AmongRanks()) {
      header_.groups.back().ranks.push_back(Whole(value));
    } else if (AmongDevices() && !InList()) {
      TraceDevice& device = header_.devices.back();
      if (key() == "id") device.id = Whole(value);
      if (key() == "numSms") device.multiprocessors = Whole(value);
      if (key() == "totalGlobalMem") device.memory_bytes = Whole(value);
      header_.device_memory_bytes = header_.devices[0].memory_bytes;
    }
    return Done();
  }

  const std::function<absl::Status(const TraceEvent&)>& see_;
  TraceHeader& header_;
  Held& held_;
  // Key read last in every open object or list, and which of the two it is.
  std::vector<std::string> keys_;
  std::vector<bool> lists_;
  TraceEvent event_;
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
    return InFile(source, 0,
                  absl::InvalidArgumentError(
                      "is packed; allowed: the JSON itself (gunzip FILE.gz)"));
  }
  Held held;
  Handler handler(see, header, &held);
  if (!nlohmann::json::sax_parse(HeldIterator(in.rdbuf(), &held),
                                 HeldIterator(), &handler)) {
    return InFile(source, 0, held.too_much() ? TooMuch() : handler.status());
  }
  if (!handler.found()) {
    constexpr char kAllowed[] =
        "a Chrome trace, as simulate --trace or PyTorch's profiler "
        "(export_chrome_trace) writes it";
    return InFile(
        source, 0,
        WithValue(absl::InvalidArgumentError(absl::StrCat(
                      "has no list \"traceEvents\"; allowed: ", kAllowed)),
                  "", kAllowed));
  }
  return absl::OkStatus();
}

}  // namespace pipewright
