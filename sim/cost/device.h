// Data sheets of accelerators, and the part of each peak that good kernels
// sustain. What a kernel of a given size takes of it is kernel_time.h's.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/base/shared_texts.h"

namespace pipewright {

struct DeviceSpec {
  std::string name;         // "h100"
  std::string device_name;  // as systems say: "H100 SXM5 80GB"
  // "hopper"; of the links, for NCCL's tuner.
  std::string architecture;
  double bf16_flops = 0;  // a second, dense; fp16 alike
  double fp8_flops = 0;   // 0: none
  double fp4_flops = 0;   // 0: none
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

  // The device whose tables of measured rates are taken ("h100"; "": none),
  // and whether costs.analytic.silicon auto takes them.
  std::string silicon;
  bool silicon_by_default = true;
  // For the clock under a lasting load (clock.h); 0: not known.
  double board_watts = 0;
  double idle_watts = 0;
  double bf16_joules_per_flop = 0;
  // Time of its host for one kernel; 0: an x86 server's (host_time.h).
  double launch_s = 0;

  // Field -> where its number is from.
  SharedTexts sources;
  friend bool operator==(const DeviceSpec&, const DeviceSpec&) = default;
};

// Sorted by name.
const std::vector<DeviceSpec>& AllDevices();

// By name, by a system's device_name, or the path of a device file (with a '/'
// or ending in .textproto). Error: kInvalidArgument naming the nearest one;
// those of ReadDevice.
absl::StatusOr<DeviceSpec> FindDevice(absl::string_view name);
bool IsDeviceFile(absl::string_view name_or_path);

// A device file (sim/proto/device.proto). Error: kInvalidArgument with file,
// line and field, for a number that is missing, out of range or without a
// source.
absl::StatusOr<DeviceSpec> ReadDevice(absl::string_view textproto,
                                      absl::string_view source_name);

// The shipped file of a device with its comments, for `init device`.
absl::StatusOr<std::string> DeviceFileText(absl::string_view name);

}  // namespace pipewright
