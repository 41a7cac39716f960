// How the collectives of gradients and parameters run, where the configuration
// leaves rings.
#pragma once

#include <string>
#include <vector>

namespace pipewright {

class Json;
struct Program;

struct CollectiveReport {
  int group = 0;
  std::vector<int> ranks;  // in each of its replicas
  int members = 0;
  bool contexts = false;  // they are devices: parts of a context, too
  std::string kind;       // OpKindName
  double bytes = 0;       // the whole buffer
  // "ring", "recursive doubling", "tree", "hierarchical" or "measured".
  std::string algorithm;
  double seconds = 0;  // alone on the network
};

// One for each kind and size of a group, and for each way that its instances
// run it. Empty without a system, and with rings for all.
std::vector<CollectiveReport> ReportCollectives(const Program& program);

// Lines "collectives ...", ended; those of groups that are alike are one.
std::string CollectivesToText(const std::vector<CollectiveReport>& report);
// The value of the key "collectives".
Json CollectivesToJson(const std::vector<CollectiveReport>& report);

}  // namespace pipewright
