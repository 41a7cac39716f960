// Data sheets of accelerators, and the part of each peak that good kernels
// sustain. What a kernel of a given size takes of it is kernel_time.h's.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

struct DeviceSpec {
  std::string name;         // "h100"
  std::string device_name;  // as systems say: "H100 SXM5 80GB"
  double bf16_flops = 0;    // a second, dense; fp16 alike
  double fp8_flops = 0;     // 0: none
  double hbm_bytes_per_s = 0;
  double memory_bytes = 0;
  int multiprocessors = 0;

  // Part of the peak inside a full wave of tiles with a long inner dimension.
  double bf16_sustained = 0;
  double fp8_sustained = 0;
  // Part of the bandwidth that a stream of reads and writes gets.
  double hbm_sustained = 0;
  // Part of the bf16 peak that fused attention tends to for long sequences.
  double attention_forward = 0;
  double attention_backward = 0;
  // Ring bandwidth of NCCL (RCCL) inside a node over the sheet's NVLink
  // bandwidth of one direction.
  double collective_sustained = 0;

  // Field -> where its number is from.
  std::map<std::string, std::string> sources;
};

// Sorted by name.
const std::vector<DeviceSpec>& AllDevices();

// By name, or by a system's device_name. Error: kInvalidArgument naming the
// nearest one.
absl::StatusOr<DeviceSpec> FindDevice(absl::string_view name);

}  // namespace pipewright
