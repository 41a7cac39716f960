#include "sim/trace/timeline.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/topology/mapping.h"
#include "sim/topology/registry.h"
#include "tests/trace/example.h"

namespace pipewright::timeline_test {
namespace {

using testing::AddTransfer;
using testing::ExampleOps;
using testing::ExampleProgram;
using testing::PassOp;

// "rank 0/compute" of a track.
std::string TrackName(const Timeline& timeline, int track) {
  const Timeline::Track& found = timeline.tracks[track];
  return absl::StrCat(timeline.processes[found.process].name, "/", found.name);
}

std::vector<std::string> TrackNames(const Timeline& timeline) {
  std::vector<std::string> names;
  for (size_t track = 0; track < timeline.tracks.size(); ++track) {
    names.push_back(TrackName(timeline, static_cast<int>(track)));
  }
  return names;
}

void CheckNoOverlap(const Timeline& timeline) {
  std::map<int, int64_t> end_ns;
  for (const Timeline::Slice& slice : timeline.slices) {
    CHECK(slice.start_ns >= end_ns[slice.track]);
    CHECK(slice.end_ns >= slice.start_ns);
    end_ns[slice.track] = slice.end_ns;
  }
}

TEST_CASE("trace: a process a rank, a track a stream", "[trace]") {
  const Program program = ExampleProgram();
  const std::vector<TraceOp> ops = ExampleOps();
  const Timeline timeline = BuildTimeline(program, ops);
  CHECK(TrackNames(timeline) ==
        std::vector<std::string>{"rank 0/compute", "rank 0/send",
                                 "rank 0/receive", "rank 0/collective",
                                 "rank 1/compute", "rank 1/send",
                                 "rank 1/receive", "rank 1/collective"});
  CheckNoOverlap(timeline);
  // All but the two waits that take no time.
  CHECK(timeline.slices.size() == ops.size() - 2);
  std::map<std::string, int64_t> sums;
  for (const Timeline::Slice& slice : timeline.slices) {
    sums[TrackName(timeline, slice.track)] += slice.end_ns - slice.start_ns;
  }
  CHECK(sums["rank 0/compute"] == 6000000);
  CHECK(sums["rank 1/compute"] == 6000000);
  CHECK(sums["rank 0/send"] == 1000000);
  CHECK(sums["rank 0/receive"] == 1000000);
  CHECK(sums["rank 1/collective"] == 1000000);
  std::set<int> ids;
  for (const auto& process : timeline.processes) ids.insert(process.id);
  for (const auto& track : timeline.tracks) ids.insert(track.id);
  for (const auto& counter : timeline.counters) ids.insert(counter.id);
  CHECK(ids.size() == timeline.processes.size() + timeline.tracks.size() +
                          timeline.counters.size());
}

TEST_CASE("trace: operations that overlap get tracks of their own", "[trace]") {
  const Program program = ExampleProgram();
  std::vector<TraceOp> ops;
  AddTransfer(0, Pass(PassKind::kForward, 0), 0, 2, &ops);
  AddTransfer(0, Pass(PassKind::kForward, 1), 1, 3, &ops);
  AddTransfer(0, Pass(PassKind::kForward, 2), 2, 4, &ops);
  AddTransfer(0, Pass(PassKind::kForward, 3), 2.5, 3.5, &ops);
  const Timeline timeline = BuildTimeline(program, ops);
  CHECK(TrackNames(timeline) ==
        std::vector<std::string>{"rank 0/send", "rank 0/send 2",
                                 "rank 0/send 3", "rank 1/receive",
                                 "rank 1/receive 2", "rank 1/receive 3"});
  CheckNoOverlap(timeline);
}

TEST_CASE("trace: rounding noise does not open a track", "[trace]") {
  const Program program = ExampleProgram();
  std::vector<TraceOp> ops = {PassOp(0, Pass(PassKind::kForward, 0), 0, 1),
                              PassOp(0, Pass(PassKind::kForward, 1), 1, 2)};
  // The two sides of a rounding border.
  ops[0].end_s = 1e-3 + 0.5000001e-9;
  ops[1].start_s = 1e-3 + 0.4999999e-9;
  const Timeline timeline = BuildTimeline(program, ops);
  CHECK(timeline.tracks.size() == 1);
  CheckNoOverlap(timeline);
}

TEST_CASE("trace: arrows lead from producer to consumer", "[trace]") {
  const Program program = ExampleProgram();
  const std::vector<TraceOp> ops = ExampleOps();
  const Timeline timeline = BuildTimeline(program, ops);
  std::map<int64_t, std::vector<std::string>> paths;
  int firsts = 0;
  int lasts = 0;
  for (const Timeline::FlowPoint& point : timeline.flows) {
    const TraceOp& op = *timeline.slices[point.slice].op;
    CHECK(point.first == paths[point.flow].empty());
    paths[point.flow].push_back(
        absl::StrCat(op.rank, ":", SliceName(program, op)));
    firsts += point.first;
    lasts += point.last;
  }
  CHECK(firsts == 4);
  CHECK(lasts == 4);
  std::set<std::vector<std::string>> found;
  for (const auto& path : paths) found.insert(path.second);
  CHECK(found == std::set<std::vector<std::string>>{
                     {"0:F0", "0:send F0", "1:receive F0", "1:F0"},
                     {"0:F1", "0:send F1", "1:receive F1", "1:F1"},
                     {"1:BW0", "1:send BW0", "0:receive BW0", "0:BW0"},
                     {"1:BW1", "1:send BW1", "0:receive BW1", "0:BW1"}});
}

TEST_CASE("trace: arrows do without what the trace does not have", "[trace]") {
  const Program program = ExampleProgram();
  std::vector<TraceOp> ops;
  AddTransfer(0, Pass(PassKind::kForward, 0), 0, 1, &ops);
  CHECK(BuildTimeline(program, ops).flows.size() == 2);
  ops.pop_back();
  CHECK(BuildTimeline(program, ops).flows.empty());
}

TEST_CASE("trace: transfers that take no time keep their direction",
          "[trace]") {
  const Program program = ExampleProgram();
  std::vector<TraceOp> ops;
  AddTransfer(1, Pass(PassKind::kBackwardInput, 0), 1, 1, &ops);
  ops.push_back(PassOp(0, Pass(PassKind::kBackwardInput, 0), 1, 2));
  ops.push_back(PassOp(1, Pass(PassKind::kBackwardInput, 0), 0, 1));
  const Timeline timeline = BuildTimeline(program, ops);
  std::vector<int> ranks;
  for (const Timeline::FlowPoint& point : timeline.flows) {
    ranks.push_back(timeline.slices[point.slice].op->rank);
  }
  CHECK(ranks == std::vector<int>{1, 1, 0, 0});
}

const Timeline::Counter& FindCounter(const Timeline& timeline, int process,
                                     const std::string& name) {
  const auto found =
      std::find_if(timeline.counters.begin(), timeline.counters.end(),
                   [&](const Timeline::Counter& counter) {
                     return counter.process == process && counter.name == name;
                   });
  REQUIRE(found != timeline.counters.end());
  return *found;
}

double Peak(const Timeline::Counter& counter) {
  double peak = 0;
  for (const Timeline::Sample& sample : counter.samples) {
    peak = std::max(peak, sample.value);
  }
  return peak;
}

TEST_CASE("trace: counters rise, fall and end at zero", "[trace]") {
  const Program program = ExampleProgram();
  const std::vector<TraceOp> ops = ExampleOps();
  const Timeline timeline = BuildTimeline(program, ops);
  CHECK(timeline.counters.size() == 4);
  for (const Timeline::Counter& counter : timeline.counters) {
    int64_t last_ns = -1;
    for (const Timeline::Sample& sample : counter.samples) {
      CHECK(sample.value >= 0);
      CHECK(sample.time_ns > last_ns);
      last_ns = sample.time_ns;
    }
    CHECK(counter.samples.back().value == 0);
  }
  CHECK(Peak(FindCounter(timeline, 0, "activations in flight")) == 2);
  CHECK(Peak(FindCounter(timeline, 1, "activations in flight")) == 1);
  CHECK(Peak(FindCounter(timeline, 0, "transfers in flight")) == 1);
}

TEST_CASE("trace: activations count in parts, offloads take away", "[trace]") {
  Program program = ExampleProgram();
  auto schedule = std::make_shared<Schedule>(*program.schedule);
  schedule->placement = Placement::Loop(2, 2);
  schedule->slices = 2;
  program.schedule = schedule;
  std::vector<TraceOp> ops = {
      PassOp(0, Pass(PassKind::kForward, 0, 0, 0), 0, 1),
      PassOp(0, Pass(PassKind::kForward, 0, 0, 1), 1, 2),
      PassOp(0, Pass(PassKind::kOffload, 0, 0, 0), 1, 3),
      PassOp(0, Pass(PassKind::kLoad, 0, 0, 0), 4, 5),
      PassOp(0, Pass(PassKind::kBackwardFull, 0, 0, 1), 5, 6),
      PassOp(0, Pass(PassKind::kBackwardInput, 0, 0, 0), 6, 7),
      PassOp(0, Pass(PassKind::kBackwardWeight, 0, 0, 0), 7, 8),
  };
  ops[2].kind = OpKind::kOffload;
  ops[2].stream = Stream::kD2H;
  ops[3].kind = OpKind::kLoad;
  ops[3].stream = Stream::kH2D;
  const Timeline timeline = BuildTimeline(program, ops);
  std::vector<std::pair<int64_t, double>> samples;
  for (const auto& sample :
       FindCounter(timeline, 0, "activations in flight").samples) {
    samples.emplace_back(sample.time_ns / 1000000, sample.value);
  }
  CHECK(samples ==
        std::vector<std::pair<int64_t, double>>{
            {0, 0.25}, {1, 0.5}, {3, 0.25}, {4, 0.5}, {6, 0.25}, {8, 0}});
  CHECK(SliceName(program, ops[1]) == "F0.0s1");
  CHECK(SliceName(program, ops[2]) == "O0.0s0");
}

TEST_CASE("trace: names of processes and of what is no pass", "[trace]") {
  Program program = ExampleProgram();
  const std::vector<TraceOp> ops = ExampleOps();
  CHECK(SliceName(program, ops[ops.size() - 2]) == "all-reduce chunk 0");
  TraceOp message;
  message.kind = OpKind::kSend;
  CHECK(SliceName(program, message) == "send message");
  TraceOp optimizer;
  optimizer.kind = OpKind::kOptimizer;
  CHECK(SliceName(program, optimizer) == "optimizer");

  ShapeParams params;
  params.shape = "node";
  params.devices_per_node = 4;
  params.nvlink = params.pcie = {1e9, 0, ""};
  program.replicas = 2;
  program.network.cluster =
      std::make_shared<Cluster>(BuildCluster(params).value());
  program.network.mapping = std::make_shared<RankMapping>(
      RankMapping::FromOrder("dp-pp", 2, 2, 4).value());
  TraceOp pass = PassOp(1, Pass(PassKind::kForward, 0), 0, 1);
  pass.replica = 1;
  const std::vector<TraceOp> one = {pass};
  CHECK(BuildTimeline(program, one).processes[0].name ==
        "replica 1 rank 1 (node0/gpu3)");
  program.network.mapping = std::make_shared<RankMapping>(
      RankMapping::FromOrder("dp-pp", 1, 2, 4, 2).value());
  pass.rank = 0;
  const std::vector<TraceOp> other = {pass};
  CHECK(BuildTimeline(program, other).processes[0].name ==
        "replica 1 rank 0 (node0/gpu2 to node0/gpu3)");
}

}  // namespace
}  // namespace pipewright::timeline_test
