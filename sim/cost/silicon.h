// Times of kernels from tables of measured rates (sim/profile/silicon_table.h),
// between and beyond the measured shapes. They are those of short runs; the
// clock under a lasting load is clock.h's. It knows no training run.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/cost/device.h"
#include "sim/cost/silicon_grid.h"
#include "sim/profile/profile.h"
#include "sim/profile/silicon_table.h"

namespace pipewright {

// True if what costs.analytic.silicon says is a file: it has a '/' or a '.'.
bool IsSiliconFile(absl::string_view choice);

class Silicon {
 public:
  // The shipped tables of a device ("h100"); null where it has none. Nothing is
  // unpacked before it is asked for.
  static std::shared_ptr<const Silicon> Shipped(const std::string& device);
  // A user's tables, measured on `device`.
  Silicon(std::shared_ptr<const std::vector<SiliconTable>> tables,
          DeviceSpec device);
  // The same of tables that nobody else has.
  Silicon(std::vector<SiliconTable> tables, DeviceSpec device);

  // What the tables are of.
  const DeviceSpec& device() const { return device_; }

  // C[m,n] of operands of `type` ("bfloat16", "fp8"): of the table of the
  // layout ("TN" forward, "NN" gradient of the input, "NT" of the weights),
  // else of TN. Nothing without a table of the type.
  std::optional<SiliconTime> Product(const std::string& type,
                                     const std::string& layout, double m,
                                     double n, double k) const;

  // Fused attention in `type` over so many sequences times heads.
  std::optional<SiliconTime> Attention(const std::string& type, bool is_forward,
                                       bool is_causal, double head_dim,
                                       double heads, double sequence) const;

  // The same with a causal window of so many tokens: so many FLOPs at the rate
  // of the measured kernels, by the nearest head_dim and window.
  std::optional<SiliconTime> Window(bool is_forward, double head_dim,
                                    double window, double flops) const;

  // A gated layer of experts forward, as one kernel: `groups` experts of the
  // device with so many rows each. `reference` is what the time is
  // interpolated in: seconds of such a layer by its parts.
  using ExpertsReference = std::function<double(double groups, double rows,
                                                double hidden, double inner)>;
  std::optional<SiliconTime> Experts(const std::string& type, double groups,
                                     double rows, double hidden, double inner,
                                     const ExpertsReference& reference) const;
  // Are there such layers?
  bool HasExperts(const std::string& type) const;

  // A norm that moves so many bytes to and from HBM.
  std::optional<SiliconTime> Norm(bool is_forward, double bytes) const;

  // A bf16 matrix of so many elements to fp8, with a scale that is known
  // ("static"), one a tensor ("tensor", found by a pass of its own) or one a
  // row
  // ("token").
  std::optional<SiliconTime> Cast(const std::string& scale,
                                  double elements) const;

  // Collectives of one node, as a profile holds them (transport nccl, bytes of
  // the whole buffer); null where none were measured.
  const Profile* collectives() const;
  // Comes with the program, or is a user's own?
  bool is_shipped() const { return !shipped_.empty(); }
  // The same of an all-to-all, which a profile does not hold.
  std::optional<SiliconTime> AllToAll(int gpus, double bytes) const;

 private:
  Silicon(std::string shipped, DeviceSpec device);

  const SiliconTable* Find(const std::vector<std::string>& words) const;

  std::string shipped_;  // "" for tables of a user
  std::shared_ptr<const std::vector<SiliconTable>> tables_;
  DeviceSpec device_;
  mutable std::mutex mutex_;
  mutable std::map<const SiliconTable*, std::unique_ptr<SiliconGrid>> grids_;
  mutable std::unique_ptr<Profile> collectives_;
  mutable bool has_collectives_ = false;
};

}  // namespace pipewright
