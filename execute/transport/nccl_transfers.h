// NCCL's own transfers between GPUs of this process, timed by events on the
// devices: what calibration measures where there are two GPUs and more. A
// thread and a member (nccl_member.h) for each device. Never run on several
// GPUs; its logic is tested with tests/support/fake_nccl.h.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "execute/transport/nccl_member.h"

namespace pipewright {

class NcclTransfers : public NcclParty {
 public:
  struct Options {
    const PwNccl* nccl = nullptr;
    const PwKernels* kernels = nullptr;
    int devices = 2;         // 0 to devices - 1; at least 2
    int64_t most_bytes = 0;  // in a transfer, if memory allows
    double timeout_s = 60;   // for each transfer
  };
  // Opens the devices and takes memory. Error: kUnavailable,
  // kResourceExhausted.
  static absl::StatusOr<std::unique_ptr<NcclTransfers>> Create(
      const Options& options);
  ~NcclTransfers() override;
  NcclTransfers(const NcclTransfers&) = delete;

  int members() const override { return options_.devices; }
  int nodes(int) const override { return 1; }
  int64_t most_bytes() const override { return most_bytes_; }
  absl::Status Join(int members) override;
  absl::Status Begin(const NcclTransfer& transfer) override;
  absl::StatusOr<double> End() override;

 private:
  using Work = std::function<absl::Status(int device)>;

  explicit NcclTransfers(const Options& options) : options_(options) {}
  absl::Status Open();
  absl::Status Reserve();
  absl::Status OnAll(int members, const Work& work);
  void Loop(int device);

  const Options options_;
  int64_t most_bytes_ = 0;
  NcclTransfer begun_;
  // Member of each device, which the device's thread alone uses.
  std::vector<std::unique_ptr<NcclMember>> members_;
  std::vector<double> seconds_;

  std::atomic<bool> failed_{false};
  absl::Status failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const Work* work_ = nullptr;  // work of this round
  int taking_part_ = 0;
  int left_ = 0;
  int64_t round_ = 0;
  bool quit_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace pipewright
