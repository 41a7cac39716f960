// Layouts that a plan tries: how many layers each stage holds, with other
// numbers at the ends, where embedding and output head cost time and memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// The layout that is balanced by the speed of slow devices.
inline constexpr char kBySpeed[] = "balanced";

// One of strategy.layers, strategy.layout or neither.
struct PlanLayout {
  // "even"; "ends 0 1 late middle": so many layers fewer on the first and on
  // the last stage, and where the layers stand that are left over; "given".
  std::string name;
  std::vector<int64_t> counts;  // layers of each stage; empty: see below
  std::string text;             // Megatron's string; empty: even, or given
  bool given = false;           // that of the configuration, whatever it is
};

// Layouts of `layers` layers on pp * vpp stages; "even" first, if it exists. A
// stage inside holds the whole number of layers below the mean or one more; the
// first stage up to one fewer, the last up to two. Layers that are left over go
// one to a stage, early (first chunk) or late (last one), from a low, a middle
// or a high place in it outwards. No two are alike.
std::vector<PlanLayout> LayoutsOf(int64_t layers, int pp, int vpp);

// The value of --fix layout=... that is no name of a family: Megatron's string
// or numbers with commas. Error: kInvalidArgument "--fix layout".
absl::StatusOr<PlanLayout> LayoutOfText(absl::string_view text);

// Megatron's string for counts, "Et*2|(t*2|)*38,tL" without groups.
std::string MegatronLayout(const std::vector<int64_t>& counts,
                           int64_t mtp_layers);

}  // namespace pipewright
