// A calibration profile: what was measured on a device, with its noise and
// where it is from. `calibrate` writes it, the cost model reads it; nothing
// here measures, and nothing here knows a configuration.
//
// Units: seconds, bytes. On disk it is text protobuf (sim/proto/profile.proto,
// times in microseconds), read and written by profile_io.cc.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

class Json;

// Names of what moves data between ranks, as profiles (TransferEntry), flags
// and reports spell them. What they do is execute/transport's.
inline constexpr char kThreadsTransport[] = "threads";  // in one process
inline constexpr char kMpiTransport[] = "mpi";          // under mpirun
inline constexpr char kSocketsTransport[] = "sockets";  // without it
inline constexpr char kNcclTransport[] = "nccl";        // between GPUs

// That `execute` takes, in the order of messages.
inline std::vector<std::string> TransportNames() {
  return {kThreadsTransport, kMpiTransport, kSocketsTransport, kNcclTransport};
}

// That `calibrate` measures and profiles hold, in the order of messages.
inline std::vector<std::string> MeasuredTransports() {
  return {kThreadsTransport, kMpiTransport, kNcclTransport};
}

// What one measured thing took.
struct Distribution {
  int64_t count = 0;  // samples, outliers included
  int64_t outliers = 0;
  double median_s = 0;
  double p10_s = 0;
  double p90_s = 0;
  double mean_s = 0;
  double min_s = 0;
  double max_s = 0;
  double mad_s = 0;  // median absolute deviation
  // 95 % confidence interval of the median, from order statistics: how well
  // this run knows it. Both 0: not known (fewer than six samples, or a mean).
  double confidence_low_s = 0;
  double confidence_high_s = 0;
  // 90 % prediction interval for the median of a fresh calibration: the same
  // plus the drift between runs.
  double prediction_low_s = 0;
  double prediction_high_s = 0;
  // Quantiles at i / (n - 1); empty where the samples were not kept.
  std::vector<double> quantiles_s;
  bool operator==(const Distribution&) const = default;
};

// A device's share of a transformer; sizes are those of the whole model.
struct ProfileModel {
  std::string style;  // "gpt", "llama", or what a trace's user calls it
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn = 0;
  int64_t vocabulary = 0;
  bool causal = true;
  // Sizes of expert layers; 0: the model has none.
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  int64_t expert_ffn = 0;
  int64_t shared_ffn = 0;  // all shared experts together
  bool operator==(const ProfileModel&) const = default;
};

enum class ProfilePart { kEmbedding, kLayer, kHead, kExpertLayer };
inline constexpr int kNumProfileParts = 4;
inline bool IsLayer(ProfilePart part) {
  return part == ProfilePart::kLayer || part == ProfilePart::kExpertLayer;
}
enum class ProfilePass {
  kForward,
  kBackwardInput,
  kBackwardWeight,
  kBackwardFull,
  kRecompute
};
inline constexpr int kNumProfilePasses = 5;

// One pass of one part.
struct PassEntry {
  ProfileModel model;
  ProfilePart part = ProfilePart::kLayer;
  ProfilePass pass = ProfilePass::kForward;
  std::string type;  // "fp32", "bf16", "fp8"
  int64_t microbatch_size = 0;
  int64_t sequence = 0;
  int64_t tp = 1;
  int64_t ep = 0;  // devices that share the experts; 0: a part without
  // Slices that each sequence is cut into; 0: not cut. With slices, all else is
  // of one slice in the middle.
  int64_t slices = 0;
  // On this rank of a pipeline of `pp` alone; pp 0: on any.
  int64_t pp = 0;
  int64_t rank = 0;
  Distribution time;
  double gemm_s = 0;  // its matrix products alone; 0: not measured
  double flops = 0;   // on one device
  std::string implementation;
  // The same pass launched as one CUDA graph; empty where it was not.
  Distribution graph;
  bool operator==(const PassEntry&) const = default;
};

// The layer's: F, B and W back to back over the sum of the three measured
// alone, B and W over BW (the price of the split), with its confidence
// interval.
struct SplitEntry {
  ProfileModel model;
  std::string type;
  int64_t microbatch_size = 0;
  int64_t sequence = 0;
  int64_t tp = 1;
  int64_t ep = 0;          // for an expert layer; 0: for a dense one
  bool recompute = false;  // with R in front of the backward
  Distribution chain;      // F, (R,) B, W in one go
  Distribution fused;      // F, (R,) BW in one go
  bool operator==(const SplitEntry&) const = default;
};

// One kernel by itself: "gemm.forward", "attention.backward", ... ; `shape` in
// the order that the kernel's own documentation gives.
struct KernelEntry {
  std::string name;
  std::vector<int64_t> shape;
  std::string type;
  Distribution time;
  double flops = 0;
  double bytes = 0;  // read and written, at least
  std::string implementation;
  bool operator==(const KernelEntry&) const = default;
};

struct OptimizerEntry {
  std::string where;  // "device", "host"
  int64_t parameters = 0;
  Distribution time;
  // True for predicting weights some steps on (PwKernels::predict), not a step.
  bool prediction = false;
  bool operator==(const OptimizerEntry&) const = default;
};

enum class CopyDirection { kHostToDevice, kDeviceToHost, kDeviceToDevice };

struct CopyEntry {
  CopyDirection direction = CopyDirection::kDeviceToHost;
  int64_t bytes = 0;
  bool beside_opposite = false;  // the other direction busy meanwhile
  Distribution time;
  bool operator==(const CopyEntry&) const = default;
};

struct TransferEntry {
  std::string operation;  // "send_recv" "all_reduce" "all_gather"
                          // "reduce_scatter"
  std::string transport;  // one of MeasuredTransports()
  int64_t ranks = 2;
  // Payload as NCCL counts it: of all-gather the gathered, of reduce-scatter
  // the scattered buffer.
  int64_t bytes = 0;
  Distribution time;
  int64_t nodes = 0;  // that the ranks are on; 0: not known
  bool operator==(const TransferEntry&) const = default;
};

// What runs beside a pass, in the order of the matrix.
enum class Beside { kD2H, kH2D, kBothCopies, kSendRecv, kCollective };
inline constexpr int kNumBeside = 5;

struct InterferenceEntry {
  ProfilePass pass = ProfilePass::kForward;  // F, B or W of a layer
  Beside beside = Beside::kD2H;
  // Time beside over time alone, >= 0; 1: none. Medians with 95 % intervals.
  double pass_slowdown = 1;
  double pass_low = 1;
  double pass_high = 1;
  double beside_slowdown = 1;
  double beside_low = 1;
  double beside_high = 1;
  bool operator==(const InterferenceEntry&) const = default;
};

struct ProfileState {  // the device's, before or after; below 0: not known
  double clock_mhz = -1;
  double memory_clock_mhz = -1;
  double max_clock_mhz = -1;
  double power_w = -1;
  double temperature_c = -1;
  int64_t throttle = 0;
  int32_t pcie_generation = -1;
  int32_t pcie_width = -1;
  bool operator==(const ProfileState&) const = default;
};

// Where a part of the entries is from; a merged profile has several.
struct ProfileSource {
  std::string kind;     // "calibrate", "kineto", "nccl-tests", "nvbandwidth"
  std::string file;     // the imported one
  std::string version;  // Pipewright's
  std::string date;     // ISO 8601, UTC
  std::string backend;  // "cpu", "cuda"
  std::string device;
  std::string driver;
  std::string libraries;
  std::string system;  // kernel and distribution
  int64_t cores = 0;
  int64_t memory_bytes = 0;
  ProfileState before;
  ProfileState after;
  double seconds = 0;                 // that it took
  std::vector<std::string> warnings;  // red flags, throttling, a busy machine
  bool operator==(const ProfileSource&) const = default;
};

struct Profile {
  std::vector<ProfileSource> sources;
  std::vector<PassEntry> passes;
  std::vector<SplitEntry> splits;
  std::vector<KernelEntry> kernels;
  std::vector<OptimizerEntry> optimizers;
  std::vector<CopyEntry> copies;
  std::vector<TransferEntry> transfers;
  std::vector<InterferenceEntry> interference;
  double host_memory_bytes_per_s = 0;    // DRAM, read and write; 0: unknown
  double device_memory_bytes_per_s = 0;  // the same of the device
  bool complete = true;                  // false: a run that was interrupted
  bool operator==(const Profile&) const = default;
};

// The text form. Error of ReadProfile: kInvalidArgument with source, line,
// field, value, what is allowed.
absl::StatusOr<Profile> ReadProfile(absl::string_view text,
                                    absl::string_view source_name);
std::string WriteProfile(const Profile& profile);
// The same fields as JSON, in seconds and bytes per second; null for what is
// not known, such as a clock.
Json ProfileToJson(const Profile& profile);

// Entries of `newer` replace those of `older` with the same key; sources add
// up. Error: profiles of different devices.
absl::StatusOr<Profile> MergeProfiles(const Profile& older,
                                      const Profile& newer);

// The key of an entry, for people, diffs and merging: "layer F llama h4096
// a32/8 d128 f14336 bf16 b1 s4096 tp1", "d2h 64 MiB beside h2d".
std::string KeyOf(const PassEntry& entry);
// Is it of the same layer in the same shape?
bool IsSplitOf(const SplitEntry& split, const PassEntry& entry);
std::string KeyOf(const SplitEntry& entry);
std::string KeyOf(const KernelEntry& entry);
std::string KeyOf(const OptimizerEntry& entry);
std::string KeyOf(const CopyEntry& entry);
std::string KeyOf(const TransferEntry& entry);
std::string KeyOf(const InterferenceEntry& entry);

absl::string_view ProfilePartName(ProfilePart part);  // "expert-layer"
absl::string_view ProfilePassName(ProfilePass pass);  // "F" "B" "W" "BW" "R"
absl::string_view BesideName(Beside beside);          // "d2h" ... "collective"
absl::string_view CopyName(CopyDirection direction);  // "d2h"

// Errors of a profile: in an entry, numbers that contradict each other though
// each field is valid; and in the profile as a whole.
struct Wrong {
  const char* field = nullptr;  // as sim/proto/profile.proto; null: nothing
  std::string value;            // in the unit of the field
  std::string allowed;
};

// Zeros stand for what an import does not know.
Wrong WhatIsWrong(const Distribution& time);
Wrong WhatIsWrong(const InterferenceEntry& entry);
template <class Entry>
Wrong WhatIsWrong(const Entry&) {
  return {};
}

// Would ReadProfile take what WriteProfile makes of it? For profiles made from
// unchecked files. Error: that of ReadProfile, without a line.
absl::Status CheckProfile(const Profile& profile,
                          absl::string_view source_name);

// Calibration profiles by name: those that ship with the binary
// (calibrate/profiles/*.txtpb), and files.

// The names of those that ship, sorted; may be empty.
std::vector<std::string> ProfileNames();

// True for what is a file: it has a '/' or ends in .txtpb, .textproto, .pbtxt.
bool IsProfileFile(absl::string_view name_or_path);

// Error: kInvalidArgument naming the nearest shipped one, kNotFound for a file
// that is not there, and those of ReadProfile.
absl::StatusOr<Profile> FindProfile(const std::string& name_or_path);

}  // namespace pipewright
