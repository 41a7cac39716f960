#include "execute/transport/process_group.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "execute/transport/pulse.h"
#include "execute/transport/steady_seconds.h"
#include "sim/base/load_module.h"
#include "sim/base/signal_thread.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// The alignment of payloads, as allocators for kernels have it.
constexpr size_t kAlignment = 64;

// Messages that are begun before one is given out.
constexpr int kMostBegun = 16;

// All processes leave a run together, but one may still write files.
constexpr double kFarewell_s = 60;

// Open MPI, Intel MPI and MPICH, Slurm with PMI, PMIx.
constexpr const char* kVariables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                      "PMI_RANK", "PMIX_RANK"};

std::atomic<bool> terminated{false};
constexpr char kTerminated[] = "the job is ended from outside (SIGTERM)";

struct OnTerminate {
  std::mutex mutex;
  std::function<void()> call;
};

OnTerminate& TheOnTerminate() {
  // The thread of the signal lives as long as the process.
  static auto* const on = new OnTerminate;
  return *on;
}

// For the rest of the process: mpirun may send it when the job has ended, too.
void TakeTerminate() {
  static const auto* const thread = new SignalThread({SIGTERM}, [](int) {
    terminated = true;
    OnTerminate& on = TheOnTerminate();
    std::lock_guard lock(on.mutex);
    if (on.call) on.call();
  });
  static_cast<void>(thread);
}

absl::StatusOr<const PwProcesses*> Load() {
  PW_ASSIGN_OR_RETURN(
      void* const function,
      // Global: parts of Open MPI that it loads itself look for its symbols.
      LoadModule({.library = "libpipewright_mpi.so",
                  .variable = "PIPEWRIGHT_MPI_LIBRARY",
                  .function = "pw_mpi",
                  .global = true},
                 "build with libopenmpi-dev, or run without mpirun"));
  const PwProcesses* const mpi =
      reinterpret_cast<const PwProcesses* (*)(void)>(function)();
  if (mpi->abi != PW_MPI_ABI) {
    return absl::UnavailableError(
        "libpipewright_mpi.so is of another version: build both from the same "
        "sources");
  }
  return mpi;
}

// A message of a pipeline as it goes over the wire, in front of its payload.
struct alignas(kAlignment) Header {
  int64_t run = 0;
  uint64_t key = 0;
  int64_t number = 0;
  double start_s = 0;
  double time_s = 0;
  Address from;
  int32_t index = 0;
  RankMessage::Kind kind = RankMessage::Kind::kToken;
  uint64_t elsewhere = 0;  // bytes that come by another way
};

// Lets others have the processor: at once while a message is likely to be on
// its way, and for longer and longer when it is not.
class Backoff {
 public:
  void Rest() {
    if (++rests_ <= kYields) {
      sched_yield();
      return;
    }
    nanos_ = std::min(kLongest, nanos_ * 2);
    const timespec rest = {.tv_sec = 0, .tv_nsec = nanos_};
    nanosleep(&rest, nullptr);
  }

 private:
  static constexpr int kYields = 100;
  // Short against a pass that is worth running (5 ms).
  static constexpr long kLongest = 500'000;
  int rests_ = 0;
  long nanos_ = 5'000;
};

}  // namespace

bool ProcessGroup::Started() {
  return std::any_of(
      std::begin(kVariables), std::end(kVariables),
      [](const char* variable) { return getenv(variable) != nullptr; });
}

bool ProcessGroup::Terminated() { return terminated; }

void ProcessGroup::SetOnTerminate(std::function<void()> call) {
  OnTerminate& on = TheOnTerminate();
  std::lock_guard lock(on.mutex);
  on.call = std::move(call);
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> ProcessGroup::Create() {
  PW_ASSIGN_OR_RETURN(const PwProcesses* const mpi, Load());
  return Create(mpi, "MPI", "mpirun -n");
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> ProcessGroup::Create(
    const PwProcesses* mpi, const char* name, const char* count_option) {
  // This comes before MPI starts its threads, so that they have it blocked as
  // well.
  TakeTerminate();
  std::unique_ptr<ProcessGroup> job(new ProcessGroup(mpi, name, count_option));
  if (!job->Failed(job->mpi_.start())) {
    job->process_ = job->mpi_.process();
    job->processes_ = job->mpi_.processes();
  }
  if (!job->failure_.empty() || job->process_ < 0 || job->processes_ < 1) {
    job->Abandon();
    return absl::UnavailableError(absl::StrCat(name, ": ", job->mpi_.error()));
  }
  return job;
}

// MPI may still write it.
void ProcessGroup::KeepComing() {
  static auto* const left = new std::list<Coming>;
  left->splice(left->end(), coming_);
}

ProcessGroup::~ProcessGroup() {
  if (abandoned_ || !ended_by().empty()) {
    Leave();
    KeepComing();
    return;
  }
  // Messages that a run has sent in vain end when they are taken: the first
  // forwards of an iteration that never comes, and all that is under way when a
  // rank has failed.
  Backoff backoff;
  const double deadline_s = SteadySeconds() + kFarewell_s;
  while (ended_by().empty()) {
    if (SteadySeconds() >= deadline_s) {
      EndAtOnce(absl::StrCat("process ", process_,
                             ": others have not left the run within ",
                             kFarewell_s, " s"));
      break;
    }
    for (const Tag tag : {kPipeline, kControl, kPulse}) {
      Incoming unwanted;
      while (Probe(tag, &unwanted)) {
      }
    }
    const int unsent = mpi_.unsent();
    const int ended = unsent == 0 ? mpi_.has_ended() : 0;
    if (unsent < 0 || ended < 0) break;
    if (ended > 0) {
      mpi_.finish();
      return;
    }
    backoff.Rest();
  }
  Leave();
  KeepComing();
}

void ProcessGroup::Leave() { mpi_.leave(terminated ? kTerminated : ""); }

void ProcessGroup::EndAtOnce(const std::string& why) {
  if (!last_words_) return;
  // To the end of the process: no thread calls mpi_ once it has left.
  std::lock_guard lock(mutex_);
  Leave();
  last_words_(why);
}

bool ProcessGroup::Failed(int code) {
  if (code < 0 && failure_.empty()) {
    failure_ = absl::StrCat(name_, ": ", mpi_.error());
  }
  return code < 0;
}

std::string ProcessGroup::ended_by() const {
  if (terminated) return kTerminated;
  std::lock_guard lock(mutex_);
  return failure_;
}

void ProcessGroup::End(const std::string& why) {
  std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = absl::StrCat(name_, ": ", why);
}

absl::StatusOr<double> ProcessGroup::Transfer(PwTransfer kind, int64_t bytes,
                                              int repeats) {
  double seconds = 0;
  if (!ended_by().empty() ||
      Failed(
          mpi_.transfer(kind, static_cast<size_t>(bytes), repeats, &seconds))) {
    return absl::InternalError(ended_by());
  }
  return seconds;
}

void ProcessGroup::Send(int to, Tag tag, absl::string_view head,
                        const void* body, size_t bytes) {
  std::lock_guard lock(mutex_);
  if (!failure_.empty()) return;
  Failed(mpi_.send(to, tag, head.data(), head.size(), body, bytes));
}

bool ProcessGroup::HasLeft(int process, Tag tag) {
  std::lock_guard lock(mutex_);
  const bool coming =
      std::any_of(coming_.begin(), coming_.end(), [&](const Coming& each) {
        return each.tag == tag && each.incoming.from == process;
      });
  return !coming && mpi_.has_left(process, tag) == 1;
}

bool ProcessGroup::Probe(Tag tag, Incoming* incoming) {
  std::lock_guard lock(mutex_);
  if (!failure_.empty()) return false;
  for (int begun = 0; begun < kMostBegun; ++begun) {
    Coming next = {.tag = tag};
    const int come = mpi_.probe(tag, &next.incoming.from, &next.incoming.bytes);
    if (Failed(come)) return false;
    if (come == 0) break;
    const size_t room = (next.incoming.bytes / kAlignment + 1) *
                        kAlignment;  // aligned_alloc's rule
    next.incoming.data = std::shared_ptr<char>(
        static_cast<char*>(aligned_alloc(kAlignment, room)), free);
    if (next.incoming.data == nullptr) {
      failure_ = absl::StrCat("no memory for a message of ",
                              next.incoming.bytes, " bytes");
      return false;
    }
    next.number = mpi_.receive(next.incoming.data.get());
    if (Failed(next.number)) return false;
    coming_.push_back(std::move(next));
  }
  // Messages of one process stay in their order.
  std::set<int> behind;
  for (auto each = coming_.begin(); each != coming_.end(); ++each) {
    if (each->tag != tag || behind.contains(each->incoming.from)) continue;
    const int received = mpi_.received(each->number);
    if (Failed(received)) return false;
    if (received == 0) {
      behind.insert(each->incoming.from);
      continue;
    }
    *incoming = std::move(each->incoming);
    coming_.erase(each);
    return true;
  }
  return false;
}

Received ProcessGroup::Receive(Tag tag, double timeout_s, Incoming* incoming,
                               const std::function<bool()>& also) {
  Backoff backoff;
  double deadline_s = 0;
  while (true) {
    if ((also && also()) || Probe(tag, incoming)) return Received::kMessage;
    if (!ended_by().empty()) return Received::kEnded;
    if (timeout_s <= 0) return Received::kTimeOut;
    const double now_s = SteadySeconds();
    if (deadline_s == 0) deadline_s = now_s + timeout_s;
    if (now_s >= deadline_s) return Received::kTimeOut;
    backoff.Rest();
  }
}

absl::StatusOr<RankMessage> ReadRankMessage(
    const ProcessGroup::Incoming& incoming, int pp, int64_t* run) {
  Header header;
  const bool whole = incoming.bytes >= sizeof(header);
  if (whole) std::memcpy(&header, incoming.data.get(), sizeof(header));
  const Address from = {incoming.from / pp, incoming.from % pp};
  // What a rank sends itself goes by no wire.
  if (!whole || !(header.from == from) || header.index < 0 ||
      header.kind > RankMessage::Kind::kFailed ||
      header.kind == RankMessage::Kind::kCopied ||
      header.kind == RankMessage::Kind::kCombined) {
    return absl::UnavailableError(absl::StrCat(
        "process ", incoming.from, " has sent what its rank does not send"));
  }
  *run = header.run;
  RankMessage message = {.kind = header.kind,
                         .from = header.from,
                         .index = header.index,
                         .key = header.key,
                         .number = header.number,
                         .start_s = header.start_s,
                         .time_s = header.time_s};
  if (header.elsewhere > 0) {
    message.payload = {.bytes = header.elsewhere, .on_device = true};
    return message;
  }
  message.payload.bytes = incoming.bytes - sizeof(header);
  message.payload.data = std::shared_ptr<void>(
      incoming.data, incoming.data.get() + sizeof(header));
  return message;
}

void ProcessEndpoint::Send(Address to, RankMessage message) {
  message.from = self_;
  if (to == self_) {
    std::lock_guard lock(mutex_);
    own_.push_back(std::move(message));
    return;
  }
  Header header;
  header.run = run_;
  header.key = message.key;
  header.number = message.number;
  header.start_s = message.start_s;
  header.time_s = message.time_s;
  header.from = message.from;
  header.index = message.index;
  header.kind = message.kind;
  const Payload& payload = message.payload;
  const size_t here = payload.data == nullptr ? 0 : payload.bytes;
  header.elsewhere = payload.bytes - here;
  job_.Send(to.replica * pp_ + to.rank, ProcessGroup::kPipeline,
            {reinterpret_cast<const char*>(&header), sizeof(header)},
            payload.data.get(), here);
}

bool ProcessEndpoint::RunsSince(Address other, double since_s) const {
  // A sign that is taken more than a period later was given later.
  return pulse_.heard_running_s(other.replica * pp_ + other.rank) >
         since_s + pulse_.period_s();
}

void ProcessEndpoint::GetsOn() { pulse_.RankGetsOn(); }

double ProcessEndpoint::ComputesSince(Address other) const {
  return pulse_.stands_since_s(other.replica * pp_ + other.rank);
}

bool ProcessEndpoint::TakeOwn(RankMessage* message) {
  std::lock_guard lock(mutex_);
  if (own_.empty()) return false;
  *message = std::move(own_.front());
  own_.pop_front();
  return true;
}

Received ProcessEndpoint::Receive(double timeout_s, RankMessage* message) {
  const double deadline_s = timeout_s > 0 ? SteadySeconds() + timeout_s : 0;
  const Pulse::Waits waits(&pulse_);
  while (true) {
    bool own = false;
    ProcessGroup::Incoming incoming;
    const double left_s =
        timeout_s > 0 ? std::max(0.0, deadline_s - SteadySeconds()) : 0;
    const Received received =
        job_.Receive(ProcessGroup::kPipeline, left_s, &incoming, [&] {
          own = TakeOwn(message);
          return own;
        });
    if (received != Received::kMessage || own) return received;
    int64_t run = 0;
    absl::StatusOr<RankMessage> read = ReadRankMessage(incoming, pp_, &run);
    if (!read.ok()) {
      job_.End(std::string(read.status().message()));
      continue;
    }
    // Left over from a run that has ended badly.
    if (run != run_) continue;
    *message = *std::move(read);
    return Received::kMessage;
  }
}

}  // namespace pipewright
