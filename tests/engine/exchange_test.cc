// Exchanges inside passes as traffic: alone they take their time, and where
// groups share cards what their steps take, spelled out one by one.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/cost/device.h"
#include "sim/cost/exchange.h"
#include "sim/engine/fast_engine.h"
#include "sim/engine/fluid_clock.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/program/dp_classes.h"
#include "sim/program/lane_exchanges.h"
#include "sim/program/slow_devices.h"
#include "sim/topology/mapping.h"
#include "tests/support/lowering.h"
#include "tests/support/random_program.h"
#include "tests/support/step_flows.h"

namespace pipewright::exchange_test {
namespace {

constexpr double kCard = 16;  // bytes a second of SmallFabric

std::shared_ptr<const Cluster> Fabric(int nodes, int devices, int cards) {
  return std::make_shared<Cluster>(
      *BuildCluster(SmallFabric(nodes, devices, cards)));
}

Network Placed(std::shared_ptr<const Cluster> cluster, const std::string& order,
               int pp, int dp, int tensor, int contexts = 1) {
  Network network;
  const int devices = cluster->num_devices();
  network.cluster = std::move(cluster);
  network.mapping = std::make_shared<const RankMapping>(
      RankMapping::FromOrder(order, pp, dp, devices, tensor * contexts,
                             contexts)
          .value());
  network.context_parallel = contexts;
  return network;
}

// Options for passes that are all so long, with `exchange` in it, layer after
// layer.
LowerOptions Options(const Schedule& schedule, Network network, double seconds,
                     const PassExchange& exchange, int layers = 1) {
  LowerOptions options;
  options.costs = CostsOf(schedule, {.forward = seconds,
                                     .backward_input = seconds / 2,
                                     .backward_weight = seconds / 2});
  for (StageCosts& stage : options.costs.stages) {
    stage.backward_full_s = seconds;
  }
  options.costs.exchanges.assign(
      schedule.stages(),
      {.layers = layers, .forward = {exchange}, .backward_input = {exchange}});
  options.network = std::move(network);
  options.replicas = options.network.mapping->dp();
  options.hop_bytes = 0.001;
  options.iterations = 1;
  return options;
}

// All seconds from one card at full speed, in one ring over so many nodes.
PassExchange OverCards(double seconds, int members, double latency_s = 0) {
  return {.group = CommGroup::kTensor,
          .members = members,
          .seconds = seconds,
          .latency_s = latency_s,
          .bytes = (seconds - latency_s) * kCard};
}

double Seconds(const Program& program, bool on_simgrid = false) {
  const absl::StatusOr<RunSummary> run =
      on_simgrid ? RunSimgrid(program, {}) : RunOnFluidClock(program, {});
  INFO(run.status());
  REQUIRE(run.ok());
  return run->iteration_s();
}

double FastSeconds(const Program& program) {
  return RunFast(program, {}).value().iteration_s();
}

TEST_CASE("exchanges: alone a pass takes what it takes", "[engine]") {
  // Two ranks share all cards, and take turns.
  const auto schedule =
      Parsed("pp 2 vpp 1 microbatches 1\n0: F0 BW0\n1: F0 BW0");
  for (const int layers : {1, 3, 100}) {
    for (const bool beside : {false, true}) {
      PassExchange exchange = OverCards(3, 4, 0.5);
      exchange.is_beside = beside;
      exchange.compute_s = beside ? 2 : 0;
      LowerOptions options =
          Options(*schedule, Placed(Fabric(4, 2, 1), "pp-tp-dp", 2, 1, 4), 7,
                  exchange, layers);
      options.costs.microbatch_factor = {1.25};
      const Program program = Lowered(schedule, options);
      const double fast_s = FastSeconds(program);
      for (const bool on_simgrid : {false, true}) {
        CHECK(Seconds(program, on_simgrid) == Approx(fast_s).epsilon(1e-11));
      }
      // It has been run in pieces.
      options.costs.exchanges.clear();
      const int64_t plain =
          RunOnFluidClock(Lowered(schedule, options), {})->timers;
      CHECK(RunOnFluidClock(program, {})->timers >=
            plain + 4 * std::min(layers, 8));
    }
  }
}

TEST_CASE("exchanges: links that one rank has alone cost no events",
          "[engine]") {
  const auto schedule =
      Parsed("pp 2 vpp 1 microbatches 2\n0: F0 F1 BW0 BW1\n1: F0 BW0 F1 BW1");
  // A node each, with a card for each device: hops do not cross NVLink.
  LowerOptions options =
      Options(*schedule, Placed(Fabric(2, 4, 4), "dp-pp", 2, 1, 4), 7,
              OverCards(3, 4), 5);
  const absl::StatusOr<RunSummary> run =
      RunOnFluidClock(Lowered(schedule, options), {});
  options.costs.exchanges.clear();
  CHECK(run->timers == RunOnFluidClock(Lowered(schedule, options), {})->timers);
}

// Two replicas, one device of each on every node, one card a node.
TEST_CASE("exchanges: two groups on the same cards share them", "[engine]") {
  const auto schedule = Parsed("pp 1 vpp 1 microbatches 1\n0: F0 BW0");
  const Network network = Placed(Fabric(2, 2, 1), "dp-tp-pp", 1, 2, 2);
  const auto seconds = [&](const PassExchange& exchange) {
    const Program program =
        Lowered(schedule, Options(*schedule, network, 2, exchange));
    const double fluid_s = Seconds(program);
    CHECK(Seconds(program, true) == Approx(fluid_s).epsilon(1e-9));
    CHECK(FastSeconds(program) == 4);
    return fluid_s;
  };
  // A second of each pass: both together take two.
  CHECK(seconds(OverCards(1, 2)) == Approx(2 * (1 + 2)));
  // Half of it is latency.
  CHECK(seconds(OverCards(1, 2, 0.5)) == Approx(2 * (1 + 0.5 + 1)));
  // An estimate that leaves the other group its half of the cards.
  PassExchange half = OverCards(1, 2);
  half.bytes /= 2;
  CHECK(seconds(half) == Approx(4));
  // Beside computation that takes as long as both do, or not.
  PassExchange beside = OverCards(0.5, 2);
  beside.is_beside = true;
  beside.compute_s = 1;
  CHECK(seconds(beside) == Approx(4));
  beside.bytes *= 1.5;
  beside.seconds *= 1.5;
  CHECK(seconds(beside) == Approx(2 * (1 + 1.5)));
}

// A group's layers one after the other, each computation and an all-gather
// whose every step is a flow from every member to the next one.
class SteppedGroup {
 public:
  SteppedGroup(const Cluster& cluster, std::vector<int> devices,
               std::vector<StepFlow>* steps)
      : cluster_(cluster), devices_(std::move(devices)), steps_(*steps) {}

  void AddLayer(double compute_s, double bytes) {
    const size_t count = devices_.size();
    for (size_t step = 0; step + 1 < count; ++step) {
      std::vector<int> sent(count);
      for (size_t at = 0; at < count; ++at) {
        StepFlow flow;
        flow.links = cluster_.Route(devices_[at], devices_[(at + 1) % count]);
        flow.bytes = bytes / static_cast<double>(count);
        for (const LinkId link : flow.links) {
          flow.latency_s += cluster_.links()[link].latency_s;
        }
        if (step == 0) flow.latency_s += compute_s;
        if (!last_.empty()) {
          flow.after = {last_[at], last_[(at + count - 1) % count]};
        }
        sent[at] = static_cast<int>(steps_.size());
        steps_.push_back(std::move(flow));
      }
      last_ = std::move(sent);
    }
  }

 private:
  const Cluster& cluster_;
  const std::vector<int> devices_;
  std::vector<StepFlow>& steps_;
  std::vector<int> last_;  // [place] its flow of the step before
};

// One microbatch of two replicas, of which the second does everything `slower`
// times as slow with as many times the bytes.
void CheckAgainstSteps(int nodes, int layers, double slower, double compute_s,
                       double bytes) {
  const auto cluster = Fabric(nodes, 2, 1);
  const double members = nodes;
  const double latency_s = 2 * 0.25;
  const double gather_s = (members - 1) * (latency_s + bytes / members / kCard);
  const double pass_s = layers * (compute_s + gather_s);
  PassExchange exchange =
      OverCards(layers * gather_s, nodes, layers * (members - 1) * latency_s);
  const auto schedule = Parsed("pp 1 vpp 1 microbatches 1\n0: F0 BW0");
  const Network network = Placed(cluster, "dp-tp-pp", 1, 2, nodes);
  LowerOptions options = Options(*schedule, network, pass_s, exchange, layers);
  std::vector<Program> classes = {Lowered(schedule, options)};
  options.costs.microbatch_factor = {slower};
  classes.push_back(Lowered(schedule, options));
  const Program program = JoinClasses(std::move(classes), {0, 1}).value();
  std::vector<StepFlow> steps;
  for (const int replica : {0, 1}) {
    std::vector<int> devices;
    for (int node = 0; node < nodes; ++node) {
      devices.push_back(2 * node + replica);
    }
    SteppedGroup group(*cluster, std::move(devices), &steps);
    const double factor = replica == 0 ? 1 : slower;
    for (int layer = 0; layer < 2 * layers; ++layer) {
      // Latencies are not slower: what a factor adds to them is computation.
      group.AddLayer(
          factor * compute_s + (factor - 1) * (members - 1) * latency_s,
          factor * bytes);
    }
  }
  const double stepped_s = LastEnd(*cluster, steps);
  const double alone_s = 2 * pass_s * slower;
  const double traffic_s = Seconds(program);
  INFO(nodes << " nodes, " << layers << " layers, slower " << slower
             << ": alone " << alone_s << ", steps " << stepped_s
             << ", as traffic " << traffic_s);
  CHECK(stepped_s > 1.02 * alone_s);
  CHECK(traffic_s == Approx(stepped_s).epsilon(0.02));
}

TEST_CASE("exchanges: two groups that share all cards are near their steps",
          "[engine]") {
  for (const int nodes : {16, 64}) {
    for (const double slower : {1.0, 1.15, 1.3}) {
      // Little computation, and as much as exchanges.
      CheckAgainstSteps(nodes, 8, slower, nodes * 0.1, nodes * 64.0);
      CheckAgainstSteps(nodes, 8, slower, nodes * 4.0, nodes * 64.0);
    }
  }
  CheckAgainstSteps(16, 24, 1.1, 64, 1024);
}

// Groups of experts over `nodes` nodes, each with `of_node` devices on every
// one of them; devices of the same place of each group share a card.
struct AllToAll {
  int nodes = 2;
  int of_node = 8;
  int groups = 1;
  int layers = 4;
  double slower = 1;  // the second group, with as many times the bytes
  double compute_s = 1;
  double buffer = 1024;  // bytes that a device sends in a layer, own ones too

  int members() const { return nodes * of_node; }
  // Member `member` of `group`; also the device of this replica.
  int DeviceOf(int group, int member) const {
    return member / of_node * of_node * groups + member % of_node * groups +
           group;
  }
  std::shared_ptr<const Cluster> OnCluster() const {
    return Fabric(nodes, of_node * groups, of_node);
  }
};

// By the cost model, with a card for each device.
// What an exchange of experts reaches of its cards (sim/cost/exchange.cc).
constexpr double kReached = 0.87;

PassExchange Estimated(const AllToAll& of) {
  AnalyticOptions options;
  options.device = FindDevice("h100").value();
  options.device.collective_sustained = 1;
  options.network = {.devices_per_node = of.of_node,
                     .nvlink_bytes_per_s = 64,
                     .nic_bytes_per_s = kCard / kReached};
  return ExchangeOf(options, {},
                    {.kind = CommKind::kAllToAll,
                     .group = CommGroup::kExpert,
                     .members = of.members(),
                     .bytes = of.buffer});
}

// Passes of `layers` layers, each computation and one exchange. `bytes`: what
// is wrong with the traffic, as a factor.
double AsTraffic(const AllToAll& of, bool on_simgrid, double bytes) {
  const auto schedule = Parsed("pp 1 vpp 1 microbatches 1\n0: F0 BW0");
  std::vector<int> devices;
  for (int group = 0; group < of.groups; ++group) {
    for (int member = 0; member < of.members(); ++member) {
      devices.push_back(of.DeviceOf(group, member));
    }
  }
  const int replicas = static_cast<int>(devices.size());
  PassExchange exchange = Estimated(of);
  const double pass_s = of.layers * (of.compute_s + exchange.seconds);
  exchange.seconds *= of.layers;
  exchange.latency_s *= of.layers;
  exchange.bytes *= of.layers * bytes;
  LowerOptions options =
      Options(*schedule, NetworkOf(of.OnCluster(), devices, 1, replicas),
              pass_s, exchange, of.layers);
  std::vector<Program> classes = {Lowered(schedule, options)};
  options.costs.microbatch_factor = {of.slower};
  classes.push_back(Lowered(schedule, options));
  std::vector<int> class_of(replicas, 0);
  for (int replica = of.members(); replica < replicas; ++replica) {
    class_of[replica] = 1;
  }
  if (of.groups == 1) return Seconds(classes[0], on_simgrid);
  return Seconds(JoinClasses(std::move(classes), class_of).value(), on_simgrid);
}

// Every message from one member to another is a flow of its own; a member goes
// on when all that it sends and all that it is sent has arrived.
double PairByPair(const AllToAll& of) {
  const auto cluster = of.OnCluster();
  std::vector<StepFlow> flows;
  for (int group = 0; group < of.groups; ++group) {
    const double factor = group == 0 ? 1 : of.slower;
    std::vector<std::vector<int>> before(of.members());
    for (int layer = 0; layer < 2 * of.layers; ++layer) {
      std::vector<std::vector<int>> own(of.members());
      for (int from = 0; from < of.members(); ++from) {
        for (int to = 0; to < of.members(); ++to) {
          if (from == to) continue;
          StepFlow flow;
          flow.links =
              cluster->Route(of.DeviceOf(group, from), of.DeviceOf(group, to));
          flow.bytes = factor * of.buffer / of.members();
          flow.latency_s = factor * of.compute_s;
          flow.after = before[from];
          own[from].push_back(static_cast<int>(flows.size()));
          own[to].push_back(static_cast<int>(flows.size()));
          flows.push_back(std::move(flow));
        }
      }
      before = std::move(own);
    }
  }
  return LastEnd(*cluster, flows);
}

TEST_CASE("exchanges: all to all is near its messages pair by pair",
          "[engine]") {
  for (const auto& [nodes, of_node] :
       {std::pair(2, 8), std::pair(4, 4), std::pair(2, 4), std::pair(8, 1)}) {
    AllToAll of = {.nodes = nodes, .of_node = of_node};
    INFO(nodes << " nodes, " << of_node << " devices of a group on each");
    // Alone, as it is estimated.
    const double alone_s = PairByPair(of);
    CHECK(AsTraffic(of, false, 1) == Approx(alone_s).epsilon(0.02));
    AllToAll half = of;
    half.buffer /= 2;
    CHECK(AsTraffic(half, false, 1) < 0.9 * alone_s);
    // Two groups on all cards.
    of.groups = 2;
    for (const double slower : {1.0, 1.15, 1.3}) {
      for (const double compute_s : {2.0, 40.0}) {
        of.slower = slower;
        of.compute_s = compute_s;
        const double pairs_s = PairByPair(of);
        INFO("slower " << slower << ", computing " << compute_s);
        CHECK(AsTraffic(of, false, 1) == Approx(pairs_s).epsilon(0.02));
        CHECK(pairs_s > 1.02 * slower * alone_s);
        // Half of the bytes on the links would be noticed.
        CHECK(AsTraffic(of, false, 0.5) < 0.95 * pairs_s);
      }
    }
    of.slower = 1;
    CHECK(AsTraffic(of, true, 1) == Approx(PairByPair(of)).epsilon(0.02));
  }
}

TEST_CASE("exchanges: other traffic slows them, and they slow it", "[engine]") {
  // The hop of two ranks, each on one device of both nodes.
  const auto schedule =
      Parsed("pp 2 vpp 1 microbatches 2\n0: F0 F1 BW0 BW1\n1: F0 BW0 F1 BW1");
  LowerOptions options =
      Options(*schedule, Placed(Fabric(4, 2, 1), "tp-pp-dp", 2, 1, 4), 4,
              OverCards(1, 4), 4);
  options.hop_bytes = 24;
  const Program program = Lowered(schedule, options);
  const double fast_s = FastSeconds(program);
  const double shared_s = Seconds(program);
  CHECK(shared_s > fast_s + 0.1);
  CHECK(Seconds(program, true) == Approx(shared_s).epsilon(1e-9));
  // No exchanges, no difference.
  options.costs.exchanges.clear();
  CHECK(Seconds(Lowered(schedule, options)) < shared_s - 0.1);
}

// Two replicas on the same cards, one of them with a slow device: half of a
// pass of two seconds is an exchange.
TEST_CASE("exchanges: a slow device sends no more bytes", "[engine]") {
  const auto schedule = Parsed("pp 1 vpp 1 microbatches 1\n0: F0 BW0");
  Program program = Lowered(
      schedule, Options(*schedule, Placed(Fabric(2, 2, 1), "dp-tp-pp", 1, 2, 2),
                        2, OverCards(1, 2)));
  ScaleDevices({1, 3}, {}, &program);
  // Three seconds of computation, one of the exchange, twice.
  CHECK(FastSeconds(program) == Approx(8));
  for (const bool on_simgrid : {false, true}) {
    // The other one computes from 0 to 1 and 2 to 3, and sends behind it: they
    // meet from 3 to 5, each at half the pace.
    CHECK(Seconds(program, on_simgrid) == Approx(9).epsilon(1e-9));
  }
}

TEST_CASE("exchanges: times scale, and names of devices do not matter",
          "[engine]") {
  const auto schedule =
      Parsed("pp 2 vpp 1 microbatches 2\n0: F0 F1 BW0 BW1\n1: F0 BW0 F1 BW1");
  const auto seconds = [&](double faster, std::vector<int> devices) {
    ShapeParams shape = SmallFabric(8, 2, 1);
    for (LinkClass* link : {&shape.nvlink, &shape.nic, &shape.pcie}) {
      link->bytes_per_s *= faster;
      link->latency_s /= faster;
    }
    PassExchange exchange = OverCards(1.5, 4, 0.25);
    exchange.seconds /= faster;
    exchange.latency_s /= faster;
    Network network = NetworkOf(std::make_shared<Cluster>(*BuildCluster(shape)),
                                std::move(devices), 2, 2, 4);
    LowerOptions options =
        Options(*schedule, std::move(network), 4 / faster, exchange, 4);
    options.hop_bytes = 24;
    options.data_parallel = DataParallel::kDdp;
    options.gradient_bytes = {64, 64};
    const Program program = Lowered(schedule, options);
    CHECK(Seconds(program) > 1.01 * FastSeconds(program));
    return Seconds(program);
  };
  const double usual_s = seconds(1, {0, 4, 8, 12});
  CHECK(seconds(2, {0, 4, 8, 12}) == Approx(usual_s / 2).epsilon(1e-9));
  CHECK(seconds(1, {12, 0, 4, 8}) == Approx(usual_s).epsilon(1e-9));
  CHECK(seconds(1, {8, 12, 0, 4}) == Approx(usual_s).epsilon(1e-9));
}

TEST_CASE("exchanges: what groups put on the links", "[engine]") {
  const auto schedule = Parsed("pp 1 vpp 1 microbatches 1\n0: F0 BW0");
  // Four replicas of tensor and context parallelism 2 on four nodes of four.
  const auto cluster = Fabric(4, 4, 1);
  LowerOptions options = Options(
      *schedule, Placed(cluster, "dp-pp", 1, 4, 2, 2), 1, OverCards(0.5, 2));
  const Program program = Lowered(schedule, options);
  const auto flows_on = [&](const PassExchange& exchange, int replica,
                            const std::string& link) {
    double flows = 0;
    for (const LinkLoad& load :
         FlowsOfExchange(program, exchange, replica, 0).loads) {
      if (cluster->links()[load.link].name == link) flows += load.flows;
    }
    return flows;
  };
  const PassExchange tensor = {.group = CommGroup::kTensor, .members = 2};
  const PassExchange context = {.group = CommGroup::kContext, .members = 2};
  // Both rings of either kind: every device sends to one.
  for (const PassExchange& exchange : {tensor, context}) {
    for (const char* device : {"gpu0", "gpu1", "gpu2", "gpu3"}) {
      CHECK(flows_on(exchange, 1,
                     std::string("node1/") + device + "/nvlink-up") == 1);
    }
    CHECK(flows_on(exchange, 1, "node1/nic0/up") == 0);
  }
  // Experts of four parts of contexts: replicas 2 and 3. Each of four devices
  // sends to one neighbour but one, and to two over the cards.
  const PassExchange experts = {
      .group = CommGroup::kExpert, .members = 4, .to_all = true};
  CHECK(flows_on(experts, 2, "node2/gpu0/nvlink-up") == 1);
  CHECK(flows_on(experts, 2, "node2/nic0/up") == 8);
  CHECK(flows_on(experts, 2, "node3/nic0/down") == 8);
  CHECK(flows_on(experts, 2, "node1/nic0/down") == 0);
  // More to those of the own node.
  PassExchange inside = experts;
  inside.inside = 3.5;
  CHECK(flows_on(inside, 2, "node2/gpu0/nvlink-up") == 3.5);
  CHECK(flows_on(inside, 2, "node2/nic0/up") == 8);
  CHECK(FirstOfExchange(program, 4, 3) == 2);
  CHECK(FirstOfExchange(program, 1, 3) == 3);
  // Members that are not the run's are on no link.
  CHECK(FlowsOfExchange(program, {.members = 4}, 0, 0).loads.empty());
}

}  // namespace
}  // namespace pipewright::exchange_test
