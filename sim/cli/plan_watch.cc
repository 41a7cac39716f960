#include "sim/cli/plan_watch.h"

#include <cstdio>

#include "absl/strings/str_cat.h"

namespace pipewright {
namespace {

// A line of JSON says a bound that has grown by so much.
constexpr double kNewsOfBound = 1e-3;

}  // namespace

PlanWatch::PlanWatch(PlanProgressForm form, double most_s)
    : signals_(StopSignals::Second::kEnds), form_(form) {
  if (most_s > 0) {
    end_ = std::chrono::steady_clock::now() +
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(
               std::chrono::duration<double>(most_s));
  }
  if (form == PlanProgressForm::kLine) {
    line_ = std::make_unique<TerminalLine>(std::chrono::milliseconds(0));
  }
}

void PlanWatch::AddTo(PlanOptions* options) {
  options->stops = [this] { return Cut(); };
  if (form_ == PlanProgressForm::kNone) return;
  options->progress = [this](const PlanProgress& progress) { Show(progress); };
}

PlanCut PlanWatch::Cut() const {
  if (StopSignals::Taken()) return PlanCut::kSignal;
  if (end_ && std::chrono::steady_clock::now() >= *end_) return PlanCut::kTime;
  return PlanCut::kNone;
}

bool PlanWatch::IsNews(const PlanProgress& progress) {
  const double best = progress.best == nullptr
                          ? std::numeric_limits<double>::infinity()
                          : progress.best->score;
  const double left = progress.left.value_or(0);
  has_said_ = has_said_ && said_of_ == &progress.space;
  said_of_ = &progress.space;
  if (has_said_ && best >= said_best_ &&
      left <= said_left_ * (1 + kNewsOfBound)) {
    return false;
  }
  has_said_ = true;
  said_best_ = best;
  said_left_ = left;
  return true;
}

void PlanWatch::Show(const PlanProgress& progress) {
  if (form_ == PlanProgressForm::kJson) {
    if (!IsNews(progress)) return;
    std::fputs(absl::StrCat(PlanToJson(progress), "\n").c_str(), stderr);
  } else if (line_ != nullptr && line_->IsDue()) {
    line_->Draw(PlanToText(progress));
  }
}

}  // namespace pipewright
