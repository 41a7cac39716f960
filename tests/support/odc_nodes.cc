#include "tests/support/odc_nodes.h"

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/lowering.h"

namespace pipewright::testing {

Network Nodes::Build() const {
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

LowerOptions OdcOptions(const Nodes& nodes, const Network& network,
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

}  // namespace pipewright::testing
