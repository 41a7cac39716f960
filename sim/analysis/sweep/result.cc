#include "sim/analysis/sweep/result.h"

#include <cmath>
#include <cstring>
#include <exception>

#include "absl/strings/str_cat.h"
#include "sim/analysis/sweep/leaves.h"
#include "sim/analysis/sweep/rebuilt.h"
#include "sim/base/json.h"
#include "sim/base/status.h"
#include "sim/config/run_config.h"
#include "sim/report/report.h"
#include "sim/run/simulated_run.h"

namespace pipewright {
namespace {

constexpr const char* kStatusNames[] = {"ok", "misfit", "refused", "crashed",
                                        "timeout"};

void TakeError(const absl::Status& status, PointResult* result) {
  result->exit = ExitCode(status);
  result->reason = std::string(status.message());
  result->status = result->exit == 3   ? PointStatus::kMisfit
                   : result->exit == 1 ? PointStatus::kCrashed
                                       : PointStatus::kRefused;
}

void TakeReport(const SimulatedRun& run, bool keeps_report,
                PointResult* result) {
  const Report& report = run.report;
  result->fits = report.fits;
  result->time_unit = TimeUnitName(report.in_units);
  result->iteration_s = report.iteration_s;
  result->bubble_global = report.bubble_fraction.global;
  result->bubble_per_rank = report.bubble_fraction.per_rank;
  if (report.throughput) {
    result->tokens_per_s = report.throughput->tokens_per_s;
    result->mfu = report.throughput->mfu();
  }
  if (report.memory) {
    // As the report has it.
    const bool of_classes =
        report.dp_classes &&
        !report.dp_classes->classes[0].peak_memory_bytes.empty();
    const double peak = MostPeakMemoryOf(report);
    result->peak_memory_bytes = of_classes ? peak : std::trunc(peak);
  }
  result->warnings = report.warnings;
  if (keeps_report) {
    TreeParts parts = SplitTree(ReportTree(report));
    result->shape = std::move(parts.shape);
    result->leaves = std::move(parts.leaves);
  }
  absl::Status limit = run.prepared.limit();
  if (limit.ok() && report.memory) limit = MemoryVerdict(*report.memory);
  if (!limit.ok()) TakeError(limit, result);
}

void Simulated(const RunConfig& config, RunContext* context, Progress* progress,
               bool keeps_report, PointResult* result) {
  try {
    const absl::StatusOr<SimulatedRun> run =
        Simulate(config, context, {.progress = progress, .interval = true});
    run.ok() ? TakeReport(*run, keeps_report, result)
             : TakeError(run.status(), result);
  } catch (const std::exception& error) {
    TakeError(absl::InternalError(absl::StrCat("exception: ", error.what())),
              result);
  }
}

class Writer {
 public:
  explicit Writer(std::string* bytes) : bytes_(*bytes) {}
  template <typename Value>
  void Plain(const Value& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void Operator(const std::string& text) {
    Plain(static_cast<uint32_t>(text.size()));
    bytes_ += text;
  }
  void Operator(const std::vector<std::string>& texts) {
    Plain(static_cast<uint32_t>(texts.size()));
    for (const std::string& text : texts) Operator(text);
  }
  template <typename Value>
  void Operator(const std::optional<Value>& value) {
    Plain(value.has_value());
    if (value) Plain(*value);
  }

 private:
  std::string& bytes_;
};

class Taker {
 public:
  explicit Taker(absl::string_view* bytes) : bytes_(*bytes) {}
  bool ok() const { return ok_; }
  template <typename Value>
  void Plain(Value& value) {
    ok_ = ok_ && bytes_.size() >= sizeof(value);
    if (!ok_) return;
    std::memcpy(&value, bytes_.data(), sizeof(value));
    bytes_.remove_prefix(sizeof(value));
  }
  void Operator(std::string& text) {
    uint32_t size = 0;
    Plain(size);
    ok_ = ok_ && bytes_.size() >= size;
    if (!ok_) return;
    text = std::string(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
  }
  void Operator(std::vector<std::string>& texts) {
    uint32_t count = 0;
    Plain(count);
    for (; ok_ && count > 0; --count) Operator(texts.emplace_back());
  }
  template <typename Value>
  void Operator(std::optional<Value>& value) {
    bool given = false;
    Plain(given);
    if (!ok_ || !given) return;
    Plain(value.emplace());
  }

 private:
  absl::string_view& bytes_;
  bool ok_ = true;
};

template <typename Result, typename Visitor>
void VisitResult(Result& result, Visitor& visit) {
  visit.Plain(result.hash);
  visit.Plain(result.status);
  visit.Plain(result.exit);
  visit.Operator(result.reason);
  visit.Operator(result.engine);
  visit.Operator(result.seed);
  visit.Operator(result.axes);
  visit.Operator(result.fits);
  visit.Operator(result.time_unit);
  visit.Operator(result.iteration_s);
  visit.Operator(result.tokens_per_s);
  visit.Operator(result.peak_memory_bytes);
  visit.Operator(result.bubble_global);
  visit.Operator(result.bubble_per_rank);
  visit.Operator(result.mfu);
  visit.Operator(result.warnings);
  visit.Operator(result.shape);
  visit.Operator(result.leaves);
}

}  // namespace

const char* NameOf(PointStatus status) {
  return kStatusNames[static_cast<size_t>(status)];
}

PointResult EvaluatePoint(const SweepPoints& points,
                          const SweepChoices& choices, RunContext* context,
                          Progress* progress, bool keeps_report) {
  PointResult result;
  result.axes = points.AxesJson(choices);
  const absl::StatusOr<RunConfig> config = points.At(choices);
  if (!config.ok()) {
    result.engine = points.base().engine.value_or("");
    TakeError(config.status(), &result);
    return result;
  }
  result.engine = config->engine.value_or("");
  result.seed = config->costs.seed;
  Simulated(*config, context, progress, keeps_report, &result);
  return result;
}

absl::StatusOr<PointResult> EvaluateAgain(
    const std::string& base,
    const std::vector<std::pair<std::string, SweepCell>>& axes,
    const std::string& engine, const PointHash& hash, RunContext* context) {
  PW_ASSIGN_OR_RETURN(const SweepPoints points,
                      RebuiltPoint(base, axes, engine, context));
  if (points.HashAt({}) != hash) {
    return absl::InvalidArgumentError(
        "a report that is not stored cannot be computed again, as its "
        "configuration is another now (a file has changed, or a field that "
        "flags cannot give); allowed: the sweep into a new file with --jsonl "
        "or these --columns, which store reports");
  }
  return EvaluatePoint(points, {}, context);
}

PointResult LostPoint(const SweepPoints& points, const SweepChoices& choices,
                      PointStatus status, absl::string_view reason) {
  PointResult result;
  result.axes = points.AxesJson(choices);
  const absl::StatusOr<RunConfig> config = points.At(choices);
  if (config.ok()) {
    result.engine = config->engine.value_or("");
    result.seed = config->costs.seed;
  }
  result.status = status;
  result.exit = 1;
  result.reason = std::string(reason);
  return result;
}

void AppendResult(const PointResult& result, std::string* bytes) {
  Writer writer(bytes);
  VisitResult(result, writer);
}

bool TakeResult(absl::string_view* bytes, PointResult* result) {
  Taker taker(bytes);
  VisitResult(*result, taker);
  return taker.ok();
}

}  // namespace pipewright
