// ParseTorchCsv (torch_csv.h).
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/schedule/header.h"
#include "sim/schedule/token.h"
#include "sim/schedule/torch_csv.h"
#include "sim/schedule/transfers.h"

namespace pipewright {
namespace {

// One cell and what it says, in PyTorch's letters. Which dialect the whole file
// is in is not its question.

enum class TorchLetter : uint8_t { kF, kI, kW, kB, kBW, kNone };

struct TorchKind {
  absl::string_view name;
  StepKind step;
  TorchLetter letter;  // for a pass
  bool forward;        // for a transfer
};

struct TorchAction {
  const TorchKind* kind = nullptr;
  int stage = 0;
  int microbatch = 0;  // where the kind has one
  bool opens = false;  // an overlapped pair with the next action

  bool is_pass() const { return kind->step == StepKind::kPass; }
  // "2SEND_F0".
  std::string Name() const;
};

// Do cells of this kind carry a microbatch?
bool HasMicrobatch(const TorchKind& kind) {
  return kind.step <= StepKind::kReceive;
}

// "PROBLEM; allowed: ALLOWED", as kInvalidArgument.
absl::Status BadTorchCell(absl::string_view problem,
                          absl::string_view allowed) {
  return WithValue(
      absl::InvalidArgumentError(absl::StrCat(problem, "; allowed: ", allowed)),
      "", allowed);
}

constexpr int64_t kMaxStage = (int64_t{1} << 20) - 1;

constexpr TorchKind kKinds[] = {
    {"F", StepKind::kPass, TorchLetter::kF, true},
    {"I", StepKind::kPass, TorchLetter::kI, false},
    {"W", StepKind::kPass, TorchLetter::kW, false},
    {"B", StepKind::kPass, TorchLetter::kB, false},
    {"BW", StepKind::kPass, TorchLetter::kBW, false},  // old letters only
    {"SEND_F", StepKind::kSend, TorchLetter::kNone, true},
    {"SEND_B", StepKind::kSend, TorchLetter::kNone, false},
    {"RECV_F", StepKind::kReceive, TorchLetter::kNone, true},
    {"RECV_B", StepKind::kReceive, TorchLetter::kNone, false},
    {"UNSHARD", StepKind::kUnshard, TorchLetter::kNone, false},
    {"RESHARD", StepKind::kReshard, TorchLetter::kNone, false},
    {"REDUCE_GRAD", StepKind::kReduceGradient, TorchLetter::kNone, false},
};
constexpr char kTorchKinds[] =
    "F I W B SEND_F RECV_F SEND_B RECV_B UNSHARD RESHARD REDUCE_GRAD";
constexpr char kPair[] = "(0F1;3B0)OVERLAP_F_B";

absl::Status TakeIndex(absl::string_view what, int64_t maximum,
                       absl::string_view& text, int& index) {
  int64_t value = 0;
  if (!TakeNumber(text, maximum, value)) {
    return BadTorchCell(absl::StrCat(what, " is missing or out of range"),
                        absl::StrCat("0..", maximum));
  }
  index = static_cast<int>(value);
  return absl::OkStatus();
}

absl::Status TakeKind(absl::string_view& text, TorchAction& action) {
  size_t end = 0;
  while (end < text.size() &&
         (absl::ascii_isupper(text[end]) || text[end] == '_')) {
    ++end;
  }
  const absl::string_view name = text.substr(0, end);
  for (const TorchKind& kind : kKinds) {
    if (kind.name != name) continue;
    action.kind = &kind;
    text.remove_prefix(end);
    return absl::OkStatus();
  }
  return BadTorchCell(absl::StrCat("unknown kind ", Quoted(name)), kTorchKinds);
}

// Kind, microbatch, "_" or "_s", stage.
absl::Status ReadMid2024(absl::string_view text,
                         std::vector<TorchAction>* actions) {
  TorchAction action;
  bool good = TakeKind(text, action).ok() && action.is_pass() &&
              TakeIndex("microbatch", Pass::kMaxMicrobatches - 2, text,
                        action.microbatch)
                  .ok() &&
              absl::ConsumePrefix(&text, "_");
  absl::ConsumePrefix(&text, "s");
  good = good && TakeIndex("stage", kMaxStage, text, action.stage).ok();
  if (!good || !text.empty()) {
    return BadTorchCell("no action",
                        absl::StrCat("STAGE KIND MICROBATCH without blanks, as "
                                     "in 2F0; KIND one of ",
                                     kTorchKinds));
  }
  actions->push_back(action);
  return absl::OkStatus();
}

absl::Status ReadAction(absl::string_view text,
                        std::vector<TorchAction>* actions, bool* mid_2024) {
  if (!text.empty() && absl::ascii_isalpha(text[0])) {
    *mid_2024 = true;
    return ReadMid2024(text, actions);
  }
  TorchAction action;
  PW_RETURN_IF_ERROR(TakeIndex("stage", kMaxStage, text, action.stage));
  PW_RETURN_IF_ERROR(TakeKind(text, action));
  const bool numbered = HasMicrobatch(*action.kind);
  if (numbered) {
    PW_RETURN_IF_ERROR(TakeIndex("microbatch", Pass::kMaxMicrobatches - 2, text,
                                 action.microbatch));
  }
  if (!text.empty()) {
    return BadTorchCell(
        absl::StrCat("trailing ", Quoted(text)),
        numbered ? "nothing after the microbatch"
                 : absl::StrCat("no microbatch with ", action.kind->name));
  }
  actions->push_back(action);
  return absl::OkStatus();
}

std::string TorchAction::Name() const {
  return HasMicrobatch(*kind) ? absl::StrCat(stage, kind->name, microbatch)
                              : absl::StrCat(stage, kind->name);
}

// Adds the one or two actions of a cell that is neither empty nor blank. Sets
// `*mid_2024` where it is of the form F3_s1 or F3_1. Error: BadTorchCell.
absl::Status ReadTorchCell(absl::string_view text,
                           std::vector<TorchAction>* actions, bool* mid_2024) {
  text = absl::StripAsciiWhitespace(text);
  if (!absl::ConsumePrefix(&text, "(")) {
    return ReadAction(text, actions, mid_2024);
  }
  const bool closed = absl::ConsumeSuffix(&text, ")OVERLAP_F_B");
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ';');
  if (!closed || parts.size() != 2) {
    return BadTorchCell("no overlapped pair", kPair);
  }
  for (const absl::string_view part : parts) {
    PW_RETURN_IF_ERROR(
        ReadAction(absl::StripAsciiWhitespace(part), actions, mid_2024));
    if (!actions->back().is_pass()) {
      return BadTorchCell("an overlapped pair of other than passes", kPair);
    }
  }
  (*actions)[actions->size() - 2].opens = true;
  return absl::OkStatus();
}

struct Row {
  int line = 0;
  std::vector<TorchAction> actions;
  int first_empty = 0;  // cell, from 1; 0: none
  std::vector<StepGap> gaps;
};

class CsvReader {
 public:
  CsvReader(absl::string_view content, absl::string_view source)
      : content_(content), source_(source) {}

  absl::StatusOr<ScheduleFile> Read() {
    PW_RETURN_IF_ERROR(ReadRows());
    PW_RETURN_IF_ERROR(CheckFlavour());
    PW_RETURN_IF_ERROR(CheckLetters());
    PW_RETURN_IF_ERROR(Place());
    return Assemble();
  }

 private:
  absl::Status At(int line, const absl::Status& status) const {
    return InFile(source_, line, status);
  }

  absl::Status ReadRows() {
    absl::string_view rest = content_;
    for (int line = 1; !rest.empty(); ++line) {
      const size_t end = rest.find('\n');
      absl::string_view text = rest.substr(0, end);
      rest.remove_prefix(end == absl::string_view::npos ? rest.size()
                                                        : end + 1);
      absl::ConsumeSuffix(&text, "\r");
      if (absl::StripAsciiWhitespace(text).empty()) {
        return At(line,
                  BadTorchCell("a blank line is a rank without passes",
                               "a row a rank, one line break at the end"));
      }
      if (static_cast<int>(rows_.size()) == kMaxRanks) {
        return At(line,
                  BadTorchCell("too many rows",
                               absl::StrCat("at most ", kMaxRanks, " ranks")));
      }
      rows_.push_back({.line = line});
      int cell = 0;
      StepGap gap;
      for (const absl::string_view field : absl::StrSplit(text, ',')) {
        ++cell;
        Row& row = rows_.back();
        if (absl::StripAsciiWhitespace(field).empty()) {
          if (row.first_empty == 0) row.first_empty = cell;
          ++gap.steps;
          continue;
        }
        if (gap.steps > 0) row.gaps.push_back(gap);
        gap = {.action = gap.action + 1};
        const absl::Status status =
            ReadTorchCell(field, &row.actions, &mid_2024_);
        if (!status.ok()) {
          return At(
              line,
              Prefix(absl::StrCat("cell ", cell, " ", Quoted(field)), status));
        }
      }
    }
    if (rows_.empty()) {
      return At(1, BadTorchCell("an empty file", "a row a rank"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckFlavour() {
    for (const Row& row : rows_) {
      for (const TorchAction& action : row.actions) {
        comms_ |= !action.is_pass();
      }
    }
    for (const Row& row : rows_) {
      if (!comms_ || row.first_empty == 0) continue;
      return At(
          row.line,
          BadTorchCell(absl::StrCat("cell ", row.first_empty, " is empty"),
                       "empty cells only in a file without sends and "
                       "receives (compute_only)"));
    }
    return absl::OkStatus();
  }

  // Which letters the file is written in (pytorch PR 138886 renamed them).
  absl::Status CheckLetters() {
    bool has[static_cast<int>(TorchLetter::kNone) + 1] = {};
    int line_of_i = 0;
    for (const Row& row : rows_) {
      for (const TorchAction& action : row.actions) {
        has[static_cast<int>(action.kind->letter)] = true;
        if (action.kind->letter == TorchLetter::kI) line_of_i = row.line;
      }
    }
    const bool i = has[static_cast<int>(TorchLetter::kI)];
    const bool bw = has[static_cast<int>(TorchLetter::kBW)];
    if (i && bw) {
      return At(line_of_i, BadTorchCell("I and BW in one file",
                                        "F I W B, or the older F B W BW"));
    }
    old_letters_ = bw || (has[static_cast<int>(TorchLetter::kW)] && !i);
    return absl::OkStatus();
  }

  PassKind KindOf(TorchLetter letter) const {
    switch (letter) {
      case TorchLetter::kF:
        return PassKind::kForward;
      case TorchLetter::kI:
        return PassKind::kBackwardInput;
      case TorchLetter::kW:
        return PassKind::kBackwardWeight;
      case TorchLetter::kB:
        return old_letters_ ? PassKind::kBackwardInput
                            : PassKind::kBackwardFull;
      default:
        return PassKind::kBackwardFull;
    }
  }

  // rank_of_stage_ from the rows' passes.
  absl::Status Place() {
    size_t passes = 0;
    int last_stage = -1;
    for (const Row& row : rows_) {
      for (const TorchAction& action : row.actions) {
        if (!action.is_pass()) continue;
        ++passes;
        last_stage = std::max(last_stage, action.stage);
        microbatches_ = std::max(microbatches_, action.microbatch + 1);
      }
    }
    // Before a table is made of it.
    const auto missing = [this](int stage, int last) {
      return At(1, BadTorchCell(absl::StrCat("stage ", stage, " has no pass"),
                                absl::StrCat("all stages 0..", last)));
    };
    if (static_cast<size_t>(last_stage + 1) > passes) {
      return missing(last_stage - 1, last_stage);
    }
    rank_of_stage_.assign(last_stage + 1, -1);
    for (size_t rank = 0; rank < rows_.size(); ++rank) {
      for (const TorchAction& action : rows_[rank].actions) {
        if (!action.is_pass()) continue;
        int& holder = rank_of_stage_[action.stage];
        if (holder >= 0 && holder != static_cast<int>(rank)) {
          return At(rows_[rank].line,
                    BadTorchCell(
                        absl::StrCat("stage ", action.stage, " stands on rank ",
                                     holder, " and on rank ", rank),
                        "one rank a stage"));
        }
        holder = static_cast<int>(rank);
      }
    }
    for (int stage = 0; stage <= last_stage; ++stage) {
      if (rank_of_stage_[stage] < 0) return missing(stage, last_stage);
    }
    return absl::OkStatus();
  }

  // The named placement that the list is, if it is one.
  absl::StatusOr<Placement> MakePlacement() const {
    const int pp = static_cast<int>(rows_.size());
    PW_ASSIGN_OR_RETURN(Placement list,
                        Placement::FromList(pp, rank_of_stage_));
    const int vpp = list.vpp();
    if (vpp > Pass::kMaxChunks) {
      return BadValue("placement", absl::StrCat(vpp, " stages on a rank"),
                      absl::StrCat("at most ", Pass::kMaxChunks));
    }
    std::vector<Placement> named;
    if (vpp == 1) named.push_back(Placement::Plain(pp));
    if (vpp > 1) named.push_back(Placement::Loop(pp, vpp));
    if (vpp == 2) named.push_back(Placement::V(pp));
    if (vpp % 2 == 0) named.push_back(Placement::Wave(pp, vpp));
    for (const Placement& candidate : named) {
      bool same = true;
      for (int stage = 0; stage < list.stages(); ++stage) {
        same &= candidate.RankOf(stage) == list.RankOf(stage);
      }
      if (same) return candidate;
    }
    return list;
  }

  absl::StatusOr<ScheduleFile> Assemble() {
    absl::StatusOr<Placement> placement = MakePlacement();
    if (!placement.ok()) return At(1, placement.status());
    ScheduleFile file;
    Schedule& schedule = file.schedule;
    schedule.name = std::string(source_);
    schedule.placement = *std::move(placement);
    schedule.microbatches = microbatches_;
    for (size_t rank = 0; rank < rows_.size(); ++rank) {
      const Row& row = rows_[rank];
      schedule.lines.push_back(row.line);
      RankOrder order;
      StepList steps;
      for (const TorchAction& action : row.actions) {
        absl::StatusOr<Step> step =
            StepOf(schedule.placement, static_cast<int>(rank), action);
        if (!step.ok()) return At(row.line, step.status());
        if (step->kind == StepKind::kPass) order.push_back(step->pass);
        if (comms_) steps.push_back(*step);
      }
      schedule.orders.push_back(
          std::make_shared<const RankOrder>(std::move(order)));
      if (comms_) file.steps.push_back(std::move(steps));
      schedule.gaps.push_back(row.gaps);
    }
    if (mid_2024_) {
      file.notes.push_back(
          absl::StrCat(source_,
                       ": cells of the form F3_s1 (mid-2024), read "
                       "as kind, microbatch, stage"));
    }
    if (old_letters_) {
      file.notes.push_back(
          absl::StrCat(source_,
                       ": PyTorch's letters before the end of 2024, read as B "
                       "gradient of the input, W of the weights, BW both"));
    }
    return file;
  }

  absl::StatusOr<Step> StepOf(const Placement& placement, int rank,
                              const TorchAction& action) const {
    const TorchKind& kind = *action.kind;
    if (action.stage >= placement.stages() ||
        placement.RankOf(action.stage) != rank) {
      return BadTorchCell(absl::StrCat(action.Name(), " on rank ", rank,
                                       ", which has no pass of that stage"),
                          "stages of the rank's own passes");
    }
    if (action.microbatch >= microbatches_) {
      return BadTorchCell(
          absl::StrCat(action.Name(), ": no pass has that microbatch"),
          absl::StrCat("0..", microbatches_ - 1));
    }
    const PassKind pass_kind = kind.step == StepKind::kPass
                                   ? KindOf(kind.letter)
                               : kind.forward || kind.step > StepKind::kReceive
                                   ? PassKind::kForward
                                   : PassKind::kBackwardInput;
    return Step{kind.step, Pass(pass_kind, action.microbatch,
                                placement.ChunkOf(action.stage))
                               .WithJoint(action.opens)};
  }

  absl::string_view content_;
  absl::string_view source_;
  std::vector<Row> rows_;
  bool comms_ = false;
  bool old_letters_ = false;
  bool mid_2024_ = false;
  int microbatches_ = 0;
  std::vector<int> rank_of_stage_;
};

}  // namespace

bool LooksLikeTorchCsv(absl::string_view content) {
  // A cell starts with a digit or "("; an empty one shows by its comma. The
  // cells of mid-2024 start with a letter and have their "_" behind digits.
  content = absl::StripLeadingAsciiWhitespace(content);
  if (content.empty()) return false;
  if (absl::ascii_isdigit(content[0]) || content[0] == '(' ||
      content[0] == ',') {
    return true;
  }
  const absl::string_view cell = content.substr(0, content.find(','));
  const size_t mark = cell.find('_');
  return mark != absl::string_view::npos && mark >= 2 &&
         absl::ascii_isupper(cell[0]) && absl::ascii_isdigit(cell[mark - 1]);
}

absl::StatusOr<ScheduleFile> ParseTorchCsv(absl::string_view content,
                                           absl::string_view source) {
  return CsvReader(content, source).Read();
}

}  // namespace pipewright
