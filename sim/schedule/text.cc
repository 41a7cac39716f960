#include "sim/schedule/text.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/schedule/header.h"
#include "sim/schedule/token.h"
#include "sim/schedule/torch_csv.h"
#include "sim/schedule/verify.h"
#include "sim/schedule/verify_transfers.h"

namespace pipewright {

std::string ScheduleToText(const Schedule& schedule) {
  std::string text = absl::StrCat(
      "pipewright-schedule 1\npp ", schedule.pp(), " vpp ", schedule.vpp(),
      " microbatches ", schedule.microbatches, " slices ", schedule.slices,
      " replicas ", schedule.directions,
      schedule.unit > 0 ? absl::StrCat(" unit ", schedule.unit) : "",
      schedule.update_every > 0
          ? absl::StrCat(" update_every ", schedule.update_every)
          : "",
      " placement ", schedule.placement.ToString());
  if (schedule.backward != BackwardRule::kChain) {
    absl::StrAppend(&text, " backward ", BackwardRuleName(schedule.backward));
  }
  text += '\n';
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    absl::StrAppend(&text, rank, ":");
    if (!schedule.order(rank).empty()) text += ' ';
    AppendOrder(schedule, rank, ' ', &text);
    text += '\n';
  }
  return text;
}

std::string ScheduleToJson(const Schedule& schedule) {
  std::string placement = schedule.placement.ToString();
  placement = schedule.placement.shape() == Placement::Shape::kList
                  ? absl::StrCat(
                        "[", absl::StrReplaceAll(placement, {{" ", ", "}}), "]")
                  : absl::StrCat("\"", placement, "\"");
  std::string json = absl::StrCat(
      "{\n  \"format\": \"pipewright-schedule\",\n  \"version\": 1,\n",
      "  \"pp\": ", schedule.pp(), ",\n  \"vpp\": ", schedule.vpp(),
      ",\n  \"microbatches\": ", schedule.microbatches,
      ",\n  \"slices\": ", schedule.slices,
      ",\n  \"replicas\": ", schedule.directions,
      schedule.unit > 0 ? absl::StrCat(",\n  \"unit\": ", schedule.unit) : "",
      schedule.update_every > 0
          ? absl::StrCat(",\n  \"update_every\": ", schedule.update_every)
          : "",
      ",\n  \"placement\": ", placement);
  if (schedule.backward != BackwardRule::kChain) {
    absl::StrAppend(&json, ",\n  \"backward\": \"",
                    BackwardRuleName(schedule.backward), "\"");
  }
  absl::StrAppend(&json, ",\n  \"orders\": [");
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    absl::StrAppend(&json, rank == 0 ? "" : ",", "\n    \"");
    AppendOrder(schedule, rank, ' ', &json);
    json += '"';
  }
  absl::StrAppend(&json, "\n  ]\n}\n");
  return json;
}

std::string ScheduleToCsv(const Schedule& schedule) {
  std::string csv;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    AppendOrder(schedule, rank, ',', &csv);
    csv += '\n';
  }
  return csv;
}

namespace {

absl::Status At(absl::string_view source, int64_t line,
                const absl::Status& status) {
  return InFile(source, line, status);
}

// Lines with something on them, comments taken off.
class LineReader {
 public:
  explicit LineReader(absl::string_view content) : rest_(content) {}

  int64_t line() const { return line_; }

  // The next line that is not blank, or "" at the end.
  absl::string_view Next() {
    while (!rest_.empty()) {
      ++line_;
      const size_t end = rest_.find('\n');
      absl::string_view text = rest_.substr(0, end);
      rest_.remove_prefix(end == absl::string_view::npos ? rest_.size()
                                                         : end + 1);
      text = absl::StripAsciiWhitespace(text.substr(0, text.find('#')));
      if (!text.empty()) return text;
    }
    return "";
  }

 private:
  absl::string_view rest_;
  int64_t line_ = 0;
};

// The rank of each stage, up to the first word that is no number.
absl::Status TakeRankList(absl::string_view& text, ScheduleHeader& header) {
  std::vector<int> ranks;
  while (true) {
    absl::string_view ahead = text;
    absl::string_view word = TakeWord(ahead);
    if (word.empty() || !absl::ascii_isdigit(word[0])) break;
    int64_t rank = 0;
    const std::string quoted = Quoted(word);
    // Blanks separate; commas may.
    do {
      if (!TakeNumber(word, kMaxRanks - 1, rank)) break;
      ranks.push_back(static_cast<int>(rank));
    } while (absl::ConsumePrefix(&word, ",") && !word.empty());
    if (!word.empty()) {
      return BadValue(
          "placement", quoted,
          absl::StrCat("ranks, 0..", kMaxRanks - 1, ", separated by blanks"));
    }
    text = ahead;
  }
  header.rank_of_stage = std::move(ranks);
  return absl::OkStatus();
}

absl::StatusOr<ScheduleHeader> ParseHeaderLine(absl::string_view text) {
  ScheduleHeader header;
  bool placed = false;
  bool ruled = false;
  while (true) {
    const absl::string_view key = TakeWord(text);
    if (key.empty()) return header;
    if (key == "placement") {
      if (placed) return absl::InvalidArgumentError("placement stands twice");
      placed = true;
      absl::string_view ahead = text;
      const absl::string_view value = TakeWord(ahead);
      if (!value.empty() && absl::ascii_isdigit(value[0])) {
        PW_RETURN_IF_ERROR(TakeRankList(text, header));
      } else {
        PW_RETURN_IF_ERROR(header.SetPlacement(value));
        text = ahead;
      }
      continue;
    }
    if (key == "backward") {
      if (ruled) return absl::InvalidArgumentError("backward stands twice");
      ruled = true;
      PW_RETURN_IF_ERROR(header.SetBackward(TakeWord(text)));
      continue;
    }
    const HeaderField* field = FindHeaderField(key);
    if (field == nullptr) return UnknownHeaderField(key, {});
    if (header.numbers.count(std::string(key)) > 0) {
      return absl::InvalidArgumentError(absl::StrCat(key, " stands twice"));
    }
    absl::string_view value = TakeWord(text);
    const std::string quoted = Quoted(value);
    int64_t number = 0;
    if (!TakeNumber(value, field->maximum, number) || !value.empty() ||
        number < field->minimum) {
      return BadHeaderNumber(*field, quoted);
    }
    header.numbers[std::string(key)] = static_cast<int>(number);
  }
}

absl::StatusOr<Schedule> ParseText(absl::string_view content,
                                   absl::string_view source) {
  LineReader lines(content);
  absl::string_view first = lines.Next();
  if (TakeWord(first) != kScheduleFormat || TakeWord(first) != "1" ||
      !TakeWord(first).empty()) {
    return At(source, std::max<int64_t>(lines.line(), 1),
              absl::InvalidArgumentError(absl::StrCat(
                  "no schedule; the first line must be \"", kScheduleFormat,
                  " 1\" (or the file JSON, or PyTorch's CSV)")));
  }
  auto header = ParseHeaderLine(lines.Next());
  if (!header.ok()) return At(source, lines.line(), header.status());
  auto placement = header->MakePlacement();
  if (!placement.ok()) return At(source, lines.line(), placement.status());
  const int ranks = placement->pp();
  const TokenSizes sizes = header->Sizes();

  std::vector<RankOrder> orders(ranks);
  std::vector<int> order_lines(ranks, 0);  // 0: not seen
  for (absl::string_view text = lines.Next(); !text.empty();
       text = lines.Next()) {
    int64_t rank = 0;
    absl::string_view rest = text;
    if (!TakeNumber(rest, ranks - 1, rank) ||
        !absl::ConsumePrefix(&rest, ":")) {
      return At(
          source, lines.line(),
          BadValue("line", Quoted(text),
                   absl::StrCat("\"RANK: passes\" with rank 0..", ranks - 1)));
    }
    if (order_lines[rank] > 0) {
      return At(source, lines.line(),
                absl::InvalidArgumentError(
                    absl::StrCat("rank ", rank, " stands twice")));
    }
    order_lines[rank] = static_cast<int>(lines.line());
    auto order = ParseOrder(rest, sizes);
    if (!order.ok()) {
      return At(source, lines.line(),
                Prefix(absl::StrCat("rank ", rank), order.status()));
    }
    orders[rank] = *std::move(order);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (order_lines[rank] == 0) {
      return At(source, lines.line(),
                absl::InvalidArgumentError(absl::StrCat(
                    "the line of rank ", rank, " is missing; pp is ", ranks)));
    }
  }
  return AssembleSchedule(*header, *std::move(placement), source,
                          std::move(orders), std::move(order_lines));
}

}  // namespace

absl::StatusOr<ScheduleFile> ParseScheduleFile(absl::string_view content,
                                               absl::string_view source) {
  if (LooksLikeTorchCsv(content)) return ParseTorchCsv(content, source);
  const absl::string_view start = absl::StripLeadingAsciiWhitespace(content);
  ScheduleFile file;
  PW_ASSIGN_OR_RETURN(file.schedule, absl::StartsWith(start, "{")
                                         ? ParseScheduleJson(content, source)
                                         : ParseText(content, source));
  return file;
}

absl::StatusOr<Schedule> ParseSchedule(absl::string_view content,
                                       absl::string_view source) {
  PW_ASSIGN_OR_RETURN(ScheduleFile file, ParseScheduleFile(content, source));
  return std::move(file.schedule);
}

absl::Status VerifyScheduleFile(const ScheduleFile& file) {
  PW_RETURN_IF_ERROR(VerifySchedule(file.schedule));
  if (file.steps.empty()) return absl::OkStatus();
  PW_RETURN_IF_ERROR(CheckPairs(file.schedule, file.steps));
  return CheckProgress(file.schedule, file.steps, Semantics::kBuffered);
}

}  // namespace pipewright
