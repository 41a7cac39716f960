#include "execute/transport/socket_job.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "execute/transport/socket_peer.h"
#include "execute/transport/socket_place.h"
#include "execute/transport/steady_seconds.h"
#include "sim/base/status.h"
#include "sim/profile/transport_names.h"

namespace pipewright {
namespace {

constexpr int kHelloWaitMs = 1000;  // of somebody who may not be one of us
constexpr double kByeWait_s = 10;

// A connection counts once both have said this. So a process that gave up
// waiting and tried again does not count twice.
constexpr char kHere = 'h';

enum class Answer : int32_t { kWelcome, kTaken, kOtherCount };

// A process sends this to the one that it connects to, and gets it back.
struct Hello {
  char number[kJobNumberLetters] = {};
  int32_t process = 0;
  int32_t processes = 0;
  Answer answer = Answer::kWelcome;  // of the one that hears it first
};

void Nap() {
  const timespec rest = {.tv_sec = 0, .tv_nsec = 10'000'000};
  nanosleep(&rest, nullptr);
}

// Exactly `bytes` within kHelloWaitMs; a connection that is not ours may say
// nothing.
bool ReadAll(int file, void* into, size_t bytes) {
  auto* at = static_cast<char*>(into);
  while (bytes > 0) {
    pollfd ready = {.fd = file, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, kHelloWaitMs) <= 0) return false;
    const ssize_t got = ::recv(file, at, bytes, 0);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool WriteAll(int file, const void* from, size_t bytes) {
  return ::send(file, from, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
}

// The one job that a process can be part of.
class SocketJob {
 public:
  static SocketJob& The() {
    static SocketJob* const job = new SocketJob;
    return *job;
  }

  SocketOptions options;
  std::string error;
  absl::StatusCode code = absl::StatusCode::kUnavailable;

  int Fail(std::string text) {
    error = std::move(text);
    return -1;
  }

  int Start() {
    deadline_s_ = SteadySeconds() + options.timeout_s;
    if (!Listen()) return Fail("cannot listen on a port");
    const std::string own_path =
        options.process == 0 ? options.path
                             : absl::StrCat(options.path, ".", options.process);
    if (options.process == 0) {
      unsigned char drawn[sizeof(Hello::number) / 2];
      if (::getrandom(drawn, sizeof(drawn), 0) !=
          static_cast<ssize_t>(sizeof(drawn))) {
        return Fail("no random numbers");
      }
      number_ = absl::BytesToHexString(absl::string_view(
          reinterpret_cast<const char*>(drawn), sizeof(drawn)));
    } else if (!Reach(0, options.path)) {
      return Missing();
    }
    const absl::Status wrote =
        WriteJobPlace(own_path, {number_, OwnAddresses(), port_});
    if (!wrote.ok()) {
      code = wrote.code();
      return Fail(std::string(wrote.message()));
    }
    bool all = true;
    for (int process = 1; process < options.process && all; ++process) {
      all = Reach(process, absl::StrCat(options.path, ".", process));
    }
    if (all) all = Admit();
    // No process looks for this file any more.
    if (ReadJobPlace(own_path).number == number_) ::unlink(own_path.c_str());
    ::close(listener_);
    return all ? 0 : Missing();
  }

  int Send(int to, int tag, const void* head, size_t head_bytes,
           const void* body, size_t body_bytes) {
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
    for (const auto& [process, peer] : peers_) {
      if (!peer->gone()) continue;
      return Fail(absl::StrCat("process ", process,
                               " of the job is gone without a word"));
    }
    return 0;
  }

  int Receive(void* into) {
    std::memcpy(into, probed_.data(), probed_.size());
    return 0;
  }

  int Unsent() {
    int count = 0;
    for (auto& [process, peer] : peers_) {
      peer->Pump();
      if (peer->unsent() && !peer->gone()) ++count;
    }
    return count;
  }

  bool HasLeft(int process, int tag) {
    const auto found = peers_.find(process);
    if (found == peers_.end()) return false;  // this process itself
    SocketPeer& peer = *found->second;
    peer.Pump();
    // One that is gone without a word ends the job (Probe).
    return peer.closed() && !peer.gone() && peer.frames(tag).empty();
  }

  // Says goodbye and gives the others `wait_s` to take what they have been
  // sent; with `all` also to say goodbye.
  void Leave(double wait_s, bool all) {
    for (auto& [process, peer] : peers_) {
      peer->Put(SocketPeer::kBye, nullptr, 0, nullptr, 0);
    }
    const double until_s = SteadySeconds() + wait_s;
    const auto waits = [&] {
      return Unsent() > 0 ||
             (all &&
              std::any_of(peers_.begin(), peers_.end(), [](const auto& each) {
                return !each.second->closed();
              }));
    };
    while (waits() && SteadySeconds() < until_s) Nap();
    peers_.clear();
  }

 private:
  bool Listen() {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t length = sizeof(address);
    if (listener_ < 0 ||
        ::bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        ::listen(listener_, options.processes) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address),
                      &length) != 0) {
      return false;
    }
    port_ = ntohs(address.sin_port);
    return true;
  }

  int Missing() {
    if (!error.empty()) return -1;
    std::vector<std::string> missing;
    for (int process = 0; process < options.processes; ++process) {
      if (process == options.process || peers_.contains(process)) continue;
      missing.push_back(absl::StrCat(process));
    }
    return Fail(absl::StrCat("--bootstrap file:", options.path, ": process ",
                             absl::StrJoin(missing, ", "), " of ",
                             options.processes, " has not come within ",
                             options.timeout_s, " s"));
  }

  void Keep(int process, int file) {
    const int one = 1;
    ::setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    peers_[process] = std::make_unique<SocketPeer>(file);
  }

  bool MayWait() {
    if (ProcessGroup::Terminated()) {
      Fail("the job is ended from outside (SIGTERM) before all have come");
    }
    return error.empty() && SteadySeconds() < deadline_s_;
  }

  // A mistake on the command line, of this process or of another.
  bool Refuse(std::string text) {
    code = absl::StatusCode::kInvalidArgument;
    Fail(std::move(text));
    return false;
  }

  bool OtherCount(const Hello& theirs) {
    return Refuse(absl::StrCat("--ranks: ", options.processes,
                               " is not allowed; allowed: ", theirs.processes,
                               ", as process ", theirs.process, " has it"));
  }

  Hello Own(Answer answer) const {
    Hello hello = {.process = options.process,
                   .processes = options.processes,
                   .answer = answer};
    std::memcpy(hello.number, number_.data(), sizeof(hello.number));
    return hello;
  }

  // A lower process, which listens and will answer.
  bool Reach(int process, const std::string& path) {
    while (MayWait()) {
      const JobPlace place = ReadJobPlace(path);
      if (process == 0) number_ = place.number;
      if (!place.number.empty() && place.number == number_) {
        for (const std::string& address : place.addresses) {
          if (TryReach(process, address, place.port)) return true;
        }
      }
      Nap();
    }
    return false;
  }

  bool TryReach(int process, const std::string& address, int port) {
    const int file = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (file < 0) return false;
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    // connect() too gives up after it.
    const timeval wait = {.tv_sec = kHelloWaitMs / 1000, .tv_usec = 0};
    ::setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
    const Hello own = Own(Answer::kWelcome);
    Hello theirs;
    const bool answers =
        inet_pton(AF_INET, address.c_str(), &to.sin_addr) == 1 &&
        ::connect(file, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0 &&
        WriteAll(file, &own, sizeof(own)) &&
        ReadAll(file, &theirs, sizeof(theirs)) && Knows(theirs) &&
        theirs.process == process;
    if (answers && theirs.answer == Answer::kWelcome &&
        WriteAll(file, &kHere, 1)) {
      Keep(process, file);
      return true;
    }
    ::close(file);
    if (answers && theirs.answer == Answer::kOtherCount) {
      return OtherCount(theirs);
    }
    if (answers && theirs.answer == Answer::kTaken) {
      return Refuse(absl::StrCat("--rank: ", options.process,
                                 " is not allowed; another process of the job "
                                 "has this number"));
    }
    return false;
  }

  bool Knows(const Hello& hello) const {
    return std::memcmp(hello.number, number_.data(), sizeof(hello.number)) == 0;
  }

  Answer AnswerTo(const Hello& theirs) const {
    if (theirs.processes != options.processes) return Answer::kOtherCount;
    const bool awaited = theirs.process > options.process &&
                         theirs.process < options.processes &&
                         !peers_.contains(theirs.process);
    return awaited ? Answer::kWelcome : Answer::kTaken;
  }

  // All higher processes.
  bool Admit() {
    const auto come = [&] {
      return static_cast<int>(peers_.size()) + 1 == options.processes;
    };
    while (!come() && MayWait()) {
      const std::string written =
          options.process == 0 ? ReadJobPlace(options.path).number : number_;
      if (!written.empty() && written != number_) {
        return Refuse(
            absl::StrCat("--rank: 0 is not allowed; another process "
                         "has this number: it has written ",
                         options.path));
      }
      pollfd ready = {.fd = listener_, .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, 100) <= 0) continue;
      const int file = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (file < 0) continue;
      Hello theirs;
      char here = 0;
      const bool knows =
          ReadAll(file, &theirs, sizeof(theirs)) && Knows(theirs);
      const Answer answer = knows ? AnswerTo(theirs) : Answer::kTaken;
      const Hello own = Own(answer);
      if (knows && WriteAll(file, &own, sizeof(own)) &&
          answer == Answer::kWelcome && ReadAll(file, &here, 1)) {
        Keep(theirs.process, file);
        continue;
      }
      ::close(file);
      if (knows && answer == Answer::kOtherCount) return OtherCount(theirs);
    }
    return come();
  }

  double deadline_s_ = 0;
  std::string number_;
  int listener_ = -1;
  int port_ = 0;
  std::map<int, std::unique_ptr<SocketPeer>> peers_;
  std::string probed_;
};

int Transfer(PwTransfer, size_t, int, double*) {
  SocketJob::The().error = "sockets have no transfers to measure";
  return -1;
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
          SocketJob::The().Leave(kByeWait_s, /*all=*/true);
          return 0;
        },
    .transfer = Transfer,
    .version = [] { return kSocketsTransport; },
    .leave = [] { SocketJob::The().Leave(1, /*all=*/false); },
    .error = [] { return SocketJob::The().error.c_str(); },
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateSocketJob(
    const SocketOptions& options) {
  SocketJob& job = SocketJob::The();
  job.options = options;
  absl::StatusOr<std::unique_ptr<ProcessGroup>> made =
      ProcessGroup::Create(&kTable, kSocketsTransport, "--ranks");
  if (!made.ok() && !job.error.empty()) {
    return absl::Status(job.code, job.error);
  }
  return made;
}

}  // namespace pipewright
