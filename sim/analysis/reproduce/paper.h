// Published tables that ship with the program: folders of experiments/papers,
// computed again from their inputs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// What a comparison of a whole step knows besides its two times.
struct StepFacts {
  std::string kind;      // rows with one goal: "dense, H100 and H200"
  std::string group;     // rows of one model, device, GPUs and global batch
  std::string excluded;  // why it does not count; "": it counts
  std::string refused;   // why there is no estimate; "": there is one
  std::string note;      // what fields do not say about the run
  // Families of runs (left_out.h): architecture, chip, framework.
  std::string model;
  std::string device;
  std::string framework;
  // The 90 % interval of the estimate, seconds; 0: there is none.
  double low = 0;
  double high = 0;
  // Bytes of the fullest device, and whether they fit; measured: what the run
  // reserved, 0 if it is not published.
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
  std::optional<StepFacts> step;  // nothing if it is no measured step

  bool has_estimate() const { return !step || step->refused.empty(); }
  bool is_judged() const { return rule != Rule::kShown; }
  bool matches() const;
  // "" if the digits have to agree, else "within 10 %".
  std::string RuleNote() const;
};

// A comparison of two numbers, both printed with so many digits behind the
// point.
Comparison CompareNumbers(std::string setting, std::string schedule,
                          double published, double simulated, int digits,
                          Comparison::Rule rule = Comparison::Rule::kShown,
                          double tolerance = 0, bool in_paper = true);

// "digits", "within", "shown", "at most"; another name aborts.
const char* RuleName(Comparison::Rule rule);
Comparison::Rule RuleOf(absl::string_view name);

// A number as it is printed; a text that is none aborts.
double NumberOf(const std::string& text);

struct Paper {
  std::string name;  // the folder of experiments/papers, with hyphens
  std::string summary;
  std::string metric;  // what is compared
  std::function<absl::StatusOr<std::vector<Comparison>>(
      const std::string& engine)>
      run;
};

// Sorted by name.
std::vector<const Paper*> AllPapers();

// Those that are more than one number a row and column.
namespace deep_optimizer_states {
absl::StatusOr<std::vector<Comparison>> Reproduce(const std::string& engine);
}
namespace odc {
absl::StatusOr<std::vector<Comparison>> Reproduce(const std::string& engine);
}
namespace pipeoffload_figure15 {
absl::StatusOr<std::vector<Comparison>> Reproduce(const std::string& engine);
}

}  // namespace pipewright
