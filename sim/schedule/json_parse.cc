// ParseScheduleJson: reads the JSON form that text.cc writes.
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/schedule/header.h"
#include "sim/schedule/token.h"

namespace pipewright {
namespace {

using Json = nlohmann::json;

// Deeper than any schedule; a reader recurses on what it shows.
constexpr int kMaxDepth = 8;

int64_t LineOfByte(absl::string_view content, size_t byte) {
  const absl::string_view before = content.substr(0, byte);
  return 1 + std::count(before.begin(), before.end(), '\n');
}

// The line that states `key`. Good enough for a message: a line that only
// looks like it may win.
int64_t LineOfKey(absl::string_view content, absl::string_view key) {
  const size_t byte = content.find(absl::StrCat("\"", key, "\""));
  return byte == absl::string_view::npos ? 1 : LineOfByte(content, byte);
}

// The lines of the `count` strings after `key`, found in the same way.
std::vector<int> LinesOfStrings(absl::string_view content,
                                absl::string_view key, int count) {
  const int64_t first = LineOfKey(content, key);
  std::vector<int> lines(count, static_cast<int>(first));
  size_t byte = content.find(absl::StrCat("\"", key, "\""));
  if (byte == absl::string_view::npos) return lines;
  size_t quote = byte + key.size() + 1;
  int64_t line = first;
  for (int& each : lines) {
    const size_t open = content.find('"', quote + 1);
    const size_t close =
        open == absl::string_view::npos ? open : content.find('"', open + 1);
    if (close == absl::string_view::npos) break;
    line += LineOfByte(content.substr(byte, open - byte), open - byte) - 1;
    each = static_cast<int>(line);
    byte = open;
    quote = close;
  }
  return lines;
}

class JsonReader {
 public:
  JsonReader(absl::string_view content, absl::string_view source)
      : content_(content), source_(source) {}

  absl::StatusOr<Schedule> Read() {
    PW_RETURN_IF_ERROR(Parse());
    PW_RETURN_IF_ERROR(ReadHeader());
    auto placement = header_.MakePlacement();
    if (!placement.ok()) {
      const std::string message(placement.status().message());
      return At(message.substr(0, message.find(':')), placement.status());
    }
    PW_ASSIGN_OR_RETURN(std::vector<RankOrder> orders,
                        ReadOrders(placement->pp()));
    return AssembleSchedule(header_, *std::move(placement), source_,
                            std::move(orders), std::move(lines_));
  }

 private:
  absl::Status At(absl::string_view key, const absl::Status& status) const {
    return InFile(source_, LineOfKey(content_, key), status);
  }

  absl::Status Parse() {
    std::vector<std::string> keys;
    std::string repeated;
    bool too_deep = false;
    const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
      too_deep |= depth > kMaxDepth;
      if (event == Json::parse_event_t::key && depth == 1) {
        const std::string& key = parsed.get_ref<const std::string&>();
        if (std::find(keys.begin(), keys.end(), key) != keys.end()) {
          repeated = key;
        }
        if (keys.size() < 64) keys.push_back(key);
      }
      return !too_deep;
    };
    try {
      json_ = Json::parse(content_.begin(), content_.end(), watch);
    } catch (const Json::exception& error) {
      // Outside of parse errors there is no position: numbers out of range.
      const auto* syntax = dynamic_cast<const Json::parse_error*>(&error);
      const int64_t line =
          syntax == nullptr
              ? 1
              : LineOfByte(content_,
                           std::min(syntax->byte == 0 ? 0 : syntax->byte - 1,
                                    content_.size()));
      return InFile(
          source_, line,
          absl::InvalidArgumentError(absl::StrCat("no JSON: ", error.what())));
    }
    if (!json_.is_object() || too_deep) {
      return InFile(
          source_, 1,
          absl::InvalidArgumentError("no schedule; needed: one JSON object"));
    }
    if (!repeated.empty()) {
      return At(repeated, absl::InvalidArgumentError(
                              absl::StrCat(Quoted(repeated), " stands twice")));
    }
    return absl::OkStatus();
  }

  absl::Status ReadHeader() {
    for (const auto& [key, value] : json_.items()) {
      PW_RETURN_IF_ERROR(At(key, ReadField(key, value)));
    }
    for (const char* key : {"format", "version", "orders"}) {
      if (json_.contains(key)) continue;
      return InFile(
          source_, 1,
          absl::InvalidArgumentError(absl::StrCat(key, " is missing")));
    }
    return absl::OkStatus();
  }

  absl::Status ReadField(const std::string& key, const Json& value) {
    if (key == "orders") return absl::OkStatus();
    if (key == "format") {
      return value == kScheduleFormat
                 ? absl::OkStatus()
                 : BadValue("format", Quoted(value.dump()), kScheduleFormat);
    }
    if (key == "version") {
      return value.is_number_integer() && value == 1
                 ? absl::OkStatus()
                 : BadValue("version", Quoted(value.dump()), "1");
    }
    if (key == "placement") return ReadPlacement(value);
    if (key == "backward") {
      return header_.SetBackward(
          value.is_string() ? value.get_ref<const std::string&>() : "");
    }
    const HeaderField* field = FindHeaderField(key);
    if (field == nullptr) {
      return UnknownHeaderField(key, {"format", "version", "orders"});
    }
    if (!IsIntegerIn(value, field->minimum, field->maximum)) {
      return BadHeaderNumber(*field, Quoted(value.dump()));
    }
    header_.numbers[key] = value.get<int>();
    return absl::OkStatus();
  }

  static bool IsIntegerIn(const Json& value, int64_t minimum, int64_t maximum) {
    return value.is_number_unsigned() &&
           value.get<uint64_t>() >= static_cast<uint64_t>(minimum) &&
           value.get<uint64_t>() <= static_cast<uint64_t>(maximum);
  }

  absl::Status ReadPlacement(const Json& value) {
    if (value.is_string()) {
      return header_.SetPlacement(value.get_ref<const std::string&>());
    }
    std::vector<int> ranks;
    bool good = value.is_array();
    for (size_t stage = 0; good && stage < value.size(); ++stage) {
      good = IsIntegerIn(value[stage], 0, kMaxRanks - 1);
      if (good) ranks.push_back(value[stage].get<int>());
    }
    if (!good) {
      return BadValue("placement", Quoted(value.dump()),
                      "plain, loop, v, wave, or a list of the rank of each "
                      "stage");
    }
    header_.rank_of_stage = std::move(ranks);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<RankOrder>> ReadOrders(int ranks) {
    const Json& list = json_["orders"];
    if (!list.is_array() || list.size() != static_cast<size_t>(ranks)) {
      return At(
          "orders",
          BadValue("orders",
                   list.is_array() ? absl::StrCat("a list of ", list.size())
                                   : Quoted(list.dump()),
                   absl::StrCat("a list of ", ranks, " strings, one a rank")));
    }
    lines_ = LinesOfStrings(content_, "orders", ranks);
    std::vector<RankOrder> orders;
    for (int rank = 0; rank < ranks; ++rank) {
      if (!list[rank].is_string()) {
        return At("orders",
                  BadValue(absl::StrCat("orders[", rank, "]"),
                           Quoted(list[rank].dump()), "a string of passes"));
      }
      auto order =
          ParseOrder(list[rank].get_ref<const std::string&>(), header_.Sizes());
      if (!order.ok()) {
        return InFile(source_, lines_[rank],
                      Prefix(absl::StrCat("rank ", rank), order.status()));
      }
      orders.push_back(*std::move(order));
    }
    return orders;
  }

  absl::string_view content_;
  absl::string_view source_;
  Json json_;
  ScheduleHeader header_;
  std::vector<int> lines_;  // [rank]
};

}  // namespace

absl::StatusOr<Schedule> ParseScheduleJson(absl::string_view content,
                                           absl::string_view source) {
  return JsonReader(content, source).Read();
}

}  // namespace pipewright
