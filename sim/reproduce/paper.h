// Published tables that ship with the program: one row a table, each
// registered by its own file in this folder, which computes it again from
// the inputs in experiments/papers/.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// One published number and ours.
struct Comparison {
  enum class Rule {
    kDigits,  // the same number in the digits printed
    kWithin,  // |simulated / published - 1| <= tolerance
    kShown,   // printed, never off: a difference that is known and explained
    kAtMost,  // simulated <= published + tolerance (a planner may do better)
  };

  std::string setting;    // "1.5B, pp 8, microbatches 24"
  std::string schedule;   // "zb-h1", or another second column
  std::string published;  // as printed
  double simulated = 0;
  std::string rounded;  // for people; as precise as `published`
  Rule rule = Rule::kDigits;
  double tolerance = 0;
  // False for a reference value of ours that the paper does not print.
  bool in_paper = true;

  bool is_judged() const { return rule != Rule::kShown; }
  bool matches() const;
  // "" where the rule is that the digits agree, else "within 10 %".
  std::string RuleNote() const;
};

struct Paper {
  std::string name;  // the folder of experiments/papers, with hyphens
  std::string summary;
  std::string metric;  // what is compared
  absl::StatusOr<std::vector<Comparison>> (*run)(const std::string& engine);
};

// Static object in each file of a paper. A second row of the same name aborts
// at start-up.
class RegisterPaper {
 public:
  explicit RegisterPaper(Paper paper);
};

// Sorted by name.
std::vector<const Paper*> AllPapers();

}  // namespace pipewright
