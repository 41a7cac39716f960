#include "execute/transport/socket_meeting.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "execute/transport/process_group.h"
#include "execute/transport/socket_place.h"
#include "execute/transport/steady_seconds.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr int kLookMs = 20;  // how often files and connections are looked at
// From the first to the last word of a connection. Who is reached waits longer
// than who reaches out, and so has always heard what that one has said last.
constexpr double kReach_s = 2;
constexpr double kReached_s = 2 * kReach_s;
// How long one may take to come back that went in the middle of its words.
constexpr double kBack_s = 1;
// Between two tries to reach one process.
constexpr double kPause_s = 0.05;
// Connections that have not yet said the number. One more, and the oldest goes.
constexpr int kMostStrangers = 128;

// A connection counts once both have said this. So a process that gave up
// waiting and tried again does not count twice.
constexpr char kHere = 'h';

enum class Answer : int32_t { kWelcome, kTaken, kOtherCount };

// A process sends this to the one that it connects to, and gets it back.
struct Hello {
  char number[kJobNumberLetters] = {};
  int32_t process = 0;
  int32_t processes = 0;
  Answer answer = Answer::kWelcome;  // given by the one that hears it first
};

// A connection of which not all has been said.
struct Greeting {
  explicit Greeting(int opened) : file(opened) {}
  ~Greeting() {
    if (file >= 0) ::close(file);
  }
  Greeting(const Greeting&) = delete;
  bool reaches() const { return process >= 0; }
  int Release() { return std::exchange(file, -1); }

  int file;
  int process = -1;  // that this one reaches out for; -1: who has come
  JobPlace place;    // that process's
  bool connects = false;
  bool welcome = false;  // has come and said the number
  bool ended = false;
  double deadline_s = 0;
  Hello theirs;
  size_t heard = 0;  // bytes of it
};

// Takes as long whatever the first difference is.
bool SameNumber(const char* one, const std::string& other) {
  if (other.size() != kJobNumberLetters) return false;
  int differs = 0;
  for (size_t at = 0; at < kJobNumberLetters; ++at)
    differs |= one[at] ^ other[at];
  return differs == 0;
}

class SocketMeeting {
 public:
  SocketMeeting(const SocketOptions& options, SocketPeers* peers)
      : options_(options),
        deadline_s_(SteadySeconds() + options.timeout_s),
        own_path_(PathOf(options.process)),
        peers_(*peers) {}
  ~SocketMeeting() {
    if (listener_ >= 0) ::close(listener_);
  }
  SocketMeeting(const SocketMeeting&) = delete;

  absl::Status Meet() {
    PW_ASSIGN_OR_RETURN(own_.address, ListenAddress(options_.listen));
    own_.machine = MachineName();
    PW_RETURN_IF_ERROR(Listen());
    if (options_.process == 0) {
      PW_RETURN_IF_ERROR(DrawNumber());
      PW_RETURN_IF_ERROR(WriteJobPlace(own_path_, own_));
    }
    absl::Status met;
    while (met.ok() && !AllHaveCome()) {
      met = MayWait();
      if (met.ok()) met = Turn();
    }
    if (!met.ok()) TellLate(met);
    // No process looks for this file any more.
    RemovePlace(options_.process);
    return met;
  }

 private:
  std::string PathOf(int process) const {
    return process == 0 ? options_.path
                        : absl::StrCat(options_.path, ".", process);
  }

  absl::Status Listen() {
    listener_ =
        ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    socklen_t length = sizeof(address);
    if (listener_ < 0 ||
        inet_pton(AF_INET, own_.address.c_str(), &address.sin_addr) != 1 ||
        ::bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        ::listen(listener_, SOMAXCONN) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address),
                      &length) != 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen at ", own_.address));
    }
    own_.port = ntohs(address.sin_port);
    return absl::OkStatus();
  }

  absl::Status DrawNumber() {
    unsigned char drawn[kJobNumberLetters / 2];
    if (::getrandom(drawn, sizeof(drawn), 0) !=
        static_cast<ssize_t>(sizeof(drawn))) {
      return absl::UnavailableError("no random numbers");
    }
    own_.number = absl::BytesToHexString(
        absl::string_view(reinterpret_cast<const char*>(drawn), sizeof(drawn)));
    return absl::OkStatus();
  }

  bool AllHaveCome() const {
    return static_cast<int>(peers_.size()) + 1 == options_.processes;
  }

  void RemovePlace(int process) const {
    const std::string path = PathOf(process);
    const JobPlace place = ReadJobPlace(path);
    // Several may speak for process 0; each removes what it has written.
    if (!own_.number.empty() && place.number == own_.number &&
        (process > 0 || place == own_)) {
      ::unlink(path.c_str());
    }
  }

  // Why this process has nothing to wait for.
  absl::Status MayWait() {
    if (ProcessGroup::Terminated()) {
      return absl::UnavailableError(
          absl::StrCat("process ", options_.process,
                       ": the job is ended from outside (SIGTERM) before all "
                       "have come"));
    }
    PW_RETURN_IF_ERROR(FirstLoss(peers_));
    const double now_s = SteadySeconds();
    for (const auto& [process, back_s] : went_) {
      if (now_s < back_s) continue;
      return absl::UnavailableError(absl::StrCat(
          "process ", process, " of the job is gone without a word"));
    }
    for (const auto& [process, peer] : peers_) {
      if (!peer->closed()) continue;
      return absl::UnavailableError(
          absl::StrCat("process ", process, ": has left before all have come"));
    }
    if (options_.process == 0) {
      const std::string written = ReadJobPlace(options_.path).number;
      if (!written.empty() && written != own_.number) {
        return absl::InvalidArgumentError(
            absl::StrCat("--rank: 0 is not allowed; another process "
                         "has this number: it has written ",
                         options_.path));
      }
    }
    return now_s < deadline_s_ ? absl::OkStatus() : Missing();
  }

  absl::Status Missing() {
    late_ = true;
    std::vector<std::string> missing;
    std::string hint;
    const bool knows = options_.process == 0 || peers_.contains(0);
    for (int process = 0; process < options_.processes; ++process) {
      if (process == options_.process || peers_.contains(process)) continue;
      // Before it has reached process 0 it knows of no other.
      if (!knows && process > 0) break;
      missing.push_back(absl::StrCat(process));
      if (process > options_.process || !hint.empty()) continue;
      const JobPlace place = ReadJobPlace(PathOf(process));
      if (place.number.empty()) continue;
      hint = absl::StrCat("; by its file it listens at ", place.address,
                          " port ", place.port);
      if (IsLoopback(place.address) && place.machine != own_.machine) {
        absl::StrAppend(&hint,
                        " of another machine: give all processes --listen "
                        "with an interface between the machines");
      }
    }
    return absl::UnavailableError(
        absl::StrCat("--bootstrap file:", options_.path, ": process ",
                     absl::StrJoin(missing, ", "), " of ", options_.processes,
                     " has not come within ", options_.timeout_s, " s", hint));
  }

  // Who comes late gets a connection, and is told on it what has happened.
  void TellLate(const absl::Status& why) {
    const bool zero_is_gone = peers_.contains(0) && peers_.at(0)->closed() &&
                              !peers_.at(0)->is_told();
    if (zero_is_gone && !AllHaveCome() &&
        ReadJobPlace(options_.path).number == own_.number &&
        WriteJobPlace(options_.path, own_).ok()) {
      speaks_for_zero_ = true;
    }
    const auto tell = [&] {
      // For these the connection may count already.
      for (Greeting& each : greetings_) {
        if (each.welcome && !each.ended) {
          Keep(each.theirs.process, each.Release());
          each.ended = true;
        }
      }
      for (auto& [process, peer] : peers_) peer->Bye(why);
    };
    tell();
    ended_ = true;
    // Process 0 does not know of one that ends before it has reached it.
    const auto stays = [&] {
      if (late_ || AllHaveCome()) return false;
      if (options_.process == 0 || speaks_for_zero_) {
        const std::string written = ReadJobPlace(options_.path).number;
        return written == own_.number;
      }
      return !peers_.contains(0) && !ReadJobPlace(options_.path).number.empty();
    };
    const double until_s = SteadySeconds() + options_.late_s;
    while (stays() && SteadySeconds() < until_s) {
      Turn().IgnoreError();
      tell();
    }
    if (options_.process != 0 && !speaks_for_zero_) return;
    for (int process = 0; process < options_.processes; ++process) {
      RemovePlace(process);
    }
  }

  // Waits a moment and takes all on that can be.
  absl::Status Turn() {
    PW_RETURN_IF_ERROR(ReachOut());
    std::vector<pollfd> files = {
        {.fd = listener_, .events = POLLIN, .revents = 0}};
    for (const Greeting& each : greetings_) {
      files.push_back(
          {.fd = each.file,
           .events = static_cast<short>(each.connects ? POLLOUT : POLLIN),
           .revents = 0});
    }
    ::poll(files.data(), files.size(), kLookMs);
    size_t at = 1;
    const double now_s = SteadySeconds();
    for (Greeting& each : greetings_) {
      if (files[at++].revents == 0) continue;
      // Who is reached may have given up by then: its answer counts no more.
      if (each.reaches() && now_s >= each.deadline_s) continue;
      PW_RETURN_IF_ERROR(GoOn(&each));
    }
    greetings_.remove_if([&](const Greeting& each) {
      return each.ended || now_s >= each.deadline_s;
    });
    if (files[0].revents != 0) PW_RETURN_IF_ERROR(Admit());
    for (auto& [process, peer] : peers_) peer->Pump();
    return absl::OkStatus();
  }

  absl::Status Admit() {
    for (int come = 0; come < kMostStrangers; ++come) {
      const int file =
          ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (file < 0) break;
      Greeting& greeting = greetings_.emplace_back(file);
      greeting.deadline_s = SteadySeconds() + kReached_s;
      PW_RETURN_IF_ERROR(GoOn(&greeting));
      if (greeting.ended) greetings_.pop_back();
      const auto stranger = [](const Greeting& each) {
        return !each.reaches() && !each.welcome;
      };
      if (std::count_if(greetings_.begin(), greetings_.end(), stranger) >
          kMostStrangers) {
        greetings_.erase(
            std::find_if(greetings_.begin(), greetings_.end(), stranger));
      }
    }
    return absl::OkStatus();
  }

  // For lower processes, which listen and will answer: process 0 first, which
  // knows the number.
  absl::Status ReachOut() {
    const int behind = !peers_.contains(0) ? 1 : ended_ ? 0 : options_.process;
    for (int process = 0; process < std::min(behind, options_.process);
         ++process) {
      if (peers_.contains(process)) continue;
      const auto found = std::find_if(
          greetings_.begin(), greetings_.end(),
          [&](const Greeting& each) { return each.process == process; });
      const JobPlace place = ReadJobPlace(PathOf(process));
      if (found != greetings_.end()) {
        // Keeps one of the same job: who has removed or replaced the file may
        // still have something to say here.
        if (place.number.empty() || found->place.number == place.number) {
          continue;
        }
        greetings_.erase(found);
      }
      if (place.number.empty()) continue;
      if (process == 0) own_.number = place.number;
      // Somebody else may listen there by now, who closes at once.
      const double now_s = SteadySeconds();
      if (place.number != own_.number || now_s < next_s_[process]) continue;
      next_s_[process] = now_s + kPause_s;
      Connect(process, place);
    }
    return absl::OkStatus();
  }

  void Connect(int process, const JobPlace& place) {
    Greeting& greeting = greetings_.emplace_back(
        ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    greeting.process = process;
    greeting.place = place;
    greeting.connects = true;
    greeting.deadline_s = SteadySeconds() + kReach_s;
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(place.port));
    if (greeting.file < 0 ||
        inet_pton(AF_INET, place.address.c_str(), &to.sin_addr) != 1 ||
        (::connect(greeting.file, reinterpret_cast<sockaddr*>(&to),
                   sizeof(to)) != 0 &&
         errno != EINPROGRESS)) {
      greetings_.pop_back();
    }
  }

  static bool Say(const Greeting& greeting, const void* what, size_t bytes) {
    // It fits into an empty connection.
    return ::send(greeting.file, what, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(bytes);
  }

  Hello Own(Answer answer) const {
    Hello hello = {.process = speaks_for_zero_ ? 0 : options_.process,
                   .processes = options_.processes,
                   .answer = answer};
    std::memcpy(hello.number, own_.number.data(),
                std::min(own_.number.size(), sizeof(hello.number)));
    return hello;
  }

  // Takes what has come on the connection, exactly as much as is awaited: what
  // comes behind it is for the SocketPeer.
  absl::Status GoOn(Greeting* greeting) {
    if (greeting->connects) {
      int error = 0;
      socklen_t length = sizeof(error);
      const Hello own = Own(Answer::kWelcome);
      greeting->connects = false;
      greeting->ended = ::getsockopt(greeting->file, SOL_SOCKET, SO_ERROR,
                                     &error, &length) != 0 ||
                        error != 0 || !Say(*greeting, &own, sizeof(own));
      return absl::OkStatus();
    }
    while (!greeting->ended && greeting->heard < sizeof(Hello)) {
      if (!Hear(greeting,
                reinterpret_cast<char*>(&greeting->theirs) + greeting->heard,
                sizeof(Hello) - greeting->heard)) {
        return absl::OkStatus();
      }
      if (greeting->heard < sizeof(Hello)) continue;
      PW_RETURN_IF_ERROR(greeting->reaches() ? TakeAnswer(greeting)
                                             : TakeHello(greeting));
    }
    char here = 0;
    if (!greeting->ended && Hear(greeting, &here, 1)) {
      if (here == kHere) {
        Keep(greeting->theirs.process, greeting->Release());
      }
      greeting->ended = true;
    }
    return absl::OkStatus();
  }

  // False when nothing has come, or nothing will.
  bool Hear(Greeting* greeting, char* into, size_t bytes) {
    const ssize_t got = ::recv(greeting->file, into, bytes, MSG_DONTWAIT);
    if (got > 0) {
      greeting->heard += static_cast<size_t>(got);
      return true;
    }
    if (got < 0 &&
        (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
      return false;
    }
    greeting->ended = true;
    if (greeting->welcome) {
      went_.emplace(greeting->theirs.process, SteadySeconds() + kBack_s);
    }
    return false;
  }

  absl::Status TakeHello(Greeting* greeting) {
    const Hello& theirs = greeting->theirs;
    greeting->ended = !SameNumber(theirs.number, own_.number);
    if (greeting->ended) return absl::OkStatus();
    const bool awaited =
        theirs.process > 0 && theirs.process != options_.process &&
        theirs.process < options_.processes && !peers_.contains(theirs.process);
    const Answer answer = theirs.processes != options_.processes
                              ? Answer::kOtherCount
                          : awaited ? Answer::kWelcome
                                    : Answer::kTaken;
    const Hello own = Own(answer);
    greeting->welcome =
        Say(*greeting, &own, sizeof(own)) && answer == Answer::kWelcome;
    greeting->ended = !greeting->welcome;
    return answer == Answer::kOtherCount ? OtherCount(theirs)
                                         : absl::OkStatus();
  }

  absl::Status TakeAnswer(Greeting* greeting) {
    greeting->ended = true;
    const Hello& theirs = greeting->theirs;
    if (!SameNumber(theirs.number, own_.number) ||
        theirs.process != greeting->process) {
      return absl::OkStatus();
    }
    switch (theirs.answer) {
      case Answer::kWelcome:
        if (Say(*greeting, &kHere, 1)) {
          Keep(greeting->process, greeting->Release());
          if (greeting->process == 0 && !ended_) {
            return WriteJobPlace(own_path_, own_);
          }
        }
        return absl::OkStatus();
      case Answer::kTaken:
        return Taken(options_.process);
      case Answer::kOtherCount:
        return OtherCount(theirs);
    }
    return absl::OkStatus();
  }

  void Keep(int process, int file) {
    const int one = 1;
    ::setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    auto peer = std::make_unique<SocketPeer>(process, file);
    if (peers_.contains(process)) {
      peer->Bye(Taken(process));  // two at the same time
      return;
    }
    peers_[process] = std::move(peer);
    went_.erase(process);
  }

  // Mistakes on the command line, of this process or of another.
  static absl::Status Taken(int process) {
    return absl::InvalidArgumentError(
        absl::StrCat("--rank: ", process,
                     " is not allowed; another process of the job has this "
                     "number"));
  }
  absl::Status OtherCount(const Hello& theirs) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "--ranks: ", options_.processes, " is not allowed; allowed: ",
        theirs.processes, ", as process ", theirs.process, " has it"));
  }

  const SocketOptions options_;
  const double deadline_s_;
  const std::string own_path_;
  SocketPeers& peers_;
  int listener_ = -1;
  JobPlace own_;  // its number is that of the job
  std::list<Greeting> greetings_;
  // [process] that went in the middle of its words: by when it should be back.
  std::map<int, double> went_;
  std::map<int, double> next_s_;  // [process] when it is tried again
  bool late_ = false;   // the time for all to come is over
  bool ended_ = false;  // and others are told so
  bool speaks_for_zero_ = false;
};

}  // namespace

absl::Status MeetBySockets(const SocketOptions& options, SocketPeers* peers) {
  return SocketMeeting(options, peers).Meet();
}

}  // namespace pipewright
