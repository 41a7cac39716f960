#include "execute/transport/nccl_processes.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "execute/transport/steady_seconds.h"
#include "sim/base/check.h"
#include "sim/base/digest.h"
#include "sim/base/input.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// How long stopped processes have to say what they saw.
constexpr double kPatience_s = 5;

}  // namespace

uint64_t NumberOfNode() {
  const char* const given = getenv("NCCL_HOSTID");
  if (given != nullptr) return DigestNumber(given);
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  // Where it cannot be read, the name alone has to do.
  const absl::StatusOr<std::string> boot =
      ReadFile("/proc/sys/kernel/random/boot_id");
  return DigestNumber(absl::StrCat(host, boot.value_or("")));
}

// What process 0 tells the others; all processes are of one build.
struct NcclProcesses::Word {
  What what = What::kEnd;
  NcclTransfer transfer;
  PwNcclId id = {};
};

// Their answer to every word but kStop and kEnd; the text of an error follows.
struct NcclProcesses::Answer {
  int32_t failed = 0;
  int32_t full = 0;  // memory was full: no failure
  double seconds = 0;
  int64_t free_bytes = 0;
  uint64_t node = 0;  // to kOpen
};

absl::StatusOr<std::unique_ptr<NcclProcesses>> NcclProcesses::Create(
    ProcessGroup* job, const Options& options) {
  PW_CHECK(job->process() == 0 && job->processes() >= 2);
  auto group = std::unique_ptr<NcclProcesses>(new NcclProcesses(job, options));
  PW_RETURN_IF_ERROR(group->Open());
  PW_RETURN_IF_ERROR(group->Reserve());
  return group;
}

NcclProcesses::~NcclProcesses() {
  if (job_.process() > 0) return;
  // Members wait for each other while they leave.
  if (failure_.ok()) Say(members(), {.what = What::kLeave});
  member_.reset();
  if (failure_.ok()) static_cast<void>(AwaitAnswers());
}

absl::Status NcclProcesses::Open() {
  node_of_process_.assign(members(), options_.node);
  return Together(members(), {.what = What::kOpen}, [this]() -> absl::Status {
    PW_RETURN_IF_ERROR(options_.nccl.status());
    PW_ASSIGN_OR_RETURN(member_,
                        NcclMember::Open({.nccl = *options_.nccl,
                                          .kernels = options_.kernels,
                                          .device = options_.device,
                                          .self = 0,
                                          .timeout_s = options_.timeout_s,
                                          .given_up = [this] {
                                            TakeAnswers(0);
                                            return !failure_.ok();
                                          }}));
    return absl::OkStatus();
  });
}

absl::Status NcclProcesses::Reserve() {
  const int64_t free_bytes = std::min(least_free_, member_->free_bytes());
  most_bytes_ = TransferRoom(options_.most_bytes, free_bytes);
  while (most_bytes_ > 0) {
    full_ = false;
    PW_RETURN_IF_ERROR(Together(
        members(), {.what = What::kReserve, .transfer = {.bytes = most_bytes_}},
        [this] {
          const absl::Status status = member_->Reserve(most_bytes_);
          full_ |= absl::IsResourceExhausted(status);
          return absl::IsResourceExhausted(status) ? absl::OkStatus() : status;
        }));
    if (!full_) return absl::OkStatus();
    PW_RETURN_IF_ERROR(Together(members(), {.what = What::kRelease}, [this] {
      member_->Release();
      return absl::OkStatus();
    }));
    most_bytes_ = TransferRoom(most_bytes_ / 2, free_bytes);
  }
  return Fail(NoTransferRoom(free_bytes));
}

int NcclProcesses::nodes(int members) const {
  return static_cast<int>(std::set<uint64_t>(node_of_process_.begin(),
                                             node_of_process_.begin() + members)
                              .size());
}

absl::Status NcclProcesses::Join(int members) {
  PW_RETURN_IF_ERROR(failure_);
  Word word = {.what = What::kJoin, .transfer = {.members = members}};
  if ((*options_.nccl)->make_id(&word.id) < 0) {
    return Fail(absl::UnavailableError(
        absl::StrCat("a new communicator: ", (*options_.nccl)->error())));
  }
  return Together(members, word,
                  [&] { return member_->Join(word.id, members); });
}

absl::Status NcclProcesses::Begin(const NcclTransfer& transfer) {
  PW_CHECK(transfer.bytes <= most_bytes_ && transfer.repeats > 0);
  PW_RETURN_IF_ERROR(failure_);
  begun_ = transfer;
  Say(transfer.members, {.what = What::kTransfer, .transfer = transfer});
  const absl::Status begun = member_->Begin(transfer);
  return begun.ok() ? begun : Fail(begun);
}

absl::StatusOr<double> NcclProcesses::End() {
  PW_RETURN_IF_ERROR(failure_);
  const absl::StatusOr<double> own = member_->End(begun_);
  if (!own.ok()) return Fail(own.status());
  PW_RETURN_IF_ERROR(AwaitAnswers());
  return std::max(*own, slowest_s_);
}

void NcclProcesses::Say(int members, const Word& word) {
  for (int process = 1; process < members; ++process) {
    job_.Send(process, ProcessGroup::kControl,
              {reinterpret_cast<const char*>(&word), sizeof(word)});
  }
  awaited_ = members - 1;
  slowest_s_ = 0;
}

absl::Status NcclProcesses::Together(int members, const Word& word,
                                     const std::function<absl::Status()>& own) {
  PW_RETURN_IF_ERROR(failure_);
  Say(members, word);
  const absl::Status status = own();
  if (!status.ok()) return Fail(status);
  return AwaitAnswers();
}

// Whatever has come, or comes in this time.
void NcclProcesses::TakeAnswers(double timeout_s) {
  ProcessGroup::Incoming incoming;
  while (awaited_ > 0) {
    const Received received =
        job_.Receive(ProcessGroup::kControl, timeout_s, &incoming);
    if (received == Received::kTimeOut) return;
    if (received != Received::kMessage) {
      failure_.Update(absl::UnavailableError(job_.ended_by()));
      return;
    }
    Answer answer;
    PW_CHECK(incoming.bytes >= sizeof(answer));
    std::memcpy(&answer, incoming.data.get(), sizeof(answer));
    --awaited_;
    slowest_s_ = std::max(slowest_s_, answer.seconds);
    full_ |= answer.full != 0;
    if (answer.node != 0) node_of_process_[incoming.from] = answer.node;
    if (answer.free_bytes > 0) {
      least_free_ = least_free_ == 0 ? answer.free_bytes
                                     : std::min(least_free_, answer.free_bytes);
    }
    if (answer.failed != 0) {
      told_.push_back(absl::StrCat("process ", incoming.from, ", ",
                                   incoming.text().substr(sizeof(answer))));
      failure_.Update(absl::UnavailableError(told_.back()));
    }
  }
}

absl::Status NcclProcesses::AwaitAnswers() {
  // They give up by themselves when anything takes longer than timeout_s.
  const double deadline_s = SteadySeconds() + 2 * options_.timeout_s;
  while (failure_.ok() && awaited_ > 0) {
    TakeAnswers(0.01);
    if (failure_.ok() && awaited_ > 0 && SteadySeconds() > deadline_s) {
      failure_ = absl::UnavailableError(
          absl::StrCat(awaited_, " processes do not answer in ",
                       2 * options_.timeout_s, " s"));
    }
  }
  return failure_.ok() ? failure_ : Fail(failure_);
}

// Ends the work of the others too. This process may only have seen that another
// was cut off, so the error contains what the others say.
absl::Status NcclProcesses::Fail(const absl::Status& status) {
  const bool is_first = failure_.ok();
  failure_.Update(status);
  const Word stop = {.what = What::kStop};
  for (int process = 1; process < members(); ++process) {
    job_.Send(process, ProcessGroup::kControl,
              {reinterpret_cast<const char*>(&stop), sizeof(stop)});
  }
  if (member_ != nullptr) member_->CutOff();
  if (!is_first) return failure_;
  TakeAnswers(kPatience_s);
  told_.insert(told_.begin(), std::string(status.message()));
  failure_ = absl::Status(status.code(), absl::StrJoin(told_, "; "));
  return failure_;
}

void NcclProcesses::LetGo(ProcessGroup* job) {
  const Word end = {.what = What::kEnd};
  for (int process = 1; process < job->processes(); ++process) {
    job->Send(process, ProcessGroup::kControl,
              {reinterpret_cast<const char*>(&end), sizeof(end)});
  }
}

absl::Status NcclProcesses::Serve(ProcessGroup* job, const Options& options) {
  PW_CHECK(job->process() > 0);
  // Process 0 may be busy for as long as it likes; when it is gone, mpirun
  // ends the others.
  constexpr double kLong_s = 3600;
  NcclProcesses self(job, options);
  while (!self.ended_) {
    ProcessGroup::Incoming incoming;
    switch (job->Receive(ProcessGroup::kControl, kLong_s, &incoming)) {
      case Received::kTimeOut:
        continue;
      case Received::kMessage:
        break;
      default:
        return absl::InternalError(job->ended_by());
    }
    Word word;
    if (incoming.bytes != sizeof(word)) {
      return absl::InternalError(
          absl::StrCat("process 0 says ", incoming.bytes, " bytes: not ours"));
    }
    std::memcpy(&word, incoming.data.get(), sizeof(word));
    if (word.what == What::kEnd) break;
    if (word.what == What::kStop) {
      self.stopped_ = true;
      self.member_.reset();
      continue;
    }
    Answer answer;
    const absl::Status status = self.Do(word, &answer);
    // Process 0 knows what it has stopped.
    answer.failed = status.ok() || absl::IsCancelled(status) ? 0 : 1;
    if (!status.ok() && self.member_ != nullptr) self.member_->CutOff();
    const std::string text(status.message());
    job->Send(0, ProcessGroup::kControl,
              {reinterpret_cast<const char*>(&answer), sizeof(answer)},
              text.data(), text.size());
  }
  return absl::OkStatus();
}

absl::Status NcclProcesses::Do(const Word& word, Answer* answer) {
  if (word.what == What::kOpen) {
    PW_RETURN_IF_ERROR(options_.nccl.status());
    PW_ASSIGN_OR_RETURN(
        member_, NcclMember::Open({.nccl = *options_.nccl,
                                   .kernels = options_.kernels,
                                   .device = options_.device,
                                   .self = job_.process(),
                                   .timeout_s = options_.timeout_s,
                                   .given_up = [this] { return Stopped(); }}));
    answer->free_bytes = member_->free_bytes();
    answer->node = options_.node;
    return absl::OkStatus();
  }
  if (member_ == nullptr) {
    return absl::UnavailableError("it has no device open");
  }
  switch (word.what) {
    case What::kReserve: {
      const absl::Status status = member_->Reserve(word.transfer.bytes);
      if (!absl::IsResourceExhausted(status)) return status;
      answer->full = 1;
      return absl::OkStatus();
    }
    case What::kRelease:
      member_->Release();
      return absl::OkStatus();
    case What::kJoin:
      return member_->Join(word.id, word.transfer.members);
    case What::kTransfer: {
      PW_RETURN_IF_ERROR(member_->Begin(word.transfer));
      PW_ASSIGN_OR_RETURN(answer->seconds, member_->End(word.transfer));
      return absl::OkStatus();
    }
    case What::kLeave:
      member_.reset();
      return absl::OkStatus();
    default:
      PW_CHECK(false);
  }
}

// Asked while this process waits in NCCL: the only words that come then.
bool NcclProcesses::Stopped() {
  ProcessGroup::Incoming incoming;
  while (!stopped_) {
    switch (job_.Receive(ProcessGroup::kControl, 0, &incoming)) {
      case Received::kTimeOut:
        return false;
      case Received::kMessage: {
        Word word;
        PW_CHECK(incoming.bytes == sizeof(word));
        std::memcpy(&word, incoming.data.get(), sizeof(word));
        stopped_ = true;
        ended_ = word.what == What::kEnd;
        break;
      }
      default:
        stopped_ = true;
    }
  }
  return true;
}

}  // namespace pipewright
