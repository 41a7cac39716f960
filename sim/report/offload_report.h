// Activations on the host, as numbers and words: how many go, what their copies
// take, and how long passes waited for them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pipewright {

class Json;

struct RankOffloadReport {
  int64_t activations = 0;  // in an iteration: a microbatch, chunk and slice
  int64_t candidates = 0;   // that the strategy names
  int64_t offloaded = 0;
  // The compute stream waits for nothing but copies: of an L, for what a pass
  // needs, or of an O, so that its memory can be taken again. The latter costs
  // nothing where the next pass would have waited for its input.
  double exposed_s = 0;
  double held_back_s = 0;
};

struct OffloadReport {
  std::string mode;  // "selective", "full"; "file": the O and L of a file
  // PipeOffload's k, (O + L) / (F + B + W), of the stages.
  double least_ratio = 0;
  double most_ratio = 0;
  bool has_ratio = false;  // passes take time
  // Devices that may copy over a PCIe switch at a time.
  int devices_on_switch = 1;
  std::vector<RankOffloadReport> ranks;
  // The step less that of the same orders with copies that take no time.
  std::optional<double> step_cost_s;
  bool cost_left_out = false;  // that takes a second run, and was a long one

  // Sums over the ranks; waiting is that of the rank that waits longest, in the
  // first iteration.
  RankOffloadReport Total() const;
};

// The value of the key "offload".
Json OffloadToJson(const OffloadReport& report);

// Lines ended.
std::string OffloadToText(const OffloadReport& report);

}  // namespace pipewright
