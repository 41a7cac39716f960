// The files of experiments/papers/deep_optimizer_states: the update phase of
// one rank on a machine fitted to one sweep, the backward phase with a blocking
// flush, whole iterations.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/analysis/reproduce/paper.h"
#include "sim/analysis/reproduce/table.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/engine/engine.h"
#include "sim/engine/fluid_clock.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"
#include "sim/schedule/registry.h"
#include "sim/topology/mapping.h"
#include "sim/topology/registry.h"
#include "sim/topology/system.h"

namespace pipewright::deep_optimizer_states {
namespace {

using Rule = Comparison::Rule;

constexpr double kUpdateOnA100 = 0.07;
constexpr double kMeanOnA100 = 0.03;
constexpr double kUpdateOnH100 = 0.05;
constexpr double kBackward = 0.10;
constexpr double kSpeedup = 0.10;  // absolute
constexpr double kMilli = 1e-3;

// What is fitted, each above 0.
struct Machine {
  double copies = 0;  // bytes a second each way
  double memory = 0;  // bytes a second
  double cast = 0;    // parameters a second
  double adam = 0;    // the same, 0: what memory allows
};

// Milliseconds.
struct Phases {
  double forward = 0;
  double backward = 0;    // with an asynchronous flush
  double flush_rate = 0;  // parameters a second of a blocking one, 0: none
};

using RunProgram = std::function<absl::StatusOr<RunSummary>(const Program&)>;

absl::StatusOr<RunSummary> RunOnClock(const Program& program) {
  return RunOnFluidClock(program, {});
}

double ParametersOf(const TableRow& update) {
  return update.Number("parameters_e9") * 1e9;
}

LowerOptions OptionsOf(const Machine& machine, const TableRow& update,
                       const Phases& phases) {
  LowerOptions options;
  options.costs =
      PassCosts::Uniform(1, 1,
                         {.forward_s = phases.forward * kMilli,
                          .backward_input_s = phases.backward * kMilli / 2,
                          .backward_weight_s = phases.backward * kMilli / 2});
  options.optimizer = OptimizerMode::kSynchronised;
  options.iterations = 1;
  OptimizerOffload& offload = options.offload;
  offload.stride = update.Integer("stride");  // 0: none
  offload.placement = offload.stride > 0
                          ? OptimizerPlacement::kDeepOptimizerStates
                          : OptimizerPlacement::kTwinFlow;
  // What the asynchronous flush takes is in the backward that was measured
  // with it.
  offload.flush = GradientFlush::kBlocking;
  offload.flush_rate = phases.flush_rate > 0 ? phases.flush_rate : 1e300;
  offload.parameters = {ParametersOf(update)};
  offload.subgroup_size = ParametersOf(update) / update.Integer("subgroups");
  offload.ratio = update.Number("ratio");
  offload.adam_rate = machine.adam;
  offload.cast_rate = machine.cast;
  offload.device_adam_rate = HostClass().device_adam_rate;
  // As the code that was measured.
  offload.flush_last = false;
  return options;
}

// One rank, one microbatch.
absl::StatusOr<double> Milliseconds(const RunProgram& run,
                                    const Machine& machine,
                                    const TableRow& update,
                                    const Phases& phases = {}) {
  ShapeParams shape;
  shape.name = "fitted";
  shape.shape = "node";
  shape.pcie.bytes_per_s = machine.copies;
  shape.host.bytes_per_s = machine.memory;
  PW_ASSIGN_OR_RETURN(Cluster cluster, BuildCluster(shape));
  PW_ASSIGN_OR_RETURN(RankMapping mapping, RankMapping::FromList({0}, 1, 1, 1));
  ScheduleParams sizes;
  sizes.pp = 1;
  sizes.microbatches = 1;
  PW_ASSIGN_OR_RETURN(Schedule schedule, BuildSchedule("gpipe", sizes));
  LowerOptions options = OptionsOf(machine, update, phases);
  options.network = {
      .cluster = std::make_shared<const Cluster>(std::move(cluster)),
      .mapping = std::make_shared<const RankMapping>(std::move(mapping))};
  PW_ASSIGN_OR_RETURN(
      const Program program,
      Lower(std::make_shared<const Schedule>(std::move(schedule)), options));
  PW_ASSIGN_OR_RETURN(const RunSummary summary, run(program));
  return summary.iteration_end_s[0] / kMilli;
}

// Values, and what they give for a row.
using Values = std::vector<double>;
using Model = std::function<absl::StatusOr<double>(const Values& values,
                                                   const TableRow& row)>;

// The values with the least squares of relative errors against `column` that a
// search by steps along each axis finds, in logarithms, the steps halved from a
// fifth to 1e-4.
absl::StatusOr<Values> Fit(const std::vector<TableRow>& rows,
                           const std::string& column, const Model& model,
                           Values at) {
  constexpr double kFirst = 0.2;
  constexpr double kLast = 1e-4;
  absl::Status failed;
  const auto cost = [&](const Values& values) {
    double sum = 0;
    for (const TableRow& row : rows) {
      const auto found = model(values, row);
      if (!found.ok()) failed = found.status();
      const double error = found.value_or(0) / row.Number(column) - 1;
      sum += error * error;
    }
    return sum;
  };
  double least = cost(at);
  for (double step = kFirst; step > kLast; step /= 2) {
    for (bool found = true; found;) {
      found = false;
      for (size_t axis = 0; axis < at.size(); ++axis) {
        for (const double by : {std::exp(step), std::exp(-step)}) {
          Values next = at;
          next[axis] *= by;
          const double here = cost(next);
          if (!(here < least)) continue;
          least = here;
          at = std::move(next);
          found = true;
        }
      }
    }
  }
  PW_RETURN_IF_ERROR(failed);
  return at;
}

Machine MachineOf(const Values& values) {
  return {.copies = values[0],
          .memory = values[1],
          .cast = values[2],
          .adam = values.size() > 3 ? values[3] : 0};
}

// Fitted to the rows of a machine that say so. Copies are no faster than
// `link`.
absl::StatusOr<Machine> FitMachine(std::vector<TableRow> rows,
                                   const std::string& machine, double link,
                                   bool limits_adam) {
  rows.erase(std::remove_if(rows.begin(), rows.end(),
                            [&machine](const TableRow& row) {
                              return row.Text("machine") != machine ||
                                     row.Integer("fit") == 0;
                            }),
             rows.end());
  double rate = 0;  // parameters a second of the plain step
  for (const TableRow& row : rows) {
    if (row.Integer("stride") > 0) continue;
    rate = ParametersOf(row) / (row.Number("milliseconds") * kMilli);
  }
  // A third of a plain step casts, the rest steps at the pace of memory.
  Values start = {link / 2, rate * 1.5 * HostClass().adam_bytes, rate * 3};
  if (limits_adam) start.push_back(rate * 1.5);
  const Model model = [link](const Values& values,
                             const TableRow& row) -> absl::StatusOr<double> {
    if (values[0] > link) return std::numeric_limits<double>::infinity();
    return Milliseconds(RunOnClock, MachineOf(values), row);
  };
  PW_ASSIGN_OR_RETURN(const Values found,
                      Fit(rows, "milliseconds", model, std::move(start)));
  return MachineOf(found);
}

std::string NameOf(int stride) {
  return stride > 0 ? absl::StrCat("stride ", stride) : "no stride";
}

std::string NameOf(const Machine& machine) {
  const std::string step =
      machine.adam > 0 ? absl::StrFormat(", step %.2f", machine.adam / 1e9)
                       : "";
  return absl::StrFormat("memory %.1f GB/s, cast %.2f%s Gp/s",
                         machine.memory / 1e9, machine.cast / 1e9, step);
}

// Rows of one paper as they are computed.
class Rows {
 public:
  explicit Rows(const EngineInfo& engine)
      : run_([&engine](const Program& program) {
          return engine.run(program, {});
        }),
        shares_(engine.name != "fast") {}

  absl::Status AddUpdates(const std::vector<TableRow>& table);
  absl::Status AddBackward();
  absl::Status AddIterations();
  absl::Status AddSpeedups();

  std::vector<Comparison> Take() && { return std::move(rows_); }

 private:
  void Add(const std::string& setting, const std::string& what,
           double published, double simulated, int digits, Rule rule,
           double tolerance) {
    // An engine that shares nothing is not what is fitted.
    rows_.push_back(CompareNumbers(setting, what, published, simulated, digits,
                                   shares_ ? rule : Rule::kShown, tolerance));
  }

  RunProgram run_;
  bool shares_;
  std::map<std::string, Machine> machines_;
  std::map<std::string, double> links_;  // bytes a second of their PCIe
  double flush_rate_ = 0;
  std::vector<Comparison> rows_;
};

absl::Status Rows::AddUpdates(const std::vector<TableRow>& table) {
  for (const std::string name : {"a100", "h100"}) {
    PW_ASSIGN_OR_RETURN(const ShapeParams system,
                        FindSystem(absl::StrCat("dgx-", name)));
    links_[name] = system.pcie.bytes_per_s;
    PW_ASSIGN_OR_RETURN(machines_[name],
                        FitMachine(table, name, links_[name], name == "h100"));
  }
  double sum = 0;
  int predicted = 0;
  for (const TableRow& row : table) {
    const std::string& machine = row.Text("machine");
    const double expected = row.Number("milliseconds");
    const bool fitted = row.Integer("fit") != 0;
    PW_ASSIGN_OR_RETURN(const double found,
                        Milliseconds(run_, machines_[machine], row));
    const bool a100 = machine == "a100";
    Add(absl::StrCat(row.Fill("{machine} {model}"),
                     row.Number("ratio") < 1 ? row.Fill(" ratio {ratio}") : "",
                     fitted ? ", fitted" : ""),
        absl::StrCat("update ms, ", NameOf(row.Integer("stride"))), expected,
        found, 0, Rule::kWithin, a100 ? kUpdateOnA100 : kUpdateOnH100);
    if (!a100 || fitted) continue;
    sum += std::abs(found / expected - 1);
    ++predicted;
  }
  Add("a100, all predicted", "mean error of updates, %", 100 * kMeanOnA100,
      100 * sum / predicted, 1, Rule::kAtMost, 0);
  rows_.back().in_paper = false;
  for (const auto& [name, machine] : machines_) {
    // Against its link, which it may not pass.
    Add(absl::StrCat(name, ": ", NameOf(machine)), "fitted PCIe, GB/s",
        links_[name] / 1e9, machine.copies / 1e9, 1, Rule::kShown, 0);
    rows_.back().in_paper = false;
  }
  return absl::OkStatus();
}

absl::Status Rows::AddBackward() {
  const std::vector<TableRow> table =
      ReadTable("deep_optimizer_states/backward");
  const Machine& machine = machines_["h100"];
  // All but the update is what the run takes longer with a backward and a
  // flush.
  const auto backward = [&](const RunProgram& run, const TableRow& row,
                            double rate) -> absl::StatusOr<double> {
    PW_ASSIGN_OR_RETURN(const double alone, Milliseconds(run, machine, row));
    PW_ASSIGN_OR_RETURN(const double all,
                        Milliseconds(run, machine, row,
                                     {.backward = row.Number("asynchronous"),
                                      .flush_rate = rate}));
    return all - alone;
  };
  const Model model = [&backward](const Values& values, const TableRow& row) {
    return backward(RunOnClock, row, values[0]);
  };
  PW_ASSIGN_OR_RETURN(const Values rate, Fit(table, "blocking", model, {1e9}));
  flush_rate_ = rate[0];
  for (const TableRow& row : table) {
    PW_ASSIGN_OR_RETURN(const double found, backward(run_, row, flush_rate_));
    Add(row.Fill("h100 {model} ratio {ratio}"),
        absl::StrFormat("backward ms, flush %.2f Gp/s", flush_rate_ / 1e9),
        row.Number("blocking"), found, 0, Rule::kWithin, kBackward);
  }
  return absl::OkStatus();
}

absl::Status Rows::AddIterations() {
  std::vector<std::pair<double, double>> both;
  for (const TableRow& row : ReadTable("deep_optimizer_states/iterations")) {
    const int stride = row.Integer("stride");
    const Phases phases = {.forward = row.Number("forward"),
                           .backward = row.Number("backward"),
                           .flush_rate = stride > 0 ? 0 : flush_rate_};
    PW_ASSIGN_OR_RETURN(const double found,
                        Milliseconds(run_, machines_["h100"], row, phases));
    both.emplace_back(row.Number("iteration"), found);
    Add("h100 20B", absl::StrCat("iteration ms, ", NameOf(stride)),
        both.back().first, found, 0, Rule::kShown, 0);
  }
  PW_CHECK(both.size() == 2);
  Add("h100 20B", "speed-up of the iteration", both[0].first / both[1].first,
      both[0].second / both[1].second, 2, Rule::kShown, 0);
  return absl::OkStatus();
}

// The update that was measured, times what a stride changes of it on the fitted
// machine; backward with the asynchronous flush as measured.
absl::Status Rows::AddSpeedups() {
  const Machine& machine = machines_["a100"];
  for (const TableRow& row : ReadTable("deep_optimizer_states/phases")) {
    TableRow no_stride = row;
    no_stride.Set("stride", "0");
    PW_ASSIGN_OR_RETURN(const double plain,
                        Milliseconds(run_, machine, no_stride));
    PW_ASSIGN_OR_RETURN(const double strided, Milliseconds(run_, machine, row));
    const double forward = row.Number("forward");
    const double before =
        forward + row.Number("backward") + row.Number("update");
    const double behind = forward + row.Number("flushed") +
                          row.Number("update") * strided / plain;
    const double published = row.Number("speedup");
    Add(row.Fill("{model} {setting}"),
        absl::StrCat("speed-up, ", NameOf(row.Integer("stride"))), published,
        before / behind, 2, Rule::kWithin,
        // In tenths of a percent, downwards.
        std::floor(1000 * kSpeedup / published) / 1000);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Comparison>> Reproduce(const std::string& engine) {
  PW_ASSIGN_OR_RETURN(const EngineInfo* const info, FindEngine(engine));
  Rows rows(*info);
  PW_RETURN_IF_ERROR(
      rows.AddUpdates(ReadTable("deep_optimizer_states/updates")));
  PW_RETURN_IF_ERROR(rows.AddBackward());
  PW_RETURN_IF_ERROR(rows.AddIterations());
  PW_RETURN_IF_ERROR(rows.AddSpeedups());
  return std::move(rows).Take();
}

}  // namespace pipewright::deep_optimizer_states
