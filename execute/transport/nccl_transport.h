// The transport of GPUs: what lies on devices goes through NCCL, all else
// through the transport that has brought the ranks together (MPI, sockets; in
// tests threads), which is given as `control`.
//
// A message with data of the device is a header on the control transport and,
// under the same number, a send and a receive on the link between the two
// ranks (nccl_plan.h). The receive is queued when the header comes, so that
// sends and receives of a link match by construction; the message is taken
// when the data has come. Messages of one sender keep their order; those that
// end a run do not wait for data. Collectives begin on the devices once all
// members have said on the control transport that they are there: nothing on a
// device waits for a rank that is busy with something else.
//
// What is sent, and the memory that TakeMemory gives, is used by nothing that
// is still queued: workers synchronise before they give.
//
// Never run on several GPUs; its logic is tested with
// tests/support/fake_nccl.h.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "execute/transport/nccl/module.h"
#include "execute/transport/nccl_comm.h"
#include "execute/transport/nccl_plan.h"
#include "execute/transport/transport.h"

namespace pipewright {

// Loads libpipewright_nccl.so. Error: kUnavailable, with what is missing.
// Before the first use of a CUDA device: it sets what CUDA reads then.
absl::StatusOr<const PwNccl*> LoadNccl();

struct NcclOptions {
  const PwNccl* nccl = nullptr;
  int device = 0;
  double timeout_s = 60;  // see ExecuteOptions; twice of it here
  // Receives are queued while the rank computes; needs a control transport
  // that two threads may use.
  bool own_thread = true;
};

class NcclEndpoint : public Endpoint {
 public:
  NcclEndpoint(const Program& program, Address self, Endpoint* control,
               NcclOptions options);
  ~NcclEndpoint() override;

  // Makes all communicators and moves a few bytes on each, because NCCL
  // connects at the first use.
  absl::Status Connect(DeviceMemory* memory) override;
  absl::Status Disconnect(bool well) override;
  void Send(Address to, RankMessage message) override;
  Received Receive(double timeout_s, RankMessage* message) override;
  void Pending(int change) override { control_.Pending(change); }
  bool RunsSince(Address other, double since_s) const override {
    return control_.RunsSince(other, since_s);
  }
  void GetsOn() override { control_.GetsOn(); }
  double ComputesSince(Address other) const override {
    return control_.ComputesSince(other);
  }
  std::string ended_by() const override;
  bool combines() const override { return true; }
  void Combine(const std::shared_ptr<Collective>& collective) override;

 private:
  struct Incoming {
    RankMessage message;
    bool complete = false;
  };
  // Messages of one sender that wait for their data, or for an earlier message
  // that does.
  using Waiting = std::deque<std::shared_ptr<Incoming>>;

  // All with mutex_ held.
  absl::Status Join(double deadline_s);
  absl::Status AwaitState(PwNcclComm* comm, double deadline_s);
  absl::Status AwaitIdle(double deadline_s);
  absl::Status TryOut(DeviceMemory* memory);
  void Pump();
  void PumpControl();
  void Accept(RankMessage message);
  void Deliver(Waiting& waiting);
  void Fail(const absl::Status& status, bool tell);
  void Tell(RankMessage::Kind kind, const std::string& text);
  void AbortAll();
  NcclComm* LinkOf(Address from, Address to);
  bool Idle() const;
  static void RestAWhile(int* rests);

  const Program& program_;
  const Address self_;
  Endpoint& control_;
  const NcclOptions options_;
  const std::vector<CommPlan> plan_;
  DeviceMemory* memory_ = nullptr;

  mutable std::mutex mutex_;
  std::map<size_t, std::unique_ptr<NcclComm>> comms_;  // [index in plan_]
  std::map<size_t, PwNcclId> ids_;
  std::map<Address, Waiting> waiting_;  // [sender]
  std::deque<RankMessage> ready_;
  std::set<Address> done_;  // senders that will send nothing more
  bool connecting_ = false;
  bool others_end_ = false;  // somebody has said that the run is over
  double heard_s_ = 0;       // when anything came last
  std::string failure_;
  bool stops_ = false;
  std::thread thread_;
};

// Value of an environment variable; null: not set.
using EnvironmentVariable = std::function<const char*(const char* name)>;

// Which of the `gpus` that a process sees is its own: by its number within its
// machine, where a starter says it of this process; else all machines are taken
// to be alike and filled one after the other. CUDA counts what
// CUDA_VISIBLE_DEVICES leaves, and of MIG's instances one. Error:
// kInvalidArgument for more processes than GPUs.
absl::StatusOr<int> GpuOf(int process, int gpus,
                          const EnvironmentVariable& variable);
// GpuOf with what NCCL's module sees. Error also: kUnavailable without a GPU.
absl::StatusOr<int> GpuOfProcess(const PwNccl& nccl, int process);

}  // namespace pipewright
