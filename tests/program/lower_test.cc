// What Lower makes of small schedules, as text and as structure.
#include "sim/program/lower.h"

#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "sim/engine/fast_engine.h"
#include "sim/program/cursor.h"
#include "sim/schedule/builder.h"
#include "tests/support/lowering.h"
#include "tests/support/random_program.h"

namespace pipewright::lower_test {
namespace {

constexpr char kZeroBubble[] =
    "pp 2 vpp 1 microbatches 2\n"
    "0: F0 F1 B0 W0 B1 W1\n"
    "1: F0 B0 F1 B1 W0 W1";

LowerOptions Options(const Schedule& schedule) {
  LowerOptions options;
  options.costs = CostsOf(
      schedule, {.forward = 3, .backward_input = 5, .backward_weight = 7});
  options.costs.optimizer_s = 1;
  options.network.hop_s = 2;
  options.hop_bytes = 16;
  options.iterations = 1;
  options.gradient_bytes.assign(schedule.stages(), 8);
  options.parameter_bytes.assign(schedule.stages(), 4);
  return options;
}

// 16 bytes of a microbatch go to the host and come back in two slices of 8.
TEST_CASE("lower: a slice copies its part of the activations", "[program]") {
  const auto schedule = Parsed(
      "pp 1 vpp 1 microbatches 1 slices 2\n"
      "0: F0s0 O0s0 F0s1 O0s1 L0s1 BW0s1 L0s0 BW0s0");
  LowerOptions options = Options(*schedule);
  options.activation_bytes = {16};
  const Program program = Lowered(schedule, options);
  double bytes = 0;
  for (const Pass pass : *program.ranks[0].order) {
    const auto kind = pass.kind();
    if (kind != PassKind::kOffload && kind != PassKind::kLoad) continue;
    const double copied = program.ranks[0].lanes[pass.lane()].bytes;
    CHECK(copied == 8);
    bytes += copied;
  }
  CHECK(bytes == 2 * 16);
}

TEST_CASE("lower: 1f1b as text", "[program]") {
  const auto schedule = Registered("1f1b", 2, 2);
  CHECK(ToString(Lowered(schedule, Options(*schedule))) ==
        "program 1f1b ranks 2 replicas 1 iterations 1 wait buffered\n"
        "channel 0 activation 0>1 16 B\n"
        "channel 1 gradient 1>0 16 B\n"
        "0: F0 send(F0) F1 send(F1) receive(BW0) BW0 receive(BW1) BW1\n"
        "1: receive(F0) F0 BW0 send(BW0) receive(F1) F1 BW1 send(BW1)\n");
}

// Every rank checks its step before the first pass that is no forward, with
// what the rank behind it knows; nobody waits for the slowest.
TEST_CASE("lower: a post-validated step as text", "[program]") {
  const auto schedule = Parsed(kZeroBubble);
  LowerOptions options = Options(*schedule);
  options.optimizer = OptimizerMode::kPostValidated;
  CHECK(
      ToString(Lowered(schedule, options)) ==
      "program t ranks 2 replicas 1 iterations 1 wait buffered\n"
      "channel 0 activation 0>1 16 B\n"
      "channel 1 gradient 1>0 16 B\n"
      "channel 2 message 0>1 16 B\n"
      "channel 3 message 1>0 16 B\n"
      "0: F0 send(F0) F1 send(F1) validate[1..] receive(B0) B0 W0 "
      "receive(B1) B1 W1 wait optimizer\n"
      "1: receive(F0) F0 wait[1..] validate[1..] B0 send(B0) receive(F1) F1 B1 "
      "send(B1) W0 W1 wait optimizer\n");
}

// A chunk's gradients are reduced behind its last backward.
TEST_CASE("lower: ddp over two chunks as text", "[program]") {
  const auto schedule = Registered("interleaved-1f1b", 2, 2, 2);
  LowerOptions options = Options(*schedule);
  options.data_parallel = DataParallel::kDdp;
  options.replicas = 2;
  CHECK(ToString(Lowered(schedule, options)) ==
        "program interleaved-1f1b ranks 2 replicas 2 iterations 1 wait "
        "buffered\n"
        "group 0 replicas 0\n"
        "group 1 replicas 1\n"
        "channel 0 activation 0>1 16 B\n"
        "channel 1 gradient 1>0 16 B\n"
        "channel 2 activation 1>0 16 B\n"
        "channel 3 gradient 0>1 16 B\n"
        "channel 4 activation 0>1 16 B\n"
        "channel 5 gradient 1>0 16 B\n"
        "channel 6 event 0>0 0 B\n"
        "channel 7 event 0>0 0 B\n"
        "channel 8 event 1>1 0 B\n"
        "channel 9 event 1>1 0 B\n"
        "0: F0.0 send(F0.0) F1.0 send(F1.0) receive(F0.1) F0.1 send(F0.1) "
        "receive(F1.1) F1.1 send(F1.1) receive(BW0.1) BW0.1 send(BW0.1) "
        "receive(BW1.1) BW1.1 send(BW1.1) all-reduce.1@g0 receive(BW0.0) "
        "BW0.0 receive(BW1.0) BW1.0 all-reduce.0@g0 wait\n"
        "1: receive(F0.0) F0.0 send(F0.0) receive(F1.0) F1.0 send(F1.0) "
        "receive(F0.1) F0.1 BW0.1 send(BW0.1) receive(F1.1) F1.1 BW1.1 "
        "send(BW1.1) all-reduce.1@g1 receive(BW0.0) BW0.0 send(BW0.0) "
        "receive(BW1.0) BW1.0 send(BW1.0) all-reduce.0@g1 wait\n");
}

// Scattered behind the last weight gradient, gathered behind the step, awaited
// before the next first use.
TEST_CASE("lower: zero1 with a synchronised step as text", "[program]") {
  const auto schedule = Parsed(kZeroBubble);
  LowerOptions options = Options(*schedule);
  options.data_parallel = DataParallel::kZero1;
  options.optimizer = OptimizerMode::kSynchronised;
  options.replicas = 2;
  CHECK(ToString(Lowered(schedule, options)) ==
        "program t ranks 2 replicas 2 iterations 1 wait buffered\n"
        "group 0 replicas 0\n"
        "group 1 replicas 1\n"
        "group 2 all 0 1\n"
        "channel 0 activation 0>1 16 B\n"
        "channel 1 gradient 1>0 16 B\n"
        "channel 2 event 0>0 0 B\n"
        "channel 3 event 1>1 0 B\n"
        "channel 4 event 0>0 0 B\n"
        "channel 5 event 1>1 0 B\n"
        "channel 6 event 0>0 0 B\n"
        "channel 7 event 1>1 0 B\n"
        "0: wait.0[1..] F0 send(F0) F1 send(F1) receive(B0) B0 W0 "
        "receive(B1) B1 W1 reduce-scatter.0@g0 wait all-reduce@g2 optimizer "
        "all-gather.0@g0\n"
        "1: wait.0[1..] receive(F0) F0 B0 send(B0) receive(F1) F1 B1 "
        "send(B1) W0 W1 reduce-scatter.0@g1 wait all-reduce@g2 optimizer "
        "all-gather.0@g1\n");
}

TEST_CASE("lower: nothing stands inside a joint pair", "[program]") {
  const auto schedule = Parsed("pp 1 vpp 1 microbatches 2\n0: F0 (F1&BW0) BW1");
  LowerOptions options = Options(*schedule);
  options.data_parallel = DataParallel::kDdp;
  options.optimizer = OptimizerMode::kPostValidated;
  options.replicas = 2;
  const Program program = Lowered(schedule, options);
  // The first pass that is no forward is the second half of the block.
  const std::string text = ToString(program);
  CHECK_THAT(text, Catch::Contains("F0 validate[1..] F1& BW0 BW1 all-reduce"));
}

TEST_CASE("lower: options that do not fit are told", "[program]") {
  const auto schedule = Registered("interleaved-1f1b", 2, 4, 2);
  const auto cluster = ClusterOf(4, {}, {});
  const std::vector<std::pair<std::string, std::function<void(LowerOptions&)>>>
      mistakes = {
          {"costs",
           [](LowerOptions& options) { options.costs.stages.pop_back(); }},
          {"costs",
           [](LowerOptions& options) { options.costs.stages.clear(); }},
          {"costs.microbatch_factor",
           [](LowerOptions& options) {
             options.costs.microbatch_factor = {1, 1, 1};
           }},
          {"costs.slice_factor",
           [](LowerOptions& options) {
             options.costs.slice_factor = {1, 1};
           }},
          {"strategy.dp", [](LowerOptions& options) { options.replicas = 0; }},
          {"gradient bytes",
           [](LowerOptions& options) { options.gradient_bytes.pop_back(); }},
          {"parameter bytes",
           [](LowerOptions& options) { options.parameter_bytes.push_back(1); }},
          {"activation bytes",
           [](LowerOptions& options) { options.activation_bytes = {1}; }},
          {"strategy.mapping",
           [&](LowerOptions& options) { options.network.cluster = cluster; }},
          {"strategy.mapping",
           [&](LowerOptions& options) {
             options.network = NetworkOf(cluster, {0, 1, 2}, 3, 1);
           }},
          {"strategy.mapping",
           [&](LowerOptions& options) {
             options.network = NetworkOf(cluster, {0, 1}, 2, 1);
           }},
      };
  for (const auto& [field, mistake] : mistakes) {
    LowerOptions options = Options(*schedule);
    options.data_parallel = DataParallel::kZero1;
    options.replicas = 2;
    REQUIRE(Lower(schedule, options).ok());
    mistake(options);
    const auto program = Lower(schedule, options);
    INFO(field << ": " << program.status());
    CHECK(program.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(program.status().message()),
               Catch::StartsWith(field));
  }
}

TEST_CASE("program: what is broken is rejected", "[program]") {
  const auto schedule = Registered("1f1b", 2, 2);
  LowerOptions options = Options(*schedule);
  options.data_parallel = DataParallel::kZero1;
  options.optimizer = OptimizerMode::kSynchronised;
  options.replicas = 2;
  const Program whole = Lowered(schedule, options);
  REQUIRE(VerifyProgram(whole) == absl::OkStatus());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const uint32_t forward = Pass::LaneOf(PassKind::kForward, 0, 0);
  const std::map<std::string, std::function<void(Program&)>> mutations = {
      {"no ranks", [](Program& p) { p.ranks.clear(); }},
      {"no replicas", [](Program& p) { p.replicas = 0; }},
      {"no iterations", [](Program& p) { p.iterations = 0; }},
      {"no order", [](Program& p) { p.ranks[1].order = nullptr; }},
      {"negative time",
       [&](Program& p) { p.ranks[0].lanes[forward].seconds = -1; }},
      {"time that is no number",
       [&](Program& p) { p.ranks[0].lanes[forward].seconds = nan; }},
      {"channel out of range",
       [&](Program& p) { p.ranks[0].lanes[forward].output = 99; }},
      {"channel of another kind",
       [&](Program& p) { p.ranks[0].lanes[forward].output = 2; }},
      {"output of another rank",
       [&](Program& p) { p.ranks[0].lanes[forward].output = 1; }},
      {"input of another rank",
       [&](Program& p) { p.ranks[0].lanes[forward].input = 0; }},
      {"attachment behind the end",
       [](Program& p) { p.ranks[0].attachments.back().position = 99; }},
      {"attachments out of order",
       [](Program& p) {
         p.ranks[0].attachments.front().position = 3;
         p.ranks[0].attachments[1].position = 2;
       }},
      {"attachment of nothing",
       [](Program& p) { p.ranks[0].attachments.back().side_op = 99; }},
      {"side operation attached twice",
       [](Program& p) {
         p.ranks[0].attachments.push_back(p.ranks[0].attachments.back());
       }},
      {"side operation never attached",
       [](Program& p) { p.ranks[0].attachments.pop_back(); }},
      {"no such group", [](Program& p) { p.ranks[0].side_ops[0].group = 99; }},
      {"no such peer",
       [](Program& p) {
         AttachOp(p, 0, 4, {.kind = OpKind::kPull, .peer = 2});
       }},
      {"negative bytes", [](Program& p) { p.ranks[0].side_ops[0].bytes = -1; }},
      {"event between ranks", [](Program& p) { p.channels[2].to_rank = 1; }},
      {"channel without ends", [](Program& p) { AddSideChannel(p, 0, 0); }},
      {"channel without consumer",
       [](Program& p) {
         const int32_t channel = AddSideChannel(p, 0, 1, 8);
         AttachOp(p, 0, 4, {.outputs = {channel}});
       }},
      {"two consumers",
       [](Program& p) {
         const int32_t channel = AddSideChannel(p, 0, 1, 8);
         AttachOp(p, 0, 4, {.outputs = {channel}});
         AttachOp(p, 1, 4, {.inputs = {channel}});
         AttachOp(p, 1, 4, {.inputs = {channel}});
       }},
      {"consumer two iterations late",
       [](Program& p) {
         const int32_t channel = AddSideChannel(p, 0, 1, 8);
         AttachOp(p, 0, 4, {.outputs = {channel}});
         AttachOp(p, 1, 4, {.first_iteration = 2, .inputs = {channel}});
       }},
      {"consumer before its producer",
       [](Program& p) {
         const int32_t channel = AddSideChannel(p, 0, 1, 8);
         AttachOp(p, 0, 4, {.first_iteration = 1, .outputs = {channel}});
         AttachOp(p, 1, 4, {.inputs = {channel}});
       }},
      {"members that meet unequally often",
       [](Program& p) {
         p.groups[0].ranks = {0, 1};
       }},
      {"group of a rank that is not there",
       [](Program& p) { p.groups[0].ranks = {7}; }},
      {"a meeting of two kinds",
       [](Program& p) {
         for (SideOp& op : p.ranks[0].side_ops) {
           if (op.group == 2) op.kind = OpKind::kAllGather;
         }
       }},
      {"a meeting of two sizes",
       [](Program& p) {
         for (SideOp& op : p.ranks[0].side_ops) {
           if (op.group == 2) op.bytes += 1;
         }
       }},
      {"a member that is not one",
       [](Program& p) {
         AttachOp(p, 1, 4, {.kind = OpKind::kBarrier, .group = 0});
       }},
  };
  for (const auto& [name, mutate] : mutations) {
    Program broken = whole;
    mutate(broken);
    INFO(name);
    CHECK(VerifyProgram(broken).code() == absl::StatusCode::kInternal);
  }
  // Not inside a block.
  const auto joint = Parsed("pp 1 vpp 1 microbatches 2\n0: F0 (F1&BW0) BW1");
  Program inside = Lowered(joint, Options(*joint));
  AttachOp(inside, 0, 2, {.kind = OpKind::kCpu, .stream = Stream::kCpu});
  CHECK(VerifyProgram(inside).code() == absl::StatusCode::kInternal);
}

TEST_CASE("cursor: yields each operation once, a transfer on both sides",
          "[program]") {
  int compared = 0;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    const auto made = MakeRandomProgram(seed, {});
    if (!made.ok()) continue;
    const Program& program = made->program;
    INFO(made->about);
    // The first iteration that nothing is left out of and that begins once.
    int full = 1;
    while (program.StartsOf(full).size() > 1 ||
           program.StartsOf(full)[0].fails) {
      ++full;
    }
    std::map<OpKind, int64_t> counts;
    int64_t all = 0;
    for (int rank = 0; rank < program.pp(); ++rank) {
      int64_t position = 0;
      OpCursor cursor(program, rank, full + 1);
      for (Op op; cursor.Next(&op);) {
        if (op.iteration < full) continue;
        CHECK(op.position >= position);
        position = op.position;
        // A wait of the compute stream is no operation of the program.
        if (op.kind == OpKind::kWait && op.side_op < 0) continue;
        ++counts[op.kind];
        ++all;
      }
    }
    CHECK(counts[OpKind::kSend] == counts[OpKind::kReceive]);
    CHECK(counts[OpKind::kPass] == program.num_passes());
    CHECK(all - counts[OpKind::kReceive] == program.num_ops());
    ++compared;
  }
  CHECK(compared > 150);
}

TEST_CASE("cursor: SYNC is a place and no operation", "[program]") {
  const auto schedule = Parsed("pp 1 vpp 1 microbatches 1\n0: F0 BW0 SYNC0");
  const Program program = Lowered(schedule, Options(*schedule));
  CHECK_THAT(ToString(program), Catch::EndsWith("0: F0 BW0\n"));
  CHECK(program.num_passes() == 2);
  CHECK(program.num_ops() == 2);
}

TEST_CASE("program: shares the orders and grows with no copy of them",
          "[program]") {
  static_assert(sizeof(Pass) == 8);
  const auto schedule = Registered("1f1b", 4, 4096);
  LowerOptions options = Options(*schedule);
  options.data_parallel = DataParallel::kZero1;
  options.replicas = 2;
  const Program small = Lowered(schedule, options);
  options.replicas = 4096;
  options.iterations = 8;
  const Program large = Lowered(schedule, options);
  const auto few = Registered("1f1b", 4, 4);
  const Program short_one = Lowered(few, options);
  for (const Program* other : {&large, &short_one}) {
    CHECK(other->channels.size() == small.channels.size());
    CHECK(other->groups.size() == small.groups.size());
    for (int rank = 0; rank < 4; ++rank) {
      const RankProgram& mine = small.ranks[rank];
      const RankProgram& theirs = other->ranks[rank];
      CHECK(theirs.lanes.size() == mine.lanes.size());
      CHECK(theirs.side_ops.size() == mine.side_ops.size());
      CHECK(theirs.attachments.size() == mine.attachments.size());
    }
  }
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(large.ranks[rank].order == schedule->orders[rank]);
    CHECK(small.ranks[rank].order == schedule->orders[rank]);
  }
  CHECK(small.num_ops() == large.num_ops());
}

}  // namespace
}  // namespace pipewright::lower_test
