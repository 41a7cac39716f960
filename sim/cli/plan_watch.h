// How far a plan is, on standard error, and what ends it early: a signal, or
// the time that it may take.
#pragma once

#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "sim/analysis/search/plan.h"
#include "sim/cli/progress_bar.h"
#include "sim/cli/stop_signals.h"

namespace pipewright {

// What --progress takes.
enum class PlanProgressForm { kLine, kJson, kNone };

class PlanWatch {
 public:
  // `most_s`: seconds from now on; 0: as many as it takes.
  PlanWatch(PlanProgressForm form, double most_s);
  // Must live as long as what they are options of.
  void AddTo(PlanOptions* options);
  // Takes the line off the terminal.
  void End() { line_.reset(); }

 private:
  PlanCut Cut() const;
  void Show(const PlanProgress& progress);
  // Is there enough that the last line of JSON has not said?
  bool IsNews(const PlanProgress& progress);

  const StopSignals signals_;
  const PlanProgressForm form_;
  std::optional<std::chrono::steady_clock::time_point> end_;
  std::unique_ptr<TerminalLine> line_;
  bool has_said_ = false;
  const PlanSpace* said_of_ = nullptr;  // of several clusters one has the line
  double said_best_ = std::numeric_limits<double>::infinity();
  double said_left_ = 0;
};

}  // namespace pipewright
