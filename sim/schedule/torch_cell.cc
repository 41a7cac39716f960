#include "sim/schedule/torch_cell.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/schedule/token.h"

namespace pipewright {
namespace {

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

}  // namespace

std::string TorchAction::Name() const {
  return HasMicrobatch(*kind) ? absl::StrCat(stage, kind->name, microbatch)
                              : absl::StrCat(stage, kind->name);
}

absl::Status BadTorchCell(absl::string_view problem,
                          absl::string_view allowed) {
  return WithValue(
      absl::InvalidArgumentError(absl::StrCat(problem, "; allowed: ", allowed)),
      "", allowed);
}

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

}  // namespace pipewright
