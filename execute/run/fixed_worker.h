// A worker without kernels: passes take no time of their own and messages are
// empty. With a clock that takes the program's durations it tests the runtime
// and paces large pipelines.
#pragma once

#include <functional>
#include <vector>

#include "execute/run/worker.h"
#include "sim/schedule/pass.h"

namespace pipewright {

class FixedWorker : public Worker {
 public:
  absl::Status BeginStart(const Start&) override { return absl::OkStatus(); }
  absl::Status EndIteration(int) override { return absl::OkStatus(); }
  bool WantsAllEnded(int) const override { return false; }
  void BeginBlock(const Pass*, int) override {}
  void EndBlock(const Pass*, int) override {}
  absl::StatusOr<double> RunPass(Pass, int) override { return 0.0; }
  void TakeInput(Pass, int, Payload) override {}
  Payload GiveOutput(Pass, int) override { return {}; }
  absl::Status IssueCopy(Pass, int) override { return absl::OkStatus(); }
  absl::StatusOr<double> RunCopy(Pass, int) override { return 0.0; }
  void StartCopy(Pass, int, std::function<void(absl::Status)> ended) override {
    ended(absl::OkStatus());
  }
  absl::Status FreeOffloaded(Pass, int) override { return absl::OkStatus(); }
  absl::StatusOr<double> RunSideOp(int32_t, const Start&) override {
    return 0.0;
  }
  void StartSideOp(int32_t, const Start&,
                   std::function<void(absl::Status)> ended) override {
    ended(absl::OkStatus());
  }
  void TakeSideInput(int32_t, int32_t, Payload) override {}
  Payload GiveSideOutput(int32_t, int32_t) override { return {}; }
  Payload GivePart(int32_t, int, int, int) override { return {}; }
  absl::Status TakeParts(int32_t, int, const std::vector<Payload>&) override {
    return absl::OkStatus();
  }
  void StartReach(int32_t, std::function<void(absl::Status)> ended) override {
    ended(absl::OkStatus());
  }
};

}  // namespace pipewright
