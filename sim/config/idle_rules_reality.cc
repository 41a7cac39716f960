// Rules for slow devices and links, and of devices that fail.
#include <algorithm>

#include "sim/config/idle_rules.h"

namespace pipewright {

namespace {

// Copies to the host may cross any link of a node.
bool CrossesInTime(const RunFacts& facts, absl::string_view links) {
  return facts.Crosses(links, RunFacts::Load::kMessages) ||
         facts.ExchangesCross(links) || facts.offload() != nullptr ||
         !facts.run().lower.activation_bytes.empty();
}

}  // namespace

const std::vector<IdleRule>& RealityRules() {
  static const std::vector<IdleRule> rules = {
      {{"slow.seed"},
       [](const RunFacts& facts) {
         return Unless(facts.run().DrawsSlow(),
                       "without slow.devices_law or slow.links_law");
       }},
      {{"slow.links"},
       [](const RunFacts& facts) {
         const std::vector<std::string>& items = facts.config().slow.links;
         return Unless(std::any_of(items.begin(), items.end(),
                                   [&](const std::string& item) {
                                     return CrossesInTime(
                                         facts,
                                         item.substr(0, item.rfind('*')));
                                   }),
                       "since nothing crosses these links in the run");
       }},
      {{"slow.links_law"},
       [](const RunFacts& facts) {
         return Unless(CrossesInTime(facts, ""),
                       "since nothing crosses a link in the run");
       }},
      {{"reliability."},
       [](const RunFacts& facts) {
         return Unless(facts.run().failing.has_value(),
                       "without reliability.mtbf_per_device");
       }},
  };
  return rules;
}

}  // namespace pipewright
