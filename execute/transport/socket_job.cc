#include "execute/transport/socket_job.h"

#include <time.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "execute/transport/socket_peer.h"
#include "execute/transport/steady_seconds.h"
#include "sim/profile/profile.h"

namespace pipewright {
namespace {

constexpr double kByeWait_s = 10;

void Nap() {
  const timespec rest = {.tv_sec = 0, .tv_nsec = 5'000'000};
  nanosleep(&rest, nullptr);
}

// The one job that a process can be part of.
class SocketJob {
 public:
  static SocketJob& The() {
    static SocketJob* const job = new SocketJob;
    return *job;
  }

  SocketOptions options;
  absl::Status failure;
  std::string error;  // its message

  int Fail(absl::Status status) {
    failure = std::move(status);
    error = std::string(failure.message());
    return -1;
  }

  int Start() {
    absl::Status met = MeetBySockets(options, &peers_);
    return met.ok() ? 0 : Fail(std::move(met));
  }

  int Send(int to, int tag, const void* head, size_t head_bytes,
           const void* body, size_t body_bytes) {
    if (head_bytes + body_bytes > FrameReader::kMostBytes) {
      return Fail(absl::UnavailableError(absl::StrCat(
          "a message of ", head_bytes + body_bytes,
          " bytes; a message has at most ", FrameReader::kMostBytes)));
    }
    peers_.at(to)->Put(tag, head, head_bytes, body, body_bytes);
    return 0;
  }

  int Probe(int tag, int* from, size_t* bytes) {
    for (auto& [process, peer] : peers_) {
      peer->Pump();
      std::deque<std::string>& frames = peer->frames(tag);
      if (frames.empty()) continue;
      *from = process;
      probed_ = std::move(frames.front());
      frames.pop_front();
      *bytes = probed_.size();
      return 1;
    }
    absl::Status loss = FirstLoss(peers_);
    return loss.ok() ? 0 : Fail(std::move(loss));
  }

  int Receive(void* into) {
    std::memcpy(into, probed_.data(), probed_.size());
    return 0;
  }

  int Unsent() {
    int count = 0;
    for (auto& [process, peer] : peers_) {
      peer->Pump();
      if (peer->unsent() && !peer->closed()) ++count;
    }
    return count;
  }

  bool HasLeft(int process, int tag) {
    const auto found = peers_.find(process);
    if (found == peers_.end()) return false;  // this process itself
    SocketPeer& peer = *found->second;
    peer.Pump();
    // A loss ends the job (Probe).
    return peer.closed() && peer.Loss().ok() && peer.frames(tag).empty();
  }

  // Says goodbye, with what has ended the job if something has, and gives the
  // others `wait_s` to take what they have been sent; with `all` also to say
  // goodbye.
  void Leave(const std::string& why, double wait_s, bool all) {
    const absl::Status ended =
        !failure.ok() || why.empty()
            ? failure
            : absl::UnavailableError(
                  absl::StrCat("process ", options.process, ": ", why));
    for (auto& [process, peer] : peers_) peer->Bye(ended);
    const double until_s = SteadySeconds() + wait_s;
    const auto waits = [&] {
      return std::any_of(peers_.begin(), peers_.end(), [all](const auto& each) {
        SocketPeer& peer = *each.second;
        peer.Pump();
        return peer.undelivered() || (all && !peer.closed());
      });
    };
    while (waits() && SteadySeconds() < until_s &&
           !(all && ProcessGroup::Terminated())) {
      Nap();
    }
    peers_.clear();
  }

 private:
  SocketPeers peers_;
  std::string probed_;
};

int Transfer(PwTransfer, size_t, int, double*) {
  return SocketJob::The().Fail(
      absl::UnavailableError("sockets have no transfers to measure"));
}

const PwProcesses kTable = {
    .abi = PW_MPI_ABI,
    .start = [] { return SocketJob::The().Start(); },
    .process = [] { return SocketJob::The().options.process; },
    .processes = [] { return SocketJob::The().options.processes; },
    .send =
        [](int to, int tag, const void* head, size_t head_bytes,
           const void* body, size_t body_bytes) {
          return SocketJob::The().Send(to, tag, head, head_bytes, body,
                                       body_bytes);
        },
    .probe =
        [](int tag, int* from, size_t* bytes) {
          return SocketJob::The().Probe(tag, from, bytes);
        },
    .receive = [](void* into) { return SocketJob::The().Receive(into); },
    .received = [](int) { return 1; },
    .unsent = [] { return SocketJob::The().Unsent(); },
    .has_left =
        [](int process, int tag) {
          return SocketJob::The().HasLeft(process, tag) ? 1 : 0;
        },
    // finish waits for the others, and no longer than it should.
    .has_ended = [] { return 1; },
    .finish =
        [] {
          SocketJob::The().Leave("", kByeWait_s, /*all=*/true);
          return 0;
        },
    .transfer = Transfer,
    .version = [] { return kSocketsTransport; },
    .leave = [](const char* why) { SocketJob::The().Leave(why, 1, false); },
    .error = [] { return SocketJob::The().error.c_str(); },
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateSocketJob(
    const SocketOptions& options) {
  SocketJob& job = SocketJob::The();
  job.options = options;
  absl::StatusOr<std::unique_ptr<ProcessGroup>> made =
      ProcessGroup::Create(&kTable, kSocketsTransport, "--ranks");
  if (!made.ok() && !job.failure.ok()) return job.failure;
  return made;
}

}  // namespace pipewright
