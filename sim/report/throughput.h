// Work done in a second: FLOP/s of a device, MFU, what tokens cost. Every
// figure follows from iteration_s; its formula is a text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace pipewright {

class Json;

// FLOPs of one token, forward and backward, and where they are from.
struct TokenFlops {
  double model = 0;         // what the model needs
  double recomputed = 0;    // executed on top, by choice of recomputation
  bool only_parts = false;  // some parameters are frozen
  bool has_scans = false;   // Mamba-2, gated delta
  bool has_experts = false;
  bool is_causal = false;  // attention; counted in full all the same
};

// Peak of the device at the precision of the linear layers.
struct DevicePeak {
  std::string name;  // "989.4 TFLOP/s, h100 bf16"
  double flops = 0;  // a second
};

// What the devices of a job take from their boards in a step.
struct StepEnergy {
  double joules = 0;
  double low = 0;  // of the 90 % interval; 0: there is none
  double high = 0;
  double watts_per_device = 0;
  double tokens_per_joule = 0;
};

struct Throughput {
  double tokens_per_s = 0;  // all replicas
  int64_t devices = 1;      // pp * dp * tp * cp
  std::optional<TokenFlops> flops;
  std::optional<DevicePeak> peak;
  std::optional<double> price_per_device_hour;
  std::optional<StepEnergy> energy;

  // Each nothing where what it needs is not known.
  std::optional<double> tflops_per_device() const;
  std::optional<double> mfu() const;
  // With what is recomputed: for a GPT with full recomputation eq. 3 of arXiv
  // 2104.04473. Nothing where nothing is recomputed.
  std::optional<double> hardware_tflops_per_device() const;
  std::optional<double> hfu() const;
  std::optional<double> cost_per_1e9_tokens() const;
  std::string FlopsFormula() const;
};

// Adds the keys of docs/json-and-exit-codes.md.
void AddThroughput(const Throughput& throughput, Json* out);

// Lines "mfu  41.3 %  ...", ended.
std::string ThroughputToText(const Throughput& throughput);

}  // namespace pipewright
