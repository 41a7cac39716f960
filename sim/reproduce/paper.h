// Published tables that ship with the program: one row a table, each
// registered by its own file in this folder, which computes it again from
// the inputs in experiments/papers/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// What a comparison of a whole step knows besides its two times.
struct StepFacts {
  std::string kind;      // of rows that have one goal: "dense, H100 and H200"
  std::string group;     // of equal model, device, GPUs and global batch
  std::string excluded;  // why it does not count; "": it counts
  std::string refused;   // why there is no estimate; "": there is one
  std::string note;      // what of the run is not expressed
  // The 90 % interval of the estimate, seconds; 0: there is none.
  double low = 0;
  double high = 0;
  // Bytes of the fullest device, and whether they fit; measured: what the run
  // reserved, 0 where it is not published.
  double needed_bytes = 0;
  double reserved_bytes = 0;
  bool fits = true;

  bool counts() const { return excluded.empty() && refused.empty(); }
};

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
  std::optional<StepFacts> step;  // of a measured step

  bool has_estimate() const { return !step || step->refused.empty(); }
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
