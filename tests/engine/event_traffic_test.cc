// What is planned before an EventRun, each part of it alone: sources of
// traffic, channels, meetings, exchanges of passes, parts of the replicas.
#include "sim/engine/event_traffic.h"

#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <vector>

#include "sim/engine/event_exchanges.h"
#include "sim/engine/event_meetings.h"
#include "sim/engine/event_parts.h"
#include "sim/engine/event_transfers.h"
#include "sim/topology/mapping.h"
#include "sim/topology/registry.h"
#include "tests/support/event_calls.h"
#include "tests/support/lowering.h"
#include "tests/support/random_program.h"

namespace pipewright::event_traffic_test {
namespace {

constexpr double kLatency = 0.5;

// Two replicas of two ranks. Both send down over link 0 of 10 bytes/s, up each
// over its own, and round rings of the same rank over links 3 and 4.
Network TwoReplicas() {
  const auto cluster = ClusterOf(4,
                                 {{"down", 10, kLatency},
                                  {"up0", 10, kLatency},
                                  {"up1", 10, kLatency},
                                  {"across", 10, kLatency},
                                  {"back", 10, kLatency}},
                                 {{0, 1, {0}},
                                  {2, 3, {0}},
                                  {1, 0, {1}},
                                  {3, 2, {2}},
                                  {0, 2, {3}},
                                  {2, 0, {4}},
                                  {1, 3, {3}},
                                  {3, 1, {4}}});
  return NetworkOf(cluster, {0, 1, 2, 3}, 2, 2);
}

LowerOptions Options(const Schedule& schedule, const Network& network) {
  LowerOptions options;
  options.costs = CostsOf(
      schedule, {.forward = 1, .backward_input = 1, .backward_weight = 1});
  options.network = network;
  options.replicas = 2;
  options.hop_bytes = 10;
  options.iterations = 1;
  return options;
}

Program Lowered1F1B(const Network& network, int microbatches = 2,
                    DataParallel kind = DataParallel::kNone) {
  const auto schedule = Registered("1f1b", 2, microbatches);
  LowerOptions options = Options(*schedule, network);
  options.data_parallel = kind;
  options.gradient_bytes.assign(2, 40);
  return Lowered(schedule, options);
}

// The channel of activations, or of gradients.
int32_t ChannelOf(const Program& program, ChannelKind kind) {
  for (size_t index = 0; index < program.channels.size(); ++index) {
    if (program.channels[index].kind == kind) return static_cast<int>(index);
  }
  FAIL("no such channel");
  return -1;
}

TEST_CASE("traffic sources: those on one link may have to share it",
          "[engine]") {
  const Network network = TwoReplicas();
  for (const bool share_links : {true, false}) {
    TrafficSources sources(network, share_links, std::nullopt);
    CHECK(sources.Add({}) == -1);
    for (const LinkId link : {0, 0, 1}) {
      sources.Add({.flows = {.loads = {{link, 1}}, .latency_s = kLatency}});
    }
    CHECK_FALSE(sources.AnyShared());  // nothing is planned yet
    sources.Plan();
    CHECK(sources.all().size() == 3);
    CHECK(sources.AnyShared() == share_links);
    CHECK(sources.Shared(0) == share_links);
    CHECK_FALSE(sources.Shared(2));
    CHECK_FALSE(sources.Shared(-1));
    CHECK(sources.AloneSeconds(2, 20) == kLatency + 2);
    CHECK_FALSE(sources.Spreads(1000));
  }
  TrafficSources nothing({}, true, 2);
  nothing.Plan();
  CHECK(nothing.plans().empty());
  CHECK_FALSE(nothing.Spreads(2));
}

TEST_CASE("traffic sources: with many peers each is part of a pool",
          "[engine]") {
  const Network network = TwoReplicas();
  TrafficSources sources(network, true, 2);
  CHECK_FALSE(sources.Spreads(1));
  REQUIRE(sources.Spreads(2));
  CHECK(sources.AddSpread({.pulls = true, .peers = 2}, {{0, 1}, {0, 2}}) == 0);
  sources.Plan();
  CHECK(sources.pools().size() == 1);
  CHECK(sources.plan(0).pool == 0);
}

TEST_CASE("event channels: each replica has its own, with its own source",
          "[engine]") {
  const Program program = Lowered1F1B(TwoReplicas());
  TrafficSources sources(program.network, true, std::nullopt);
  EventChannels channels(program, &sources);
  sources.Plan();
  CHECK(channels.slots() == 2 * program.channels.size());
  const int32_t down = ChannelOf(program, ChannelKind::kActivation);
  const int32_t up = ChannelOf(program, ChannelKind::kGradient);
  for (const int replica : {0, 1}) {
    const size_t slot = channels.SlotOf(replica, down);
    CHECK(channels.SecondsOf(slot) == kLatency + 1);
    CHECK(sources.Shared(channels.SourceOf(slot)));
    CHECK(sources.all()[channels.SourceOf(slot)].replica == replica);
    CHECK_FALSE(
        sources.Shared(channels.SourceOf(channels.SlotOf(replica, up))));
  }
  channels.Tokens(1, down).Push(3, 7);
  CHECK(channels.Tokens(0, down).size() == 0);
  CHECK(channels.Tokens(1, down).size() == 1);
  const Pass pass = (*program.ranks[0].order)[0];
  CHECK(EventChannels::KeyOf(pass, true) != EventChannels::KeyOf(pass, false));
}

TEST_CASE("side sources: of pulls, not of what uses no links", "[engine]") {
  Program program = Lowered1F1B(TwoReplicas());
  AttachOp(program, 0, 0,
           {.kind = OpKind::kPull,
            .stream = Stream::kReceive,
            .bytes = 10,
            .peer = 1});
  AttachOp(program, 0, 0, {.kind = OpKind::kCpu, .stream = Stream::kCpu});
  TrafficSources sources(program.network, true, std::nullopt);
  const SideSources side(program, &sources);
  sources.Plan();
  // [replica * 2 + rank]
  REQUIRE(side.OfSideOp(0, 0) >= 0);
  REQUIRE(side.OfSideOp(2, 0) >= 0);
  CHECK(side.OfSideOp(0, 0) != side.OfSideOp(2, 0));
  CHECK(sources.all()[side.OfSideOp(2, 0)].replica == 1);
  CHECK(side.OfSideOp(0, 1) == -1);
  CHECK(side.OfSideOp(1, 0) == -1);
  CHECK(side.OfCopies(0, Stream::kD2H) == -1);
  CHECK(side.OfPeers(0, program.ranks[0].side_ops[0]) == nullptr);
}

TEST_CASE("event meetings: the last member starts it, all leave at once",
          "[engine]") {
  const Program program = Lowered1F1B(TwoReplicas(), 2, DataParallel::kDdp);
  TrafficSources sources(program.network, true, std::nullopt);
  EventMeetings meetings(program, &sources);
  sources.Plan();
  const SideOp* reduction = nullptr;
  for (const SideOp& op : program.ranks[0].side_ops) {
    if (op.kind == OpKind::kAllReduce) reduction = &op;
  }
  REQUIRE(reduction != nullptr);
  CHECK(SpansReplicas(program, *reduction));
  CHECK(meetings.Arrive(0, Stream::kCollective, *reduction, 4, sources) == -1);
  CHECK(meetings.any_open());
  const int number =
      meetings.Arrive(2, Stream::kCollective, *reduction, 3, sources);
  REQUIRE(number >= 0);
  CHECK(meetings.StartOf(number) == 4);
  CHECK(meetings.EndOf(number) == 4 + meetings.AloneSeconds(number));
  CHECK(meetings.DevicesOf(number) == std::vector<int>{0, 2});
  // The ring of the other rank goes over the same links.
  REQUIRE(meetings.Shares(number));
  const EventTransfer ring = meetings.Transfer(number, 4, sources);
  CHECK(ring.of == EventTransfer::Of::kMeeting);
  CHECK(ring.index == number);
  CHECK(ring.alone_s == meetings.AloneSeconds(number));
  CHECK(sources.all()[ring.source].replica == -1);
  CHECK_FALSE(meetings.NextPhase(number));
  meetings.SetEnd(number, 50);
  CHECK(meetings.EndOf(number) == 50);
  const auto members = meetings.End(number);
  REQUIRE(members.size() == 2);
  CHECK(members[1].device == 2);
  CHECK_FALSE(meetings.any_open());
  CHECK(meetings.DevicesOf(number).empty());
}

// Two replicas, one device of each on every node, one card of 16 bytes/s a
// node, and all seconds of a pass are an exchange over both cards.
Program Exchanging() {
  const auto schedule = Parsed("pp 1 vpp 1 microbatches 1\n0: F0 BW0");
  Network network;
  network.cluster =
      std::make_shared<Cluster>(*BuildCluster(SmallFabric(2, 2, 1)));
  network.mapping = std::make_shared<const RankMapping>(
      RankMapping::FromOrder("dp-tp-pp", 1, 2, 4, 2, 1).value());
  LowerOptions options = Options(*schedule, network);
  const PassExchange exchange = {.group = CommGroup::kTensor,
                                 .members = 2,
                                 .seconds = 1,
                                 .latency_s = 0.25,
                                 .bytes = 12};
  options.costs.exchanges = {{.forward = {exchange}}};
  return Lowered(schedule, options);
}

TEST_CASE("pass exchanges: a pass is computation and flows in turn",
          "[engine]") {
  const Program program = Exchanging();
  TrafficSources sources(program.network, true, std::nullopt);
  const ExchangeSources exchange_sources(program, true, &sources);
  sources.Plan();
  CHECK(exchange_sources.largest_bytes() == 12);
  CHECK(exchange_sources.MostLinks(sources) > 0);
  EventCalls calls;
  PassExchanges exchanges(program, exchange_sources, sources, &calls.timers);
  REQUIRE(exchanges.any());
  CHECK(exchanges.time_lone_transfers());
  const Pass* const forward = program.ranks[0].order->data();
  // A pass without an exchange stays whole.
  CHECK_FALSE(exchanges.Begin(1, program.ranks[0], forward + 1, 1, {2, 0}, 5));
  REQUIRE(exchanges.Begin(1, program.ranks[0], forward, 1, {1, 0}, 5));
  REQUIRE(calls.set.size() == 1);
  CHECK(calls.set[0].kind() == EventKind::kExchange);
  CHECK(calls.set[0].index() == 1);
  CHECK(calls.set[0].date_s == Approx(5.25));
  double end_s = 0;
  const auto flow = exchanges.Flow(1, 0, &end_s);
  REQUIRE(flow.has_value());
  CHECK(flow->start_s == calls.set[0].date_s);
  CHECK(sources.Shared(flow->source));
  const double alone_s = flow->bytes / sources.plan(flow->source).bytes_per_s;
  CHECK(alone_s == Approx(0.75));
  // Others on the card have made it longer.
  const auto over_s = exchanges.End(1, 8);
  REQUIRE(over_s.has_value());
  CHECK(*over_s == 8);
}

TEST_CASE("pass exchanges: none if links are not shared", "[engine]") {
  const Program program = Exchanging();
  TrafficSources sources(program.network, false, std::nullopt);
  const ExchangeSources exchange_sources(program, false, &sources);
  sources.Plan();
  CHECK(exchange_sources.empty());
  EventCalls calls;
  const PassExchanges exchanges(program, exchange_sources, sources,
                                &calls.timers);
  CHECK_FALSE(exchanges.any());
}

TEST_CASE("replica parts: those that share a link are one", "[engine]") {
  const Network shared = TwoReplicas();
  const Network apart = NetworkOf(
      ClusterOf(4, {{"a", 10, 0}, {"b", 10, 0}, {"c", 10, 0}, {"d", 10, 0}},
                {{0, 1, {0}}, {1, 0, {1}}, {2, 3, {2}}, {3, 2, {3}}}),
      {0, 1, 2, 3}, 2, 2);
  for (const Network& network : {shared, apart}) {
    const Program program = Lowered1F1B(network, 16);
    TrafficSources sources(network, true, std::nullopt);
    const EventChannels channels(program, &sources);
    sources.Plan();
    EventCalls calls;
    const SharedTransfers sharing(sources, network, true, &calls.timers);
    EngineOptions options;
    CHECK(ReplicaParts(program, options, sources, sharing).count() == 1);
    options.least_in_parts = 1;
    const ReplicaParts parts(program, options, sources, sharing);
    if (network.cluster == shared.cluster) {
      CHECK(parts.count() == 1);
      continue;
    }
    REQUIRE(parts.count() == 2);
    CHECK(parts.PartOf(0) != parts.PartOf(1));
    // They never meet: as far as is looked, or not worth it near the end.
    const auto horizon = [&](int64_t position, bool meets) {
      return parts.Horizon(3, 4, [&](int device) {
        return ReplicaParts::Place{
            .replica = device / 2,
            .rank = device % 2,
            .position = position,
            .end = static_cast<int64_t>(program.ranks[0].order->size()),
            .clock_s = 3,
            .meets = meets && device == 2};
      });
    };
    CHECK(horizon(0, false) > 3 + 16);
    CHECK(horizon(0, true) == 3);
    CHECK(horizon(static_cast<int64_t>(program.ranks[0].order->size()) - 4,
                  false) == 3);
  }
}

}  // namespace
}  // namespace pipewright::event_traffic_test
