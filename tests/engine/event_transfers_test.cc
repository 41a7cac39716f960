// Bytes on their way in an EventRun, each part of it alone: links that are
// shared, turns of copies, steps with peers, what slows each other down.
#include "sim/engine/event_transfers.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sim/engine/event_beside.h"
#include "sim/engine/event_peers.h"
#include "sim/topology/mapping.h"
#include "tests/support/event_calls.h"
#include "tests/support/lowering.h"
#include "tests/support/odc_nodes.h"

namespace pipewright::event_transfers_test {
namespace {

// Two links of 10 bytes/s.
std::shared_ptr<const Cluster> TwoLinks(double latency_s = 0) {
  return ClusterOf(4, {{"a", 10, latency_s}, {"b", 10, latency_s}},
                   {{0, 1, {0}}, {2, 3, {0}}, {1, 0, {1}}});
}

int AddOver(TrafficSources* sources, std::vector<LinkLoad> loads) {
  return sources->Add({.flows = {.loads = std::move(loads)}});
}

TEST_CASE("shared transfers: on one link they wait in a queue", "[engine]") {
  Network network;
  network.cluster = TwoLinks();
  TrafficSources sources(network, true, std::nullopt);
  const int one = AddOver(&sources, {{0, 1}});
  const int other = AddOver(&sources, {{0, 1}});
  sources.Plan();
  REQUIRE(sources.plan(one).sharing == Sharing::kQueue);
  EventCalls calls;
  SharedTransfers sharing(sources, network, true, &calls.timers);
  REQUIRE(sharing.num_queues() == 1);
  CHECK(sharing.QueueOf(one) == sharing.QueueOf(other));
  sharing.Start(7, one, 20, 0);
  REQUIRE(calls.set.size() == 1);
  CHECK(calls.set[0].kind() == EventKind::kQueueEnd);
  CHECK(calls.set[0].date_s == 2);
  // From here on each gets half: the timer comes too early, and sets the next.
  sharing.Start(9, other, 20, 1);
  double now_s = 0;
  CHECK_FALSE(sharing.TakeEnded(0, calls.set[0].version(), &now_s).has_value());
  REQUIRE(calls.set.size() == 2);
  CHECK(calls.set[1].date_s == 3);
  // A stale one does nothing.
  CHECK_FALSE(sharing.TakeEnded(0, calls.set[0].version(), &now_s).has_value());
  CHECK(calls.set.size() == 2);
  CHECK(sharing.TakeEnded(0, calls.set[1].version(), &now_s) == 7u);
  CHECK(now_s == 3);
  REQUIRE(calls.set.size() == 3);
  CHECK(calls.set[2].date_s == 4);
  CHECK(calls.flows.empty());
}

TEST_CASE("shared transfers: one is timed until another one comes",
          "[engine]") {
  Network network;
  network.cluster = TwoLinks();
  for (const bool time_lone : {true, false}) {
    TrafficSources sources(network, true, std::nullopt);
    const int both = AddOver(&sources, {{0, 1}, {1, 1}});
    const int first = AddOver(&sources, {{0, 1}});
    AddOver(&sources, {{1, 1}});
    sources.Plan();
    REQUIRE(sources.plan(both).sharing == Sharing::kFlow);
    REQUIRE(sources.plan(first).sharing == Sharing::kFlow);
    EventCalls calls;
    SharedTransfers sharing(sources, network, time_lone, &calls.timers);
    sharing.Start(3, both, 50, 1);
    if (!time_lone) {
      CHECK(calls.set.empty());
      REQUIRE(calls.flows.size() == 1);
      CHECK(calls.flows[0].bytes == 50);
      continue;
    }
    CHECK(calls.flows.empty());
    REQUIRE(calls.set.size() == 1);
    CHECK(calls.set[0].kind() == EventKind::kLoneEnd);
    CHECK(calls.set[0].date_s == 6);
    CHECK(sharing.LoneEnd(3, calls.set[0].version()) == 6.0);
    sharing.Start(4, first, 10, 2);
    REQUIRE(calls.flows.size() == 2);
    CHECK(calls.flows[0].transfer == 3);
    CHECK(calls.flows[0].bytes == 40);  // what is left of it
    CHECK(calls.flows[1].transfer == 4);
    CHECK_FALSE(sharing.LoneEnd(3, calls.set[0].version()).has_value());
    // When both have left, the link is as it was.
    sharing.Leave(4, first, 10);
    sharing.Leave(3, both, 50);
    sharing.Start(4, first, 10, 9);
    CHECK(calls.flows.size() == 2);
    CHECK(calls.set.back().date_s == 10);
  }
}

struct Sent {
  explicit Sent(double latency_s)
      : program(Build(latency_s)),
        sources(program.network, true, std::nullopt),
        channels(program, &sources),
        record(program, nullptr, nullptr) {
    sources.Plan();
    transfers.emplace(program, sources, true, &channels, &record,
                      &calls.timers);
    for (size_t index = 0; index < program.channels.size(); ++index) {
      const bool is_down =
          program.channels[index].kind == ChannelKind::kActivation;
      (is_down ? down : up) = static_cast<int32_t>(index);
    }
  }
  static Program Build(double latency_s) {
    const auto schedule = Registered("1f1b", 2, 2);
    LowerOptions options;
    options.costs = CostsOf(
        *schedule, {.forward = 1, .backward_input = 1, .backward_weight = 1});
    options.network = NetworkOf(TwoLinks(latency_s), {0, 1, 2, 3}, 2, 2);
    options.replicas = 2;
    options.hop_bytes = 10;
    options.iterations = 1;
    return Lowered(schedule, options);
  }

  Program program;
  EventCalls calls;
  TrafficSources sources;
  EventChannels channels;
  EventRecord record;
  std::optional<EventTransfers> transfers;
  int32_t down = -1;  // of both replicas over one link
  int32_t up = -1;
};

TEST_CASE("event transfers: what meets nobody has arrived at once",
          "[engine]") {
  Sent sent(0.25);
  const Pass pass = (*sent.program.ranks[1].order)[1];
  REQUIRE(sent.transfers->Send({.replica = 0}, sent.up, pass, 4));
  double arrival_s = 0;
  REQUIRE(sent.channels.Tokens(0, sent.up)
              .Pop(EventChannels::KeyOf(pass, false), &arrival_s));
  CHECK(arrival_s == 4 + 0.25 + 1);
  CHECK(sent.calls.set.empty());
  CHECK(sent.record.ops() == 1);
}

TEST_CASE("event transfers: what may share a link does so behind its latency",
          "[engine]") {
  Sent sent(0.25);
  const Pass pass = (*sent.program.ranks[0].order)[0];
  REQUIRE_FALSE(
      sent.transfers->Send({.replica = 1, .iteration = 2}, sent.down, pass, 4));
  REQUIRE(sent.calls.set.size() == 1);
  CHECK(sent.calls.set[0].kind() == EventKind::kLatencyEnd);
  CHECK(sent.calls.set[0].date_s == 4.25);
  const uint32_t number = sent.calls.set[0].index();
  CHECK_FALSE(sent.transfers->IsTimed((*sent.transfers)[number]));
  sent.transfers->EndLatency(number);
  REQUIRE(sent.calls.set.size() == 2);
  CHECK(sent.calls.set[1].kind() == EventKind::kQueueEnd);
  CHECK(sent.calls.set[1].date_s == 5.25);
  const EventTransfer ended = sent.transfers->End(number);
  CHECK(ended.replica == 1);
  CHECK(ended.index == sent.down);
  CHECK(ended.key == EventChannels::KeyOf(pass, false));
  // The next one takes its number.
  sent.transfers->BeginHeld({.replica = 0}, sent.up, pass, 7);
  CHECK(sent.calls.set.back().kind() == EventKind::kTransferEnd);
  CHECK(sent.calls.set.back().date_s == 7 + 0.25 + 1);
  CHECK(sent.calls.set.back().index() == number);
}

TEST_CASE("copy turns: one at a time through a switch, in the order of coming",
          "[engine]") {
  // Devices 0 and 1 are behind switch 0, device 2 is behind switch 1.
  const auto route = [](int, int, std::vector<LinkId>*) {};
  const auto host = [](int device, std::vector<LinkId>* links) {
    links->push_back(device / 2);
  };
  Program program = Sent::Build(0);
  program.network = NetworkOf(
      std::make_shared<Cluster>("switches", std::vector<Device>(4),
                                std::vector<Link>{{"a", 8, 0}, {"b", 8, 0}},
                                route, host, host),
      {0, 1, 2, 3}, 2, 2);
  const auto copy = [](int device) {
    return EventTransfer{.of = EventTransfer::Of::kCopy,
                         .index = device,
                         .stream = Stream::kD2H,
                         .source = device,
                         .start_s = 1};
  };
  CHECK(CopyTurns(program, true).Take(copy(0)));
  program.copies_in_turn = true;
  CopyTurns alone(program, /*share_links=*/false);
  CHECK(alone.Take(copy(0)));
  CHECK(alone.Take(copy(1)));
  CopyTurns turns(program, true);
  CHECK(turns.Take(copy(0)));
  CHECK_FALSE(turns.Take(copy(1)));
  CHECK(turns.Take(copy(2)));
  CHECK_FALSE(turns.Take(copy(0)));  // behind the one that waits
  const std::vector<EventTransfer> next = turns.End(copy(0), 5);
  REQUIRE(next.size() == 1);
  CHECK(next[0].index == 1);
  CHECK(next[0].start_s == 5);
  CHECK(turns.End(copy(2), 6).empty());
  CHECK(turns.End(copy(1), 9).front().index == 0);
}

TEST_CASE("peer steps: a pull takes step after step", "[engine]") {
  const testing::Nodes nodes = {8, 4};
  const auto schedule = Registered("1f1b", 1, 1);
  LowerOptions options =
      testing::OdcOptions(nodes, nodes.Build(), DataParallel::kOdc, 1);
  options.layers.pulls_apart = true;
  const Program program = Lowered(schedule, options);
  const SideOp* pull = nullptr;
  for (const SideOp& op : program.ranks[0].side_ops) {
    if (op.kind == OpKind::kPull && pull == nullptr) pull = &op;
  }
  REQUIRE(pull != nullptr);
  size_t most = 0;  // peers of a step
  size_t all = 0;
  for (const PeerPlan::Step& step : pull->peers->steps) {
    most = std::max(most, step.apart ? step.peers.size() : 1);
    all += step.apart ? step.peers.size() : 1;
  }
  REQUIRE(most > 1);
  for (const bool share_links : {true, false}) {
    EventCalls calls;
    EventRecord record(program, nullptr, nullptr);
    TrafficSources sources(program.network, share_links, std::nullopt);
    EventChannels channels(program, &sources);
    const SideSources side(program, &sources);
    sources.Plan();
    EventTransfers transfers(program, sources, true, &channels, &record,
                             &calls.timers);
    PeerSteps peers(program, share_links, sources, side, &transfers);
    peers.Begin(3, Stream::kReceive, *pull, 2);
    CHECK(calls.set.front().date_s >= 2);
    // All transfers that have begun end; the last one ends the pull.
    size_t ended = 0;
    bool over = false;
    while (ended < calls.set.size()) {
      REQUIRE_FALSE(over);
      const EventTransfer transfer = transfers[calls.set[ended].index()];
      CHECK(transfer.of == EventTransfer::Of::kPeers);
      CHECK(transfer.index == 3);
      ++ended;
      over = peers.End(3, Stream::kReceive, *pull, 10.0 * ended);
    }
    CHECK(over);
    const size_t last = pull->seconds > 0 ? 1 : 0;
    CHECK(ended == (share_links ? all : pull->peers->steps.size()) + last);
  }
}

// F and a copy to the host beside it.
TEST_CASE("beside events: ends move when something comes and goes",
          "[engine]") {
  auto matrix = std::make_shared<InterferenceMatrix>();
  matrix->entries[0][static_cast<int>(Beside::kD2H)] = {.pass = 1.25,
                                                        .beside = 1.5};
  Program program = Sent::Build(0);
  program.interference = matrix;
  EventCalls calls;
  BesideEvents beside(program, &calls.timers);
  const RankProgram& rank = program.ranks[0];
  beside.StartBlock(0, 0, rank, rank.order->data(), {10, 0});
  REQUIRE(calls.set.size() == 1);
  CHECK(calls.set[0].kind() == EventKind::kBesideEnd);
  CHECK(calls.set[0].date_s == 10);
  const BesideEvents::Owner copy = {BesideEvents::Of::kTransfer, 5};
  beside.Start(copy, 0, 4, Interference::Kind::kD2H, {0}, true);
  REQUIRE(calls.set.size() == 3);
  double pass_s = 0;
  EventCalls::Timer of_copy;
  for (size_t index = 1; index < 3; ++index) {
    const EventCalls::Timer& timer = calls.set[index];
    if (timer.index() == calls.set[0].index()) {
      pass_s = timer.date_s;
    } else {
      of_copy = timer;
    }
  }
  CHECK(pass_s == Approx(12.5));
  CHECK(of_copy.date_s == Approx(6));
  // The first timer of the pass is stale.
  CHECK_FALSE(
      beside.End(calls.set[0].index(), calls.set[0].version()).has_value());
  const auto ended = beside.End(of_copy.index(), of_copy.version());
  REQUIRE(ended.has_value());
  CHECK(ended->owner.of == BesideEvents::Of::kTransfer);
  CHECK(ended->owner.index == 5);
  // 4.8 s of the pass are done at 6.
  CHECK(calls.set.back().date_s == Approx(11.2));
  // What has ended cannot leave once more.
  const size_t before = calls.set.size();
  beside.Leave(copy, 7);
  CHECK(calls.set.size() == before);
  const auto pass =
      beside.End(calls.set.back().index(), calls.set.back().version());
  REQUIRE(pass.has_value());
  CHECK(pass->owner.of == BesideEvents::Of::kBlock);
}

}  // namespace
}  // namespace pipewright::event_transfers_test
