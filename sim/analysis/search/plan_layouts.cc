#include "sim/analysis/search/plan_layouts.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr int kMostFewerFirst = 1;
constexpr int kMostFewerLast = 2;

struct LeftOver {
  const char* chunk;
  const char* place;
};
constexpr LeftOver kLeftOver[] = {{"late", "middle"}, {"late", "high"},
                                  {"late", "low"},    {"early", "middle"},
                                  {"early", "high"},  {"early", "low"}};

// Stages in the order in which they take a layer more.
std::vector<int> OrderOfStages(int pp, int vpp, const LeftOver& way) {
  const absl::string_view place = way.place;
  std::vector<int> within;
  if (place == "low") {
    for (int index = 0; index < pp; ++index) within.push_back(index);
  } else if (place == "high") {
    for (int index = pp - 1; index >= 0; --index) within.push_back(index);
  } else {
    const int middle = (pp - 1) / 2;
    for (int step = 0; step < pp; ++step) {
      const int index = middle + (step % 2 == 1 ? (step + 1) / 2 : -(step / 2));
      if (index >= 0 && index < pp) within.push_back(index);
    }
  }
  const bool late = absl::string_view(way.chunk) == "late";
  std::vector<int> order;
  for (int chunk = 0; chunk < vpp; ++chunk) {
    for (const int index : within) {
      const int stage = (late ? vpp - 1 - chunk : chunk) * pp + index;
      if (stage > 0 && stage + 1 < pp * vpp) order.push_back(stage);
    }
  }
  return order;
}

}  // namespace

std::vector<PlanLayout> LayoutsOf(int64_t layers, int pp, int vpp) {
  const int stages = pp * vpp;
  std::vector<PlanLayout> layouts;
  std::set<std::vector<int64_t>> known;
  if (layers % stages == 0) {
    layouts.push_back({.name = "even"});
    known.insert(std::vector<int64_t>(stages, layers / stages));
  }
  if (stages == 1) return layouts;
  for (int first = 0; first <= kMostFewerFirst; ++first) {
    for (int last = 0; last <= kMostFewerLast; ++last) {
      const int64_t all = layers + first + last;
      const int64_t each = all / stages;
      const int64_t left = all - each * stages;
      if (each < first || each < last || left > stages - 2) continue;
      for (const LeftOver& way : kLeftOver) {
        PlanLayout layout;
        layout.counts.assign(stages, each);
        layout.counts.front() -= first;
        layout.counts.back() -= last;
        const std::vector<int> order = OrderOfStages(pp, vpp, way);
        for (int64_t index = 0; index < left; ++index) {
          ++layout.counts[order[index]];
        }
        if (!known.insert(layout.counts).second) continue;
        layout.name = absl::StrCat("ends ", first, " ", last);
        if (left > 0)
          absl::StrAppend(&layout.name, " ", way.chunk, " ", way.place);
        layouts.push_back(std::move(layout));
      }
    }
  }
  return layouts;
}

absl::StatusOr<PlanLayout> LayoutOfText(absl::string_view text) {
  PlanLayout layout = {.name = std::string(text)};
  if (text.find_first_of("E|t") != absl::string_view::npos) {
    layout.text = std::string(text);
    return layout;
  }
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int64_t count = 0;
    if (!absl::SimpleAtoi(part, &count) || count < 0) {
      return BadValue("--fix layout", text,
                      "even, ends, a name of a plan's layout (ends 0 1 late "
                      "middle), layers of each stage (3,2,1), or Megatron's "
                      "string (Et*2|t*3L)");
    }
    layout.counts.push_back(count);
  }
  return layout;
}

std::string MegatronLayout(const std::vector<int64_t>& counts,
                           int64_t mtp_layers) {
  std::string out = "E";
  for (size_t stage = 0; stage < counts.size(); ++stage) {
    if (stage > 0) out += "|";
    if (counts[stage] == 1) out += "t";
    if (counts[stage] > 1) absl::StrAppend(&out, "t*", counts[stage]);
  }
  if (mtp_layers > 0) absl::StrAppend(&out, "m*", mtp_layers);
  return out + "L";
}

}  // namespace pipewright
