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
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/engine/engine.h"
#include "sim/engine/fluid_clock.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"
#include "sim/reproduce/paper.h"
#include "sim/reproduce/table.h"
#include "sim/schedule/registry.h"
#include "sim/topology/mapping.h"
#include "sim/topology/registry.h"
#include "sim/topology/system.h"

namespace pipewright::deep_optimizer_states {
namespace {

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

struct Update {
  double parameters = 0;
  int subgroups = 1;
  double ratio = 1;
  int stride = 0;  // 0: none
};

// Milliseconds.
struct Phases {
  double forward = 0;
  double backward = 0;    // with an asynchronous flush
  double flush_rate = 0;  // parameters a second of a blocking one, 0: none
};

using RunProgram = std::function<absl::StatusOr<RunSummary>(const Program&)>;

LowerOptions OptionsOf(const Machine& machine, const Update& update,
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
  offload.placement = update.stride > 0
                          ? OptimizerPlacement::kDeepOptimizerStates
                          : OptimizerPlacement::kTwinFlow;
  // What the asynchronous flush takes is in the backward that was measured
  // with it.
  offload.flush = GradientFlush::kBlocking;
  offload.flush_rate = phases.flush_rate > 0 ? phases.flush_rate : 1e300;
  offload.parameters = {update.parameters};
  offload.subgroup_size = update.parameters / update.subgroups;
  offload.ratio = update.ratio;
  offload.stride = update.stride;
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
                                    const Update& update,
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

Update UpdateOf(const TableRow& row) {
  return {.parameters = row.Number("parameters_e9") * 1e9,
          .subgroups = row.Integer("subgroups"),
          .ratio = row.Number("ratio"),
          .stride = row.Integer("stride")};
}

// The least of `cost` that a search by steps along each axis finds, in
// logarithms, the steps halved from a fifth to 1e-4.
std::vector<double> Least(
    const std::function<double(const std::vector<double>&)>& cost,
    std::vector<double> at) {
  constexpr double kFirst = 0.2;
  constexpr double kLast = 1e-4;
  double least = cost(at);
  for (double step = kFirst; step > kLast; step /= 2) {
    for (bool found = true; found;) {
      found = false;
      for (size_t axis = 0; axis < at.size(); ++axis) {
        for (const double by : {std::exp(step), std::exp(-step)}) {
          std::vector<double> next = at;
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
  return at;
}

Machine MachineOf(const std::vector<double>& values) {
  return {.copies = values[0],
          .memory = values[1],
          .cast = values[2],
          .adam = values.size() > 3 ? values[3] : 0};
}

// To the rows of a machine that say so: least squares of relative errors.
// Copies are no faster than `link`.
absl::StatusOr<Machine> Fit(const std::vector<TableRow>& rows,
                            absl::string_view machine, double link,
                            bool limits_adam) {
  std::vector<std::pair<Update, double>> points;
  double rate = 0;  // parameters a second of the plain step
  for (const TableRow& row : rows) {
    if (row.Text("machine") != machine || row.Integer("fit") == 0) continue;
    points.emplace_back(UpdateOf(row), row.Number("milliseconds"));
    if (points.back().first.stride == 0) {
      rate = points.back().first.parameters / (points.back().second * kMilli);
    }
  }
  const RunProgram run = [](const Program& program) {
    return RunOnFluidClock(program, {});
  };
  absl::Status failed;
  const auto cost = [&](const std::vector<double>& values) {
    if (values[0] > link) return std::numeric_limits<double>::infinity();
    double sum = 0;
    for (const auto& [update, expected] : points) {
      const auto found = Milliseconds(run, MachineOf(values), update);
      if (!found.ok()) failed = found.status();
      const double error = found.value_or(0) / expected - 1;
      sum += error * error;
    }
    return sum;
  };
  // A third of a plain step casts, the rest steps at the pace of memory.
  std::vector<double> start = {link / 2, rate * 1.5 * HostClass().adam_bytes,
                               rate * 3};
  if (limits_adam) start.push_back(rate * 1.5);
  const std::vector<double> found = Least(cost, std::move(start));
  PW_RETURN_IF_ERROR(failed);
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
  void Add(std::string setting, std::string what, double published,
           double simulated, int digits, Comparison::Rule rule,
           double tolerance) {
    rows_.push_back({.setting = std::move(setting),
                     .schedule = std::move(what),
                     .published = absl::StrFormat("%.*f", digits, published),
                     .simulated = simulated,
                     .rounded = absl::StrFormat("%.*f", digits, simulated),
                     // An engine that shares nothing is not what is fitted.
                     .rule = shares_ ? rule : Comparison::Rule::kShown,
                     .tolerance = tolerance});
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
                        Fit(table, name, links_[name], name == "h100"));
  }
  double sum = 0;
  int predicted = 0;
  for (const TableRow& row : table) {
    const std::string& machine = row.Text("machine");
    const double expected = row.Number("milliseconds");
    const bool fitted = row.Integer("fit") != 0;
    PW_ASSIGN_OR_RETURN(const double found,
                        Milliseconds(run_, machines_[machine], UpdateOf(row)));
    const bool a100 = machine == "a100";
    Add(absl::StrCat(machine, " ", row.Text("model"),
                     row.Number("ratio") < 1
                         ? absl::StrCat(" ratio ", row.Text("ratio"))
                         : "",
                     fitted ? ", fitted" : ""),
        absl::StrCat("update ms, ", NameOf(row.Integer("stride"))), expected,
        found, 0, Comparison::Rule::kWithin,
        a100 ? kUpdateOnA100 : kUpdateOnH100);
    if (!a100 || fitted) continue;
    sum += std::abs(found / expected - 1);
    ++predicted;
  }
  Add("a100, all predicted", "mean error of updates, %", 100 * kMeanOnA100,
      100 * sum / predicted, 1, Comparison::Rule::kAtMost, 0);
  rows_.back().in_paper = false;
  for (const auto& [name, machine] : machines_) {
    // Against its link, which it may not pass.
    Add(absl::StrCat(name, ": ", NameOf(machine)), "fitted PCIe, GB/s",
        links_[name] / 1e9, machine.copies / 1e9, 1, Comparison::Rule::kShown,
        0);
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
    const Update update = {.parameters = row.Number("parameters_e9") * 1e9,
                           .subgroups = row.Integer("subgroups"),
                           .ratio = row.Number("ratio")};
    PW_ASSIGN_OR_RETURN(const double alone, Milliseconds(run, machine, update));
    PW_ASSIGN_OR_RETURN(const double all,
                        Milliseconds(run, machine, update,
                                     {.backward = row.Number("asynchronous"),
                                      .flush_rate = rate}));
    return all - alone;
  };
  const RunProgram clock = [](const Program& program) {
    return RunOnFluidClock(program, {});
  };
  absl::Status failed;
  const std::vector<double> rate = Least(
      [&](const std::vector<double>& values) {
        double sum = 0;
        for (const TableRow& row : table) {
          const auto found = backward(clock, row, values[0]);
          if (!found.ok()) failed = found.status();
          const double error = found.value_or(0) / row.Number("blocking") - 1;
          sum += error * error;
        }
        return sum;
      },
      {1e9});
  PW_RETURN_IF_ERROR(failed);
  flush_rate_ = rate[0];
  for (const TableRow& row : table) {
    PW_ASSIGN_OR_RETURN(const double found, backward(run_, row, flush_rate_));
    Add(absl::StrCat("h100 ", row.Text("model"), " ratio ", row.Text("ratio")),
        absl::StrFormat("backward ms, flush %.2f Gp/s", flush_rate_ / 1e9),
        row.Number("blocking"), found, 0, Comparison::Rule::kWithin, kBackward);
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
    PW_ASSIGN_OR_RETURN(
        const double found,
        Milliseconds(run_, machines_["h100"],
                     {.parameters = 3.832e9, .subgroups = 31, .stride = stride},
                     phases));
    both.emplace_back(row.Number("iteration"), found);
    Add("h100 20B", absl::StrCat("iteration ms, ", NameOf(stride)),
        both.back().first, found, 0, Comparison::Rule::kShown, 0);
  }
  PW_CHECK(both.size() == 2);
  Add("h100 20B", "speed-up of the iteration", both[0].first / both[1].first,
      both[0].second / both[1].second, 2, Comparison::Rule::kShown, 0);
  return absl::OkStatus();
}

// The update that was measured, times what a stride changes of it on the fitted
// machine; backward with the asynchronous flush as measured.
absl::Status Rows::AddSpeedups() {
  for (const TableRow& row : ReadTable("deep_optimizer_states/phases")) {
    Update update = {.parameters = 1e9, .subgroups = row.Integer("subgroups")};
    PW_ASSIGN_OR_RETURN(const double plain,
                        Milliseconds(run_, machines_["a100"], update));
    update.stride = row.Integer("stride");
    PW_ASSIGN_OR_RETURN(const double strided,
                        Milliseconds(run_, machines_["a100"], update));
    const double forward = row.Number("forward");
    const double before =
        forward + row.Number("backward") + row.Number("update");
    const double behind = forward + row.Number("flushed") +
                          row.Number("update") * strided / plain;
    const double published = row.Number("speedup");
    Add(absl::StrCat(row.Text("model"), " ", row.Text("setting")),
        absl::StrCat("speed-up, ", NameOf(update.stride)), published,
        before / behind, 2, Comparison::Rule::kWithin,
        // In tenths of a percent, downwards.
        std::floor(1000 * kSpeedup / published) / 1000);
  }
  return absl::OkStatus();
}

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

const RegisterPapers kRow({{
    .name = "deep-optimizer-states",
    .summary = "Deep Optimizer States, arXiv 2410.21316: the authors' logs of "
               "an optimizer on the host",
    .metric = "update phase of one rank on machines fitted to one sweep each, "
              "backward with a blocking flush, whole iterations",
    .run = &Reproduce,
}});

}  // namespace
}  // namespace pipewright::deep_optimizer_states
