// Data parallelism whose collectives a profile has measured.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/file.h"
#include "sim/config/prepare.h"
#include "sim/engine/engine.h"
#include "sim/engine/isolated_times.h"
#include "sim/program/network_time.h"
#include "sim/report/report.h"
#include "sim/run/describe_run.h"
#include "tests/support/json.h"
#include "tests/support/tiny_profile.h"

namespace pipewright::measured_collectives_test {
namespace {

constexpr char kOperations[][16] = {"all_reduce", "all_gather",
                                    "reduce_scatter"};
// Seconds a byte of each, so that nobody's time passes for another's.
constexpr double kSecondsPerByte[] = {3e-9, 5e-9, 7e-9};

// Measured over `ranks` from 1 kB to 1 TB, in proportion to the bytes: straight
// between the two in logarithms too.
void Measure(Profile* profile, const std::string& transport, int64_t ranks,
             int64_t nodes, double factor = 1) {
  for (int kind = 0; kind < 3; ++kind) {
    for (const int64_t bytes : {int64_t{1000}, int64_t{1000000000000}}) {
      profile->transfers.push_back(
          {.operation = kOperations[kind],
           .transport = transport,
           .ranks = ranks,
           .bytes = bytes,
           .time = testing::Around(1e6 * factor * kSecondsPerByte[kind] *
                                   static_cast<double>(bytes)),
           .nodes = nodes});
    }
  }
}

double SecondsPerByte(OpKind kind) {
  return kSecondsPerByte[kind == OpKind::kAllReduce   ? 0
                         : kind == OpKind::kAllGather ? 1
                                                      : 2];
}

// Prepares gpt-tiny on two replicas with this profile.
class Prepared {
 public:
  explicit Prepared(const Profile& profile) {
    path_ = (std::filesystem::temp_directory_path() /
             absl::StrCat("pipewright-collectives-", ::getpid(), ".txtpb"))
                .string();
    REQUIRE(WriteFile(path_, WriteProfile(profile)).ok());
    config.model.preset = "gpt-tiny";
    config.schedule.name = "1f1b";
    config.strategy.pp = 1;
    config.strategy.dp = 2;
    config.strategy.microbatches = 2;
    config.strategy.optimizer = OptimizerMode::kNone;
    config.costs.profile = path_;
  }
  ~Prepared() { std::filesystem::remove(path_); }

  PreparedRun Run() const {
    const absl::StatusOr<PreparedRun> run = Prepare(config);
    INFO(run.status());
    REQUIRE(run.ok());
    return *run;
  }

  RunConfig config;

 private:
  std::string path_;
};

double IterationOf(const PreparedRun& run, const std::string& engine) {
  const absl::StatusOr<Program> program =
      Lower(run.schedule.lowered, run.lower);
  REQUIRE(program.ok());
  const absl::StatusOr<RunSummary> summary =
      (*FindEngine(engine))->run(*program, {});
  INFO(summary.status());
  REQUIRE(summary.ok());
  return summary->iteration_s();
}

// All collectives of gradients and parameters; how many take the measured time.
struct Count {
  int all = 0;
  int measured = 0;
};
Count CountMeasured(const PreparedRun& run, double factor = 1) {
  const absl::StatusOr<Program> program =
      Lower(run.schedule.lowered, run.lower);
  REQUIRE(program.ok());
  const IsolatedTimes times = SortReplicas(*program).times[0];
  Count count;
  for (int rank = 0; rank < program->pp(); ++rank) {
    const std::vector<SideOp>& ops = program->ranks[rank].side_ops;
    for (size_t index = 0; index < ops.size(); ++index) {
      if (!IsCollective(ops[index].kind) || ops[index].stage < 0) continue;
      ++count.all;
      const double expected =
          factor * SecondsPerByte(ops[index].kind) * ops[index].bytes;
      const double error = times.side_op_s[rank][index] / expected - 1;
      count.measured += std::abs(error) < 1e-6 ? 1 : 0;
    }
  }
  return count;
}

bool Mentions(const PreparedRun& run, absl::string_view words) {
  return absl::StrContains(absl::StrJoin(run.warnings, "\n"), words);
}

Profile WithoutCollectives() {
  Profile profile = testing::TinyProfile();
  profile.transfers.clear();
  return profile;
}

}  // namespace

TEST_CASE("measured collectives: a step of ddp and zero1 by hand", "[config]") {
  Profile profile = WithoutCollectives();
  // Two microbatches of 16 layers, embedding and head: F 16.3 ms, BW 32.5 ms.
  constexpr double kPasses_s = 2 * (16.3e-3 + 32.5e-3);
  for (const std::string engine : {"fast", "simgrid"}) {
    INFO(engine);
    {
      // The control: nothing is measured, hops are free.
      const Prepared control(profile);
      CHECK(IterationOf(control.Run(), engine) == Approx(kPasses_s));
      CHECK(Mentions(control.Run(), "gradient synchronisation cost nothing"));
      CHECK(control.Run().costs.measured_collectives.empty());
    }
    Profile measured = profile;
    Measure(&measured, "threads", 2, 1);
    Prepared with(measured);
    const PreparedRun ddp = with.Run();
    CHECK_FALSE(Mentions(ddp, "gradient synchronisation cost nothing"));
    CHECK(ddp.costs.measured_collectives == "all_reduce over 2");
    const double gradients = ddp.lower.gradient_bytes[0];
    REQUIRE(gradients > 1000);
    CHECK(IterationOf(ddp, engine) ==
          Approx(kPasses_s + 3e-9 * gradients).epsilon(1e-6));
    // Scattered behind the last backward, gathered before the next forward.
    with.config.strategy.data_parallel = DataParallel::kZero1;
    const PreparedRun zero1 = with.Run();
    CHECK(zero1.costs.measured_collectives ==
          "reduce_scatter over 2, all_gather over 2");
    CHECK(IterationOf(zero1, engine) ==
          Approx(kPasses_s + 7e-9 * zero1.lower.gradient_bytes[0] +
                 5e-9 * zero1.lower.parameter_bytes[0])
              .epsilon(1e-6));
  }
}

TEST_CASE("measured collectives: all modes take them, on both engines alike",
          "[config]") {
  Profile profile = WithoutCollectives();
  Measure(&profile, "threads", 2, 1);
  Prepared with(profile);
  with.config.strategy.pp = 2;
  with.config.strategy.microbatches = 4;
  for (const DataParallelTraits& mode : kDataParallelModes) {
    // odc pulls and pushes.
    if (!mode.reduces || mode.mode == DataParallel::kOdc) continue;
    INFO(mode.name);
    with.config.strategy.data_parallel = mode.mode;
    const PreparedRun run = with.Run();
    const Count count = CountMeasured(run);
    CHECK(count.all > 0);
    CHECK(count.measured == count.all);
    const double fast_s = IterationOf(run, "fast");
    CHECK(IterationOf(run, "simgrid") == Approx(fast_s).epsilon(1e-9));
    CHECK_FALSE(Mentions(run, "has no effect"));
  }
}

TEST_CASE("measured collectives: other members are not guessed", "[config]") {
  Profile profile = WithoutCollectives();
  Measure(&profile, "threads", 4, 1);
  {
    const Prepared with(profile);
    const PreparedRun run = with.Run();
    CHECK(CountMeasured(run).measured == 0);
    CHECK(run.lower.network.measured == nullptr);
    CHECK(Mentions(run, "it is not of these members, all_reduce over"));
    CHECK(Mentions(run, "gradient synchronisation cost nothing"));
  }
  // Nor between fewer and more.
  Measure(&profile, "threads", 2, 1);
  Prepared with(profile);
  with.config.strategy.dp = 3;
  CHECK(CountMeasured(with.Run()).measured == 0);
  with.config.strategy.dp = 4;
  CHECK(CountMeasured(with.Run()).measured > 0);
  // A delay that the user gives stands.
  with.config.costs.p2p_s = 1e-3;
  CHECK(CountMeasured(with.Run()).measured == 0);
}

TEST_CASE("measured collectives: on a system they are of its device and nodes",
          "[config]") {
  Profile profile = WithoutCollectives();
  for (ProfileSource& source : profile.sources) {
    source.backend = "cuda";
    source.device = "NVIDIA H100 80GB HBM3";
  }
  const auto prepare = [&](const Profile& measured) {
    Prepared with(measured);
    with.config.strategy.pp = 2;
    with.config.strategy.microbatches = 4;
    with.config.system.preset = "dgx-h100";
    return with.Run();
  };
  Profile one = profile;
  Measure(&one, "nccl", 2, 1);
  const PreparedRun run = prepare(one);
  std::set<int> nodes;
  for (const int rank : {0, 1}) {
    for (const int replica : {0, 1}) {
      nodes.insert(
          run.network.links.cluster
              ->devices()[run.network.links.mapping->DeviceOf(replica, rank)]
              .node);
    }
  }
  REQUIRE(nodes.size() == 1);
  CHECK(CountMeasured(run).measured == 2);
  CHECK(IterationOf(run, "simgrid") ==
        Approx(IterationOf(run, "fast")).epsilon(1e-9));
  // Two nodes, nodes that nobody knows, memory of the host, another device.
  Profile two = profile;
  Measure(&two, "nccl", 2, 2);
  CHECK(CountMeasured(prepare(two)).measured == 0);
  CHECK(Mentions(prepare(two), "it is not of these members"));
  Profile unknown = profile;
  Measure(&unknown, "nccl", 2, 0);
  CHECK(CountMeasured(prepare(unknown)).measured == 0);
  Profile host = profile;
  Measure(&host, "threads", 2, 1);
  CHECK(CountMeasured(prepare(host)).measured == 0);
  Profile other = one;
  other.sources[0].device = "NVIDIA A100-SXM4-80GB";
  CHECK(CountMeasured(prepare(other)).measured == 0);
  // Of both, the one of as many nodes.
  Profile both = one;
  Measure(&both, "nccl", 2, 2, /*factor=*/10);
  CHECK(CountMeasured(prepare(both)).measured == 2);
}

TEST_CASE("measured collectives: the report says where times are from",
          "[config]") {
  Profile profile = WithoutCollectives();
  const auto costs_of = [](const Profile& measured) {
    const Prepared with(measured);
    const PreparedRun run = with.Run();
    const absl::StatusOr<Program> program =
        Lower(run.schedule.lowered, run.lower);
    REQUIRE(program.ok());
    const absl::StatusOr<RunSummary> summary =
        (*FindEngine("fast"))->run(*program, {});
    REQUIRE(summary.ok());
    Report report = Summarize(*program, *summary, {});
    DescribeResults(run, &report);
    return testing::Json::parse(ReportToJson(report))["costs"];
  };
  CHECK_FALSE(costs_of(profile).contains("collectives"));
  Measure(&profile, "threads", 2, 1);
  CHECK(costs_of(profile)["collectives"] == "all_reduce over 2");
}

}  // namespace pipewright::measured_collectives_test
