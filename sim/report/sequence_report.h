// What packing has made of a minibatch, for every form of the report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pipewright {

class Json;

struct SequenceReport {
  std::string source;  // "longalign", "lengths.csv", "histogram"
  std::string packer;
  std::string packer_cost;
  int64_t samples = 0;  // all replicas together
  int64_t tokens = 0;
  int64_t longest = 0;
  int64_t max_token_len = 0;
  int classes = 1;                  // groups of replicas that run alike
  std::vector<int> microbatches;    // [replica]
  std::vector<int64_t> of_replica;  // tokens, [replica]

  // What packing alone leaves idle, by the forward's factors: devices that
  // meet after every microbatch, and that meet once a step. 0..1.
  double idle_lockstep = 0;
  double idle_one_sided = 0;
};

// Lines "sequences ...", ended.
std::string SequencesToText(const SequenceReport& report);
// The value of the key "sequences".
Json SequencesToJson(const SequenceReport& report);

}  // namespace pipewright
