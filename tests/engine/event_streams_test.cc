// The streams of devices in an EventRun, each kind alone: those beside the
// passes, transfers that hold ranks, the compute streams.
#include "sim/engine/event_streams.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "sim/engine/event_exchanges.h"
#include "sim/engine/event_passes.h"
#include "sim/engine/event_record.h"
#include "tests/support/event_calls.h"
#include "tests/support/lowering.h"

namespace pipewright::event_streams_test {
namespace {

// Two ranks without a network, passes of a second.
Program TwoRanks(WaitRule rule = WaitRule::kBuffered) {
  const auto schedule = Registered("gpipe", 2, 2);
  LowerOptions options;
  options.costs = CostsOf(
      *schedule, {.forward = 1, .backward_input = 1, .backward_weight = 1});
  options.network.hop_s = 0.25;
  options.wait_rule = rule;
  options.iterations = 1;
  return Lowered(schedule, options);
}

// What streams stand on.
struct Ground {
  explicit Ground(Program of)
      : program(std::move(of)),
        sources(program.network, true, std::nullopt),
        channels(program, &sources),
        side_sources(program, &sources),
        meetings(program, &sources),
        record(program, nullptr, nullptr),
        transfers(program, sources, true, &channels, &record, &calls.timers) {}

  Program program;
  EventCalls calls;
  TrafficSources sources;
  EventChannels channels;
  SideSources side_sources;
  EventMeetings meetings;
  EventRecord record;
  EventTransfers transfers;
};

SideStreams StreamsOf(Ground* ground) {
  return SideStreams(ground->program, true, ground->sources,
                     ground->side_sources, &ground->channels, &ground->meetings,
                     &ground->transfers, &ground->calls.timers);
}

TEST_CASE("side streams: one operation at a time, in the order of issue",
          "[engine]") {
  Program program = TwoRanks();
  AttachOp(program, 0, 0,
           {.kind = OpKind::kCpu, .stream = Stream::kCpu, .seconds = 3});
  AttachOp(program, 0, 0,
           {.kind = OpKind::kCpu, .stream = Stream::kCpu, .seconds = 4});
  Ground ground(std::move(program));
  SideStreams streams = StreamsOf(&ground);
  CHECK(streams.IsIdle(0, Stream::kCpu));
  for (const int32_t op : {0, 1}) {
    // Only the compute stream is kept busy.
    CHECK_FALSE(streams.Issue(0, Stream::kCpu,
                              {.item = {.side_op = op}, .ready_s = 1}));
  }
  CHECK_FALSE(streams.IsIdle(0, Stream::kCpu));
  CHECK(streams.IsIdle(1, Stream::kCpu));
  REQUIRE(ground.calls.set.size() == 1);
  CHECK(ground.calls.set[0].kind() == EventKind::kStreamEnd);
  CHECK(ground.calls.set[0].date_s == 4);
  CHECK(ground.calls.set[0].index() == static_cast<uint32_t>(Stream::kCpu));
  CHECK_FALSE(streams.Try(0, Stream::kCpu));
  CHECK(ground.calls.set.size() == 1);
  CHECK(streams.End(0, Stream::kCpu, -1, 4).item.side_op == 0);
  streams.Try(0, Stream::kCpu);
  REQUIRE(ground.calls.set.size() == 2);
  CHECK(ground.calls.set[1].date_s == 4 + 4);
  CHECK(streams.Head(0, Stream::kCpu).ready_s == 4);
}

TEST_CASE("side streams: an operation waits for its inputs", "[engine]") {
  Program program = TwoRanks();
  const int32_t event = AddSideChannel(program, 0, 0);
  AttachOp(program, 0, 0,
           {.kind = OpKind::kOptimizer, .seconds = 2, .inputs = {event}});
  Ground ground(std::move(program));
  SideStreams streams = StreamsOf(&ground);
  const IssuedOp issued = {.item = {.side_op = 0}, .ready_s = 1};
  CHECK_FALSE(streams.Issue(0, Stream::kCompute, issued));
  ground.channels.Tokens(0, event).Push(6, kSideKey);
  CHECK(streams.Try(0, Stream::kCompute));
  REQUIRE(ground.calls.set.size() == 1);
  CHECK(ground.calls.set[0].date_s == 6 + 2);
  CHECK(ground.channels.Tokens(0, event).size() == 0);
  CHECK_FALSE(streams.WaitsForReplicas(0));
  // Nothing starts any more once the run is over.
  ground.calls.timers.Stop();
  streams.End(0, Stream::kCompute, -1, 8);
  ground.channels.Tokens(0, event).Push(9, kSideKey);
  CHECK_FALSE(streams.Issue(0, Stream::kCompute, issued));
  CHECK(ground.calls.set.size() == 1);
}

TEST_CASE("side streams: a load waits for its offload", "[engine]") {
  const auto schedule =
      Parsed("pp 1 vpp 1 microbatches 1\n0: F0 O0 FREE0 L0 BW0");
  LowerOptions options;
  options.costs.stages.assign(1, {.forward_s = 1,
                                  .backward_input_s = 1,
                                  .backward_weight_s = 1,
                                  .offload_s = 4,
                                  .load_s = 3});
  options.iterations = 1;
  Ground ground(Lowered(schedule, options));
  SideStreams streams = StreamsOf(&ground);
  const RankOrder& order = *ground.program.ranks[0].order;
  const auto issue = [&](size_t at, Stream stream) {
    streams.ActivationsOf(0).Issue(order[at]);
    streams.Issue(0, stream, {.pass = order[at], .ready_s = 1});
  };
  issue(1, Stream::kD2H);
  issue(3, Stream::kH2D);
  REQUIRE(ground.calls.set.size() == 1);
  CHECK(ground.calls.set[0].kind() == EventKind::kTransferEnd);
  CHECK(ground.calls.set[0].date_s == 1 + 4);
  const EventTransfer copy = ground.transfers.End(ground.calls.set[0].index());
  CHECK(copy.of == EventTransfer::Of::kCopy);
  streams.End(0, Stream::kD2H, -1, 5);
  streams.EndTurn(copy, 5);
  streams.Try(0, Stream::kH2D);
  REQUIRE(ground.calls.set.size() == 2);
  CHECK(ground.calls.set[1].date_s == 5 + 3);
}

TEST_CASE("side streams: the last member starts a collective", "[engine]") {
  Program program = TwoRanks();
  program.groups.push_back({.span = Group::Span::kRanks, .ranks = {0, 1}});
  for (const int rank : {0, 1}) {
    AttachOp(
        program, rank, 0,
        {.kind = OpKind::kBarrier, .stream = Stream::kCollective, .group = 0});
  }
  Ground ground(std::move(program));
  SideStreams streams = StreamsOf(&ground);
  streams.Issue(0, Stream::kCollective, {.item = {.side_op = 0}, .ready_s = 5});
  CHECK(ground.calls.set.empty());
  streams.Issue(1, Stream::kCollective, {.item = {.side_op = 0}, .ready_s = 2});
  REQUIRE(ground.calls.set.size() == 1);
  CHECK(ground.calls.set[0].kind() == EventKind::kMeetingEnd);
  CHECK(ground.calls.set[0].date_s >= 5);
  CHECK(ground.meetings.DevicesOf(0) == std::vector<int>{0, 1});
}

TEST_CASE("held transfers: both sides meet, and both are held", "[engine]") {
  Ground ground(TwoRanks(WaitRule::kRendezvous));
  HeldTransfers held(ground.program, ground.channels, &ground.transfers);
  const RankProgram& sender = ground.program.ranks[0];
  const RankProgram& receiver = ground.program.ranks[1];
  const HeldTransfers::Poster first = {.device = 0, .rank = 0, .now_s = 1};
  const HeldTransfers::Poster second = {.device = 1, .rank = 1, .now_s = 3};
  // Rank 0 receives nothing in front of its first forward.
  held.PostInputs(first, sender, sender.order->data());
  CHECK(held.received(0));
  CHECK_FALSE(held.Holds(0));
  SideSequence sequence(sender);
  sequence.Begin(ground.program.StartsOf(0).front());
  held.PostOutputs(first, sender, sender.order->data(), 1, sequence);
  CHECK_FALSE(held.received(0));
  REQUIRE(held.Holds(0));
  CHECK(held.LastOf(0).send);
  CHECK(ground.calls.set.empty());
  held.PostInputs(second, receiver, receiver.order->data());
  REQUIRE(held.Holds(1));
  CHECK_FALSE(held.LastOf(1).send);
  REQUIRE(ground.calls.set.size() == 1);
  CHECK(ground.calls.set[0].date_s == 3 + 0.25);
  held.End(first);
  held.End(second);
  CHECK_FALSE(held.Holds(0));
  CHECK_FALSE(held.Holds(1));
}

struct Computing : Ground {
  explicit Computing(Program of, bool run_ahead)
      : Ground(std::move(of)),
        streams(StreamsOf(this)),
        exchange_sources(program, true, &sources),
        exchanges(program, exchange_sources, sources, &calls.timers),
        iterations(program, false, false, &record, &calls.timers),
        compute(program, {.run_ahead = run_ahead}, &channels, &transfers,
                &streams, &exchanges, &iterations, &record, &calls.timers) {}

  SideStreams streams;
  ExchangeSources exchange_sources;
  PassExchanges exchanges;
  IterationEnds iterations;
  ComputeStreams compute;
};

TEST_CASE("compute streams: a pass starts when its input is there",
          "[engine]") {
  Computing run(TwoRanks(), /*run_ahead=*/false);
  run.compute.Begin();
  // F0 of rank 0; rank 1 waits for it.
  REQUIRE(run.calls.set.size() == 1);
  CHECK(run.calls.set[0].kind() == EventKind::kComputeEnd);
  CHECK(run.calls.set[0].index() == 0);
  CHECK(run.calls.set[0].date_s == 1);
  CHECK(run.compute[0].busy);
  CHECK_FALSE(run.compute[1].busy);
  run.compute.EndBlock(0, run.compute[0].clock_s);
  run.compute.ContinueAll();
  REQUIRE(run.calls.set.size() == 3);
  CHECK(run.calls.set[1].date_s == 2);  // F1 of rank 0
  CHECK(run.calls.set[2].index() == 1);
  CHECK(run.calls.set[2].date_s == 1 + 0.25 + 1);
  CHECK(run.compute.held() == nullptr);
  CHECK(run.compute.SenderOf(1).replica == 0);
}

TEST_CASE("compute streams: what runs ahead of the clock needs fewer timers",
          "[engine]") {
  const auto timers = [](bool run_ahead) {
    Computing run(TwoRanks(), run_ahead);
    run.compute.Begin();
    for (size_t next = 0; next < run.calls.set.size(); ++next) {
      if (run.calls.stopped) break;
      REQUIRE(run.calls.set[next].kind() == EventKind::kComputeEnd);
      const auto device = static_cast<int>(run.calls.set[next].index());
      run.compute.EndBlock(device, run.compute[device].clock_s);
      run.compute.ContinueAll();
    }
    REQUIRE(run.calls.stopped);
    CHECK(run.compute[0].ended);
    REQUIRE(run.iterations.ends_s().size() == 1);
    // F F on rank 1 behind a hop, BW BW of 2 s, a hop, the last BW.
    CHECK(run.iterations.ends_s()[0] == 1 + 0.25 + 2 + 4 + 0.25 + 2);
    return run.calls.set.size();
  };
  const size_t each = timers(false);
  CHECK(each == 8);  // a timer for each pass
  CHECK(timers(true) < each);
}

TEST_CASE("compute streams: an operation attached to one keeps it busy",
          "[engine]") {
  Program program = TwoRanks();
  AttachOp(program, 0, 0, {.kind = OpKind::kOptimizer, .seconds = 5});
  Computing run(std::move(program), false);
  run.compute.Begin();
  REQUIRE(run.calls.set.size() == 1);
  CHECK(run.calls.set[0].kind() == EventKind::kStreamEnd);
  CHECK(run.calls.set[0].date_s == 5);
  CHECK(run.compute[0].busy);
  run.streams.End(0, Stream::kCompute, -1, 5);
  run.compute.EndAttached(0, 5);
  run.compute.Continue(0);
  REQUIRE(run.calls.set.size() == 2);
  CHECK(run.calls.set[1].kind() == EventKind::kComputeEnd);
  CHECK(run.calls.set[1].date_s == 6);
}

TEST_CASE("compute streams: transfers that hold a rank delay its next pass",
          "[engine]") {
  Computing run(TwoRanks(WaitRule::kRendezvous), true);
  run.compute.Begin();
  // Rank 1 has posted what it receives, rank 0 runs.
  REQUIRE(run.compute.held() != nullptr);
  CHECK(run.compute.held()->Holds(1));
  REQUIRE(run.calls.set.size() == 1);
  run.compute.EndBlock(0, run.compute[0].clock_s);
  REQUIRE(run.calls.set.size() == 2);
  CHECK(run.calls.set[1].kind() == EventKind::kTransferEnd);
  CHECK(run.calls.set[1].date_s == 1.25);
  CHECK_FALSE(run.compute[0].busy);
  for (const int rank : {0, 1}) run.compute.EndHold(rank, 1.25);
  CHECK(run.compute[0].busy);
  CHECK(run.compute[1].busy);
  CHECK(run.calls.set.back().date_s == 2.25);
}

}  // namespace
}  // namespace pipewright::event_streams_test
