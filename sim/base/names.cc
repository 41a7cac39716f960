#include "sim/base/names.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Two neighbours in each other's place count as one change.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> before;
  std::vector<size_t> last(b.size() + 1);
  for (size_t column = 0; column <= b.size(); ++column) last[column] = column;
  for (size_t line = 1; line <= a.size(); ++line) {
    std::vector<size_t> row(b.size() + 1, line);
    for (size_t column = 1; column <= b.size(); ++column) {
      const bool same = a[line - 1] == b[column - 1];
      row[column] = std::min({row[column - 1] + 1, last[column] + 1,
                              last[column - 1] + (same ? 0 : 1)});
      if (line > 1 && column > 1 && a[line - 1] == b[column - 2] &&
          a[line - 2] == b[column - 1]) {
        row[column] = std::min(row[column], before[column - 2] + 1);
      }
    }
    before = std::move(last);
    last = std::move(row);
  }
  return last[b.size()];
}

// The last part of a path or a flag in one spelling: "global-batch" of
// "strategy.global_batch" and of "--Global-batch".
std::string Plain(absl::string_view name) {
  const size_t letter = name.find_first_not_of('-');
  name = letter == absl::string_view::npos ? "" : name.substr(letter);
  return absl::StrReplaceAll(
      absl::AsciiStrToLower(name.substr(name.rfind('.') + 1)), {{"_", "-"}});
}

// What other trainers and papers call our fields.
absl::string_view OurWord(absl::string_view word) {
  static constexpr std::pair<absl::string_view, absl::string_view> kWords[] = {
      {"gbs", "global-batch"},
      {"batch-size", "global-batch"},
      {"mbs", "microbatch-size"},
      {"micro-batch-size", "microbatch-size"},
      {"gas", "microbatches"},
      {"gradient-accumulation-steps", "microbatches"},
      {"num-microbatches", "microbatches"},
      {"seq", "sequence"},
      {"seqlen", "sequence"},
      {"seq-len", "sequence"},
      {"seq-length", "sequence"},
      {"max-seq-len", "sequence"},
      {"context-length", "sequence"},
      {"dtype", "precision"},
      {"tensor-parallel", "tp"},
      {"tensor-model-parallel-size", "tp"},
      {"pipeline-parallel", "pp"},
      {"pipeline-model-parallel-size", "pp"},
      {"context-parallel", "cp"},
      {"context-parallel-size", "cp"},
      {"expert-parallel", "ep"},
      {"expert-model-parallel-size", "ep"},
      {"data-parallel-size", "dp"},
      {"tensor-parallel-size", "tp"},
      {"pipeline-parallel-size", "pp"},
      {"expert-parallel-size", "ep"},
      {"num-micro-batches", "microbatches"},
      {"gradient-accumulation", "microbatches"},
      {"gpus", "nodes"},
      {"num-gpus", "nodes"},
      {"n-gpus", "nodes"},
      {"world-size", "nodes"},
      {"nnodes", "nodes"},
      {"num-nodes", "nodes"},
      {"gpu", "system"},
      {"cluster", "system"},
      {"hardware", "system"},
      {"run", "simulate"},
      {"estimate", "simulate"},
      {"search", "plan"},
      {"optimize", "plan"},
      {"tune", "plan"},
      {"train", "execute"},
      {"profile", "calibrate"},
      {"measure", "calibrate"},
      {"validate", "check"},
      {"verify", "check"}};
  for (const auto& [other, ours] : kWords) {
    if (word == other) return ours;
  }
  return "";
}

// Stands `part` in `whole` as one of its words ("h100" in "dgx-h100"), or at
// its start?
bool IsPartOf(absl::string_view part, absl::string_view whole) {
  if (absl::StartsWith(whole, part)) return !part.empty();
  for (size_t at = whole.find(part); at != absl::string_view::npos;
       at = whole.find(part, at + 1)) {
    const size_t end = at + part.size();
    if (part.size() > 2 && !absl::ascii_isalnum(whole[at - 1]) &&
        (end == whole.size() || !absl::ascii_isalnum(whole[end]))) {
      return true;
    }
  }
  return false;
}

// The shortest of `known` that has `name` as a part; "" if there is none.
std::string WithPart(absl::string_view name,
                     const std::vector<std::string>& known) {
  std::string best;
  for (const std::string& candidate : known) {
    if (IsPartOf(name, Plain(candidate)) &&
        (best.empty() || candidate.size() < best.size())) {
      best = candidate;
    }
  }
  return best;
}

// The longest of `known` that is a part of `name`; "" if there is none.
std::string PartIn(absl::string_view name,
                   const std::vector<std::string>& known) {
  std::string best;
  for (const std::string& candidate : known) {
    const std::string lower = Plain(candidate);
    if (lower.size() > 1 && IsPartOf(lower, name) &&
        candidate.size() > best.size()) {
      best = candidate;
    }
  }
  return best;
}

}  // namespace

std::string NearestName(absl::string_view name,
                        const std::vector<std::string>& known) {
  const std::string lower = absl::AsciiStrToLower(name);
  const std::string plain = Plain(name);
  const absl::string_view ours = OurWord(plain);
  // Two changes make another word of a short one: fp8 of fp32.
  const size_t letters =
      lower.size() - std::min(lower.find_first_not_of('-'), lower.size());
  size_t best_distance = (letters <= 4 ? 1 : letters / 2) + 1;
  std::string best;
  for (const std::string& candidate : known) {
    if (!ours.empty() && Plain(candidate) == ours) return candidate;
    const size_t distance =
        EditDistance(lower, absl::AsciiStrToLower(candidate));
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  // A plural too: "schedules" of "schedule".
  const bool same =
      !best.empty() && (best_distance == 0 ||
                        (best_distance == 1 && absl::StartsWith(lower, best)));
  if (same) return best;
  const std::string whole = WithPart(plain, known);
  if (!whole.empty()) return whole;
  if (!best.empty() && best_distance == 1) return best;
  const std::string part = PartIn(plain, known);
  return part.empty() ? best : part;
}

absl::Status UnknownName(absl::string_view what, absl::string_view name,
                         const std::vector<std::string>& known) {
  const std::string nearest = NearestName(name, known);
  const std::string list = absl::StrJoin(known, ", ");
  const absl::Status unknown = WithValue(
      absl::InvalidArgumentError(absl::StrCat(
          "unknown ", what, " '", name, "'",
          nearest.empty() ? ""
                          : absl::StrCat("; did you mean '", nearest, "'?"),
          " (known: ", list, ")")),
      name, list);
  // Other things are no fields; the caller knows which field they stand in.
  return absl::StartsWith(what, "--") ? AboutField(what, unknown) : unknown;
}

}  // namespace pipewright
