// What a rank does when the runtime says so: the real kernels
// (model_worker.h), or nothing but taking its time (fixed_worker.h). It is
// told what to do in an order that the Program allows and knows neither
// schedule, clock nor transport.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "execute/transport/message.h"
#include "sim/schedule/pass.h"

namespace pipewright {

struct Start;

class Worker : public DeviceMemory {
 public:
  // A start of an iteration begins. One that comes `again` must forget what the
  // false one has left.
  virtual absl::Status BeginStart(const Start& start) = 0;
  virtual absl::Status EndIteration(int iteration) = 0;
  // What still runs on streams beside compute when the passes of `iteration`
  // are over must end before EndIteration; else the next iteration begins.
  virtual bool WantsAllEnded(int iteration) const = 0;
  // The run is over for all ranks: lets go of what others have given.
  virtual void Forget() {}
  // A block of one pass, or of two that are one operation (X&Y), begins and
  // has ended.
  virtual void BeginBlock(const Pass* block, int parts) = 0;
  virtual void EndBlock(const Pass* block, int parts) = 0;
  // A pass, all of whose inputs from other ranks it has been given. Seconds
  // that it took.
  virtual absl::StatusOr<double> RunPass(Pass pass, int stage) = 0;
  // What `pass` of `stage` awaits from another rank.
  virtual void TakeInput(Pass pass, int stage, Payload payload) = 0;
  // What another rank awaits of `pass`, which has run.
  virtual Payload GiveOutput(Pass pass, int stage) = 0;
  // The order has come to an O or L: takes the memory, on the host or on the
  // device, that its copy fills.
  virtual absl::Status IssueCopy(Pass pass, int stage) = 0;
  // An O or L that has been issued. Seconds that it took.
  virtual absl::StatusOr<double> RunCopy(Pass pass, int stage) = 0;
  // The same on a copy engine; `ended` is called from any thread when it is
  // over. Copies of one direction end in order.
  virtual void StartCopy(Pass pass, int stage,
                         std::function<void(absl::Status)> ended) = 0;
  // The O of these activations has ended: gives their memory on the device
  // back.
  virtual absl::Status FreeOffloaded(Pass pass, int stage) = 0;

  // Anything on no collective: optimizer, validation, roll-back, prediction,
  // host work, waits. Seconds that it took.
  virtual absl::StatusOr<double> RunSideOp(int32_t side_op,
                                           const Start& start) = 0;
  // One that UsesHost, beside compute: the same on a thread; `ended` is called
  // from any thread when it is over. Those of one stream end in order.
  virtual void StartSideOp(int32_t side_op, const Start& start,
                           std::function<void(absl::Status)> ended) = 0;
  // Between side operations of different ranks.
  virtual void TakeSideInput(int32_t side_op, int32_t channel,
                             Payload payload) = 0;
  virtual Payload GiveSideOutput(int32_t side_op, int32_t channel) = 0;

  // A collective of `members`; this is number `self`. The part that it gives to
  // member `to`, and the result from all parts, its own included.
  virtual Payload GivePart(int32_t side_op, int self, int to, int members) = 0;
  virtual absl::Status TakeParts(int32_t side_op, int self,
                                 const std::vector<Payload>& parts) = 0;

  // One-sided with peers (SideOp::peers), in the memory that all of them
  // share: reads theirs, or writes into it and awaits that their owners
  // have added it. No other rank does anything for it meanwhile, and this one
  // computes on; `ended` is called from any thread when it is over. Those of
  // one stream end in order.
  virtual void StartReach(int32_t side_op,
                          std::function<void(absl::Status)> ended) = 0;
};

}  // namespace pipewright
