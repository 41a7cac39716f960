// What pulls, pushes and rings put on the links of nodes, and pulls that are
// flows of their own against those that are one activity.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/cost/jitter.h"
#include "sim/engine/fast_engine.h"
#include "sim/engine/fluid_clock.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/program/dp_classes.h"
#include "sim/program/network_time.h"
#include "sim/trace/trace.h"
#include "tests/support/lowering.h"

namespace pipewright {
namespace {

// Every device has a link of 8 bytes/s to its node's switch and a card of 1
// byte/s to the others, both ways.
struct Nodes {
  int devices;
  int of_node;

  int Up(int device) const { return device; }
  int Down(int device) const { return devices + device; }
  int Out(int device) const { return 2 * devices + device; }
  int In(int device) const { return 3 * devices + device; }

  Network Build() const {
    std::vector<Device> all;
    std::vector<Link> links(4 * devices);
    for (int device = 0; device < devices; ++device) {
      all.push_back({absl::StrCat("gpu", device), device / of_node});
      links[Up(device)] = {absl::StrCat("up", device), 8, 0};
      links[Down(device)] = {absl::StrCat("down", device), 8, 0};
      links[Out(device)] = {absl::StrCat("out", device), 1, 0};
      links[In(device)] = {absl::StrCat("in", device), 1, 0};
    }
    const Nodes nodes = *this;
    const auto route = [nodes](int from, int to, std::vector<LinkId>* used) {
      if (from == to) return;
      const bool near = from / nodes.of_node == to / nodes.of_node;
      used->push_back(near ? nodes.Up(from) : nodes.Out(from));
      used->push_back(near ? nodes.Down(to) : nodes.In(to));
    };
    const auto none = [](int, std::vector<LinkId>*) {};
    auto cluster = std::make_shared<const Cluster>(
        "nodes", std::move(all), std::move(links), route, none, none);
    std::vector<int> places(devices);
    std::iota(places.begin(), places.end(), 0);
    return NetworkOf(std::move(cluster), places, 1, devices);
  }
};

LowerOptions OptionsOf(const Nodes& nodes, const Network& network,
                       DataParallel mode, int layers) {
  LowerOptions options;
  options.costs = PassCosts::Uniform(1, 1,
                                     {.forward_s = 1.0 * layers,
                                      .backward_input_s = 1.0 * layers,
                                      .backward_weight_s = 1.0 * layers});
  options.network = network;
  options.replicas = nodes.devices;
  options.data_parallel = mode;
  options.shard_blocks = ShardBlocks::kLayer;
  options.layers.stages = {std::vector<LayerShare>(layers)};
  options.layers.poll_s = 0;
  options.parameter_bytes = {48.0 * layers};
  options.gradient_bytes = {48.0 * layers};
  options.iterations = 1;
  return options;
}

const SideOp& FirstOf(const Program& program, OpKind kind) {
  for (const SideOp& op : program.ranks[0].side_ops) {
    if (op.kind == kind) return op;
  }
  FAIL("no such operation");
  return program.ranks[0].side_ops[0];
}

// What all cards of a node take in while all its devices gather a layer once.
double IngressOf(const Nodes& nodes, const Program& program, int node) {
  double bytes = 0;
  const auto add = [&](const std::vector<LinkLoad>& loads, double each) {
    for (const LinkLoad& load : loads) {
      for (int place = 0; place < nodes.of_node; ++place) {
        if (load.link == nodes.In(node * nodes.of_node + place)) {
          bytes += load.flows * each;
        }
      }
    }
  };
  for (const SideOp& op : program.ranks[0].side_ops) {
    if (op.kind == OpKind::kAllGather) {
      const CollectivePlan plan = PlanCollective(
          program, op, GroupMembers(program, program.groups[op.group], 0));
      add(plan.loads, plan.bytes_per_edge);
      return bytes;
    }
    if (op.kind != OpKind::kPull) continue;
    const auto steps = static_cast<int>(op.peers->steps.size());
    for (int device = 0; device < nodes.devices; ++device) {
      for (int step = 0; step < steps; ++step) {
        add(PeerFlows(program, op, step, -1, device, 0).loads, op.bytes);
      }
    }
    return bytes;
  }
  FAIL("no gather");
  return 0;
}

TEST_CASE("odc: a node takes in what its devices pull, a ring crosses it once",
          "[engine]") {
  for (const auto& [devices, of_node] :
       std::vector<std::pair<int, int>>{{8, 4}, {16, 8}, {12, 2}, {6, 1}}) {
    const Nodes nodes = {devices, of_node};
    const Network network = nodes.Build();
    const auto schedule = Registered("1f1b", 1, 1);
    const double bytes = 48;
    INFO(devices << " devices, " << of_node << " a node");
    for (const bool apart : {false, true}) {
      LowerOptions odc = OptionsOf(nodes, network, DataParallel::kOdc, 1);
      odc.layers.pulls_apart = apart;
      CHECK(IngressOf(nodes, Lowered(schedule, odc), 1) ==
            Approx(of_node * bytes * (devices - of_node) / devices));
    }
    const LowerOptions fsdp = OptionsOf(nodes, network, DataParallel::kFsdp, 1);
    CHECK(IngressOf(nodes, Lowered(schedule, fsdp), 1) ==
          Approx(bytes * (devices - 1) / devices));
  }
}

TEST_CASE("odc: hpz and hsdp pull inside the node", "[engine]") {
  const Nodes nodes = {8, 4};
  const Network network = nodes.Build();
  const auto schedule = Registered("1f1b", 1, 2);
  LowerOptions options = OptionsOf(nodes, network, DataParallel::kOdc, 2);
  const auto far = [&](const Program& program, OpKind kind) {
    const SideOp& op = FirstOf(program, kind);
    double flows = 0;
    for (int step = 0; step < static_cast<int>(op.peers->steps.size());
         ++step) {
      for (const LinkLoad& load :
           PeerFlows(program, op, step, -1, 3, 0).loads) {
        if (load.link >= nodes.Out(0)) flows += load.flows;
      }
    }
    return flows;
  };
  const Program plain = Lowered(schedule, options);
  CHECK(far(plain, OpKind::kPull) > 0);
  options.layers.near_group = 4;
  const Program hpz = Lowered(schedule, options);
  CHECK(far(hpz, OpKind::kPull) == 0);
  CHECK(far(hpz, OpKind::kPush) > 0);  // to the owner of all
  options.layers.near_group = 0;
  options.layers.shard_group = 4;
  const Program hsdp = Lowered(schedule, options);
  CHECK(far(hsdp, OpKind::kPull) == 0);
  CHECK(far(hsdp, OpKind::kPush) == 0);
}

// The same by the clock of an engine: all cards of a node are one of 1 byte/s,
// and nothing else takes time, so that a gather lasts as many seconds as the
// card takes in bytes.
Network OneCard(int devices, int of_node) {
  const int nodes = devices / of_node;
  std::vector<Device> all;
  std::vector<Link> links;
  for (int device = 0; device < devices; ++device) {
    all.push_back({absl::StrCat("gpu", device), device / of_node});
  }
  for (int node = 0; node < nodes; ++node) {
    links.push_back({absl::StrCat("card", node), 1, 0});
  }
  const auto route = [of_node](int from, int to, std::vector<LinkId>* used) {
    if (from / of_node != to / of_node) used->push_back(to / of_node);
  };
  const auto none = [](int, std::vector<LinkId>*) {};
  auto cluster = std::make_shared<const Cluster>(
      "one card a node", std::move(all), std::move(links), route, none, none);
  std::vector<int> places(devices);
  std::iota(places.begin(), places.end(), 0);
  return NetworkOf(std::move(cluster), places, 1, devices);
}

TEST_CASE("odc: ingress of a node by the engines' clocks", "[engine]") {
  const auto schedule = Registered("1f1b", 1, 1);
  constexpr double kBytes = 48;
  for (const auto& [devices, of_node] :
       std::vector<std::pair<int, int>>{{8, 4}, {16, 8}, {12, 2}}) {
    INFO(devices << " devices, " << of_node << " a node");
    const Network network = OneCard(devices, of_node);
    const Nodes nodes = {devices, of_node};
    for (const bool ring : {false, true}) {
      LowerOptions options = OptionsOf(
          nodes, network, ring ? DataParallel::kFsdp : DataParallel::kOdc, 1);
      options.gradient_bytes = {0};
      const Program program = Lowered(schedule, options);
      for (const auto run : {&RunOnFluidClock, &RunSimgrid}) {
        FullTrace trace;
        EngineOptions traced;
        traced.trace = &trace;
        const auto summary = (*run)(program, traced);
        INFO(summary.status());
        REQUIRE(summary.ok());
        // The first gather, of the forward.
        double start_s = 1e9;
        double end_s = 0;
        for (const TraceOp& op : trace.ops()) {
          const bool gathers =
              op.kind == OpKind::kPull || op.kind == OpKind::kAllGather;
          if (!gathers || op.start_s > 0) continue;
          start_s = std::min(start_s, op.start_s);
          end_s = std::max(end_s, op.end_s);
        }
        CHECK(start_s == 0);
        const double expected =
            ring ? kBytes * (devices - 1) / devices
                 : of_node * kBytes * (devices - of_node) / devices;
        CHECK(end_s == Approx(expected).epsilon(1e-9));
      }
    }
  }
}

// What the cards of each node take in over a whole minibatch with classes of
// their own: pulls by the trace, each with its devices' routes spelled out.
TEST_CASE("odc: ingress of a minibatch by the trace of its pulls", "[engine]") {
  const Nodes nodes = {8, 4};
  const Network network = nodes.Build();
  constexpr int kLayers = 3;
  std::vector<Program> classes;
  std::vector<int> class_of_replica;
  std::vector<int> microbatches;
  for (int device = 0; device < nodes.devices; ++device) {
    microbatches.push_back(1 + device % 3);
    classes.push_back(
        Lowered(Registered("1f1b", 1, microbatches.back()),
                OptionsOf(nodes, network, DataParallel::kOdc, kLayers)));
    class_of_replica.push_back(device);
  }
  const auto joined = JoinClasses(std::move(classes), class_of_replica);
  REQUIRE(joined.ok());
  FullTrace trace;
  EngineOptions traced;
  traced.trace = &trace;
  REQUIRE(RunSimgrid(*joined, traced).ok());
  std::vector<double> taken(2, 0);   // [node] from the other one, by pulls
  std::vector<double> pushed(2, 0);  // the same by pushes
  std::vector<int> requests(nodes.devices, 0);
  for (const TraceOp& op : trace.ops()) {
    if (op.kind != OpKind::kPull && op.kind != OpKind::kPush) continue;
    const SideOp& side =
        joined->OfReplica(op.replica).ranks[0].side_ops[op.side_op];
    for (int other = 0; other < nodes.devices; ++other) {
      const bool far = other / nodes.of_node != op.replica / nodes.of_node;
      if (op.kind == OpKind::kPull && far) {
        taken[op.replica / nodes.of_node] += side.bytes;
      } else if (op.kind == OpKind::kPush) {
        if (far) pushed[other / nodes.of_node] += side.bytes;
        if (other != op.replica) ++requests[other];
      }
    }
  }
  // 48 bytes a layer, of which an eighth comes from each owner; two gathers
  // and a push of each of 3 layers a microbatch.
  for (int node = 0; node < 2; ++node) {
    double mine = 0;
    double theirs = 0;
    for (int device = 0; device < nodes.devices; ++device) {
      const bool own = device / nodes.of_node == node;
      (own ? mine : theirs) += microbatches[device];
    }
    CHECK(taken[node] == Approx(2 * kLayers * mine * 48 * 4 / 8));
    CHECK(pushed[node] == Approx(kLayers * theirs * 48 * 4 / 8));
  }
  // An owner adds what all others have asked it to.
  const int all = std::accumulate(microbatches.begin(), microbatches.end(), 0);
  for (int device = 0; device < nodes.devices; ++device) {
    CHECK(requests[device] == kLayers * (all - microbatches[device]));
  }
}

// What all devices take in is what all give: (D - 1) layers.
TEST_CASE("odc: every byte is pulled once from its owner", "[engine]") {
  const Nodes nodes = {12, 4};
  const Network network = nodes.Build();
  for (const bool apart : {false, true}) {
    LowerOptions options = OptionsOf(nodes, network, DataParallel::kOdc, 1);
    options.layers.pulls_apart = apart;
    const Program program = Lowered(Registered("1f1b", 1, 1), options);
    const SideOp& op = FirstOf(program, OpKind::kPull);
    std::vector<double> given(nodes.devices, 0);
    for (int device = 0; device < nodes.devices; ++device) {
      std::vector<int> met(nodes.devices, 0);
      for (const PeerPlan::Step& step : op.peers->steps) {
        for (const PeerPlan::Peer& peer : step.peers) {
          const int other = op.peers->ReplicaOf(peer, device, nodes.devices);
          ++met[other];
          given[other] += op.bytes;
        }
      }
      CHECK(met[device] == 0);
      CHECK(std::accumulate(met.begin(), met.end(), 0) == 11);
      CHECK(*std::max_element(met.begin(), met.end()) == 1);
    }
    for (const double bytes : given) CHECK(bytes == Approx(48.0 * 11 / 12));
  }
}

// Devices whose microbatches differ in number and length, a class each.
Program Drifting(const Nodes& nodes, bool apart, unsigned seed, int layers,
                 double work = 1) {
  const Network network = nodes.Build();
  std::mt19937 random(seed);
  std::vector<Program> classes;
  std::vector<int> class_of_replica;
  for (int device = 0; device < nodes.devices; ++device) {
    const int microbatches = 1 + static_cast<int>(random() % 3);
    LowerOptions options =
        OptionsOf(nodes, network, DataParallel::kOdc, layers);
    options.layers.pulls_apart = apart;
    for (int m = 0; m < microbatches; ++m) {
      options.costs.microbatch_factor.push_back(
          work * (20 + static_cast<double>(random() % 4000) / 100));
    }
    classes.push_back(Lowered(Registered("1f1b", 1, microbatches), options));
    class_of_replica.push_back(device);
  }
  absl::StatusOr<Program> joined =
      JoinClasses(std::move(classes), std::move(class_of_replica));
  INFO(joined.status());
  REQUIRE(joined.ok());
  return *std::move(joined);
}

TEST_CASE("odc: a gather as one activity is near one of many flows",
          "[engine]") {
  const Nodes nodes = {16, 4};
  // With work 1 a gather takes as long as a layer and is partly exposed.
  for (const auto& [work, tolerance] :
       std::vector<std::pair<double, double>>{{1, 0.05}, {4, 0.02}}) {
    for (const unsigned seed : {1u, 2u, 3u}) {
      const auto apart = RunOnFluidClock(Drifting(nodes, true, seed, 4, work),
                                         EngineOptions());
      const auto together = RunOnFluidClock(
          Drifting(nodes, false, seed, 4, work), EngineOptions());
      INFO(apart.status() << " " << together.status());
      REQUIRE((apart.ok() && together.ok()));
      INFO("work " << work << " seed " << seed);
      CHECK(together->iteration_end_s[0] ==
            Approx(apart->iteration_end_s[0]).epsilon(tolerance));
    }
  }
}

// At this size too, with noise of 5 % on every pass. Gathers hide behind the
// layers before them where those take 20 to 60 times 4 s.
TEST_CASE("odc: of 64 devices a gather as one activity is one of many flows",
          "[engine]") {
  const Nodes nodes = {64, 8};
  auto noise = std::make_shared<Jitter>();
  noise->sigma = 0.05;
  for (const unsigned seed : {1u, 2u, 3u}) {
    noise->seed = seed;
    const auto end_s = [&](bool apart) {
      Program program = Drifting(nodes, apart, seed, 2, 4);
      program.jitter = std::make_shared<const Jitter>(*noise);
      const auto summary = RunOnFluidClock(program, EngineOptions());
      INFO(summary.status());
      REQUIRE(summary.ok());
      return summary->iteration_end_s[0];
    };
    INFO("seed " << seed);
    CHECK(end_s(false) == Approx(end_s(true)).epsilon(0.02));
  }
}

TEST_CASE("odc: 64 devices with 32 layers run on fast", "[engine]") {
  const auto summary = RunFast(Drifting({64, 8}, false, 4, 32), {});
  INFO(summary.status());
  REQUIRE(summary.ok());
  CHECK(summary->row_of_replica.size() == 64);
}

TEST_CASE("odc: owners add what clients push, and look at times", "[engine]") {
  const Nodes nodes = {4, 4};
  const Network network = nodes.Build();
  LowerOptions options = OptionsOf(nodes, network, DataParallel::kOdc, 1);
  const auto schedule = Registered("1f1b", 1, 1);
  const auto time = [&] {
    const auto summary = RunFast(Lowered(schedule, options), {});
    REQUIRE(summary.ok());
    return summary->iteration_end_s[0];
  };
  const double free_s = time();
  options.layers.poll_s = 0.5;
  CHECK(time() == Approx(free_s + 0.25));
  options.layers.push_buffer_bytes = 5;  // 12 bytes to each owner: 3 rounds
  CHECK(time() == Approx(free_s + 0.75));
  // An owner adds its 12 bytes of one client in 3/4 of a second, for four
  // clients at once.
  options.layers.adds_bytes_per_s = 16;
  CHECK(time() == Approx(free_s + 0.75 + 3));
}

// By hand: four clients push at the same time, and each owner has four shares
// of 0.75 s to add, one after the other; who pushes 1 s later waits for nobody.
TEST_CASE("odc: an owner adds for one client after the other", "[engine]") {
  const Nodes nodes = {4, 4};
  const Network network = nodes.Build();
  // [engine][replica] the end of its push.
  const auto ends = [&](const std::vector<double>& factors,
                        double first_poll_s = 0) {
    std::vector<Program> classes;
    std::vector<int> class_of_replica;
    for (const double factor : factors) {
      LowerOptions options = OptionsOf(nodes, network, DataParallel::kOdc, 1);
      options.layers.adds_bytes_per_s = 16;
      options.parameter_bytes = {0};
      options.costs.microbatch_factor = {factor};
      if (classes.empty()) options.layers.poll_s = first_poll_s;
      classes.push_back(Lowered(Registered("1f1b", 1, 1), options));
      class_of_replica.push_back(static_cast<int>(classes.size()) - 1);
    }
    const auto joined = JoinClasses(std::move(classes), class_of_replica);
    REQUIRE(joined.ok());
    std::vector<std::vector<double>> pushed;
    for (const auto run : {&RunOnFluidClock, &RunSimgrid}) {
      FullTrace trace;
      EngineOptions traced;
      traced.trace = &trace;
      REQUIRE((*run)(*joined, traced).ok());
      std::vector<double>& own = pushed.emplace_back(4);
      for (const TraceOp& op : trace.ops()) {
        if (op.kind == OpKind::kPush) own[op.replica] = op.end_s;
      }
    }
    return pushed;
  };
  // Passes take 3 s; 36 bytes go up and come down a link of 8 bytes/s. Who is
  // first is not said.
  for (std::vector<double>& together : ends({1, 1, 1, 1})) {
    std::sort(together.begin(), together.end());
    for (int client = 0; client < 4; ++client) {
      CHECK(together[client] == Approx(3 + 4.5 + 0.75 * (client + 1)));
    }
  }
  // Who has come a little earlier.
  const std::vector<double> later = {1.03, 1.01, 1, 1.02};
  const std::vector<int> place = {3, 1, 0, 2};
  for (const std::vector<double>& closely : ends(later)) {
    for (int client = 0; client < 4; ++client) {
      INFO("client " << client);
      CHECK(closely[client] == Approx(3 + 4.5 + 0.75 * (place[client] + 1)));
    }
  }
  // Three times as long: nobody else is there any more.
  const std::vector<double> factors = {1, 5, 10, 20};
  for (const std::vector<double>& apart : ends(factors)) {
    for (int client = 0; client < 4; ++client) {
      INFO("client " << client);
      CHECK(apart[client] == Approx(3 * factors[client] + 4.5 + 0.75));
    }
  }
  // The first comes at 7.5 s and is seen 20 s later: the second, which comes at
  // 19.5 s, does not wait for it, and neither does it for the second.
  const std::vector<double> expected = {27.5 + 0.75, 19.5 + 0.75, 34.5 + 0.75,
                                        64.5 + 0.75};
  for (const std::vector<double>& late : ends(factors, 40)) {
    for (int client = 0; client < 4; ++client) {
      INFO("client " << client);
      CHECK(late[client] == Approx(expected[client]));
    }
  }
}

}  // namespace
}  // namespace pipewright
