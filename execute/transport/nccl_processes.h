// NCCL's transfers between processes with a GPU each, started by process 0:
// what calibration measures under mpirun with --device cuda. The other
// processes sleep in between. Errors do not end the job: process 0 has other
// things to measure. Never run on several GPUs; its logic is tested with
// tests/support/fake_nccl.h and fake_mpi.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "execute/transport/nccl_member.h"
#include "execute/transport/process_group.h"

namespace pipewright {

// The node of this process, another number than any other's, as NCCL tells
// nodes apart: by NCCL_HOSTID, else by the names of the host and of its boot.
uint64_t NumberOfNode();

class NcclProcesses : public NcclParty {
 public:
  struct Options {
    absl::StatusOr<const PwNccl*> nccl;  // from LoadNccl
    const PwKernels* kernels = nullptr;
    int device = 0;                  // this process's
    int64_t most_bytes = 0;          // read by process 0: if memory allows
    double timeout_s = 60;           // for each transfer
    uint64_t node = NumberOfNode();  // this process's
  };

  // Process 0: all open their devices and take memory. Error: kUnavailable,
  // kResourceExhausted, of whichever process; the others go on serving.
  static absl::StatusOr<std::unique_ptr<NcclProcesses>> Create(
      ProcessGroup* job, const Options& options);
  ~NcclProcesses() override;
  NcclProcesses(const NcclProcesses&) = delete;

  int members() const override { return job_.processes(); }
  int nodes(int members) const override;
  int64_t most_bytes() const override { return most_bytes_; }
  absl::Status Join(int members) override;
  absl::Status Begin(const NcclTransfer& transfer) override;
  absl::StatusOr<double> End() override;

  // The others: do what process 0 says until LetGo. Error: kInternal when the
  // job is ended from outside before.
  static absl::Status Serve(ProcessGroup* job, const Options& options);
  // Process 0 calls it once, when there is nothing more to measure, even where
  // nothing was.
  static void LetGo(ProcessGroup* job);

 private:
  enum class What : int32_t {
    kOpen,
    kReserve,
    kRelease,
    kJoin,
    kTransfer,
    kLeave,  // in good order
    kStop,   // another has failed
    kEnd
  };
  struct Word;
  struct Answer;

  NcclProcesses(ProcessGroup* job, const Options& options)
      : job_(*job), options_(options) {}
  absl::Status Open();
  absl::Status Reserve();
  void Say(int members, const Word& word);
  absl::Status Together(int members, const Word& word,
                        const std::function<absl::Status()>& own);
  void TakeAnswers(double timeout_s);
  absl::Status AwaitAnswers();
  absl::Status Fail(const absl::Status& status);

  // For processes other than 0.
  absl::Status Do(const Word& word, Answer* answer);
  bool Stopped();

  ProcessGroup& job_;
  const Options options_;
  int64_t most_bytes_ = 0;
  std::unique_ptr<NcclMember> member_;
  NcclTransfer begun_;

  // Answers that process 0 still awaits to the word that it said last.
  int awaited_ = 0;
  double slowest_s_ = 0;
  int64_t least_free_ = 0;
  std::vector<uint64_t> node_of_process_;
  bool full_ = false;
  std::vector<std::string> told_;  // failures of others
  absl::Status failure_;
  // True in another process that process 0 has told to stop.
  bool stopped_ = false;
  bool ended_ = false;
};

}  // namespace pipewright
