// Processes that find each other by a file while strangers connect, or one of
// them dies.
#include "execute/transport/socket_meeting.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "execute/transport/socket_job.h"
#include "execute/transport/socket_place.h"
#include "execute/transport/wire.h"
#include "sim/base/check.h"
#include "tests/support/run_binary.h"

namespace pipewright::socket_meeting_test {
namespace {

// What hangs fails by it.
constexpr double kTimeout_s = 100;

void Nap() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

// Processes of one job as threads of this one; or of their own, to be killed.
class Meeting {
 public:
  explicit Meeting(int processes) : processes_(processes) {}
  ~Meeting() {
    for (const auto& [process, pid] : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

  std::string PathOf(int process) const {
    const std::string path = folder_.Path("job");
    return process == 0 ? path : absl::StrCat(path, ".", process);
  }
  void Start(int process) {
    const SocketOptions options = {.path = PathOf(0),
                                   .process = process,
                                   .processes = processes_,
                                   .timeout_s = kTimeout_s,
                                   .late_s = 3};
    met_[process] = std::async(std::launch::async, [this, options] {
      SocketPeers& peers = peers_[options.process];
      absl::Status met = MeetBySockets(options, &peers);
      if (met.ok()) ++num_met_;
      // As in a job: it stays with the others.
      while (met.ok() && num_met_ < processes_) {
        for (auto& [other, peer] : peers) peer->Pump();
        met = FirstLoss(peers);
        Nap();
      }
      for (auto& [other, peer] : peers) peer->Bye(met);
      return met;
    });
  }
  void StartOwnProcess(int process) {
    const pid_t pid = ::fork();
    PW_CHECK(pid >= 0);
    if (pid > 0) {
      pids_[process] = pid;
      return;
    }
    ::setenv("MEETING_PATH", PathOf(0).c_str(), 1);
    ::setenv("MEETING_PROCESS", std::to_string(process).c_str(), 1);
    ::setenv("MEETING_PROCESSES", std::to_string(processes_).c_str(), 1);
    ::dup2(::open("/dev/null", O_WRONLY), 1);
    // Under nohup it would be ignored.
    ::signal(SIGHUP, SIG_DFL);
    ::execl("/proc/self/exe", "pipewright_tests",
            "meeting: a process of its own", nullptr);
    ::_exit(127);
  }
  // Until it listens; those above 0 then have a connection with process 0.
  JobPlace AwaitPlace(int process) const {
    JobPlace place;
    for (int naps = 0; naps < 50'000 && place.number.empty(); ++naps) {
      Nap();
      place = ReadJobPlace(PathOf(process));
    }
    REQUIRE(!place.number.empty());
    return place;
  }
  void Kill(int process, int signal) const {
    ::kill(pids_.at(process), signal);
  }
  absl::Status Await(int process) { return met_.at(process).get(); }
  size_t NumPeers(int process) { return peers_[process].size(); }
  std::vector<std::string> Files() const { return folder_.Files(); }

 private:
  const testing::TemporaryFolder folder_;
  const int processes_;
  std::map<int, pid_t> pids_;
  std::atomic<int> num_met_ = 0;
  // All there before threads use them.
  std::vector<SocketPeers> peers_ = std::vector<SocketPeers>(processes_);
  std::map<int, std::future<absl::Status>> met_;
};

// Runs in a process of its own.
TEST_CASE("meeting: a process of its own", "[.]") {
  const char* const path = ::getenv("MEETING_PATH");
  const char* const process = ::getenv("MEETING_PROCESS");
  const char* const processes = ::getenv("MEETING_PROCESSES");
  if (path == nullptr || process == nullptr || processes == nullptr) return;
  const auto job = CreateSocketJob({.path = path,
                                    .process = ::atoi(process),
                                    .processes = ::atoi(processes),
                                    .timeout_s = kTimeout_s});
  // It stays until it is told to go.
  ProcessGroup::Incoming incoming;
  while (job.ok() && (*job)->Receive(ProcessGroup::kPulse, 1, &incoming) !=
                         Received::kEnded) {
  }
}

// A connection of somebody who does not belong to the job.
class Stranger {
 public:
  explicit Stranger(const JobPlace& place)
      : file_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(place.port));
    PW_CHECK(inet_pton(AF_INET, place.address.c_str(), &to.sin_addr) == 1);
    // When all have met nobody listens, and what is said is lost.
    static_cast<void>(
        ::connect(file_, reinterpret_cast<sockaddr*>(&to), sizeof(to)));
  }
  ~Stranger() { ::close(file_); }
  Stranger(const Stranger&) = delete;
  bool Say(absl::string_view bytes) const {
    return ::send(file_, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0;
  }
  // Until the other end closes.
  void AwaitEnd() const {
    char byte = 0;
    while (::recv(file_, &byte, 1, 0) > 0) continue;
  }

 private:
  const int file_;
};

TEST_CASE("meeting: strangers keep nobody from it", "[execute][sockets]") {
  Meeting meeting(3);
  meeting.Start(0);
  const JobPlace place = meeting.AwaitPlace(0);
  // Bytes one by one, and never a whole greeting for long.
  std::atomic<bool> over = false;
  std::vector<std::thread> slow;
  for (int count = 0; count < 3; ++count) {
    slow.emplace_back([&] {
      while (!over) {
        const Stranger stranger(place);
        while (!over && stranger.Say("a")) {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
      }
    });
  }
  std::vector<std::unique_ptr<Stranger>> silent;
  for (int count = 0; count < 300; ++count) {
    silent.push_back(std::make_unique<Stranger>(place));
  }
  const Stranger giant(place);
  WireWriter head;
  head.Put(FrameReader::HeadOf(0, uint64_t{1} << 60));
  giant.Say(head.bytes() + std::string(1 << 20, 'x'));
  giant.AwaitEnd();
  // One deadline for all that is said, not one for each byte.
  const Stranger trickles(place);
  int said = 0;
  while (trickles.Say("a")) {
    ++said;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  CHECK(said < 44);
  const Stranger wrong(place);
  wrong.Say(std::string(4096, '0'));
  wrong.AwaitEnd();
  meeting.Start(1);
  meeting.Start(2);
  for (const int process : {0, 1, 2}) {
    const absl::Status met = meeting.Await(process);
    INFO(process << ": " << met);
    CHECK(met.ok());
    CHECK(meeting.NumPeers(process) == 2);
  }
  over = true;
  for (std::thread& thread : slow) thread.join();
  CHECK(meeting.Files().empty());
}

// Process 2 comes when all is over, and gets to know it as well.
TEST_CASE("meeting: all name the process that ends meanwhile",
          "[execute][sockets]") {
  for (const int victim : {0, 1, 3}) {
    for (const int signal : {SIGTERM, SIGKILL, SIGHUP}) {
      INFO("victim " << victim << ", signal " << signal);
      Meeting meeting(4);
      for (const int process : {0, 1, 3}) {
        if (process == victim) {
          meeting.StartOwnProcess(process);
        } else {
          meeting.Start(process);
        }
      }
      for (const int process : {0, 1, 3}) meeting.AwaitPlace(process);
      meeting.Kill(victim, signal);
      meeting.Start(2);
      for (const int process : {0, 1, 2, 3}) {
        if (process == victim) continue;
        const absl::Status met = meeting.Await(process);
        INFO(process << ": " << met);
        CHECK(met.code() == absl::StatusCode::kUnavailable);
        CHECK(
            absl::StartsWith(met.message(), absl::StrCat("process ", victim)));
        CHECK(absl::StrContains(met.message(), signal == SIGTERM
                                                   ? "(SIGTERM)"
                                                   : "gone without a word"));
      }
    }
  }
}

// It has a number, but not a whole greeting.
TEST_CASE("meeting: who ends in the middle of its greeting is missed",
          "[execute][sockets]") {
  Meeting meeting(3);
  meeting.Start(0);
  const JobPlace place = meeting.AwaitPlace(0);
  {
    const Stranger known(place);
    WireWriter greeting;
    greeting.Put(int32_t{2});
    greeting.Put(int32_t{3});
    greeting.Put(int32_t{0});
    known.Say(place.number + greeting.bytes());
    meeting.Start(1);
    meeting.AwaitPlace(1);
  }
  for (const int process : {0, 1}) {
    const absl::Status met = meeting.Await(process);
    INFO(process << ": " << met);
    CHECK(met.message() == "process 2 of the job is gone without a word");
  }
}

TEST_CASE("meeting: only those are missed that are", "[execute][sockets]") {
  Meeting meeting(4);
  std::vector<std::future<absl::Status>> met;
  std::vector<SocketPeers> peers(4);
  for (const int process : {0, 2, 3}) {
    met.push_back(std::async(std::launch::async, [&, process] {
      absl::Status status = MeetBySockets({.path = meeting.PathOf(0),
                                           .process = process,
                                           .processes = 4,
                                           .timeout_s = 4},
                                          &peers[process]);
      for (auto& [other, peer] : peers[process]) peer->Bye(status);
      return status;
    }));
  }
  for (auto& each : met) {
    const std::string text(each.get().message());
    INFO(text);
    CHECK(absl::StrContains(text, ": process 1 of 4 has not come within 4 s"));
  }
}

TEST_CASE("meeting: a process listens where it is told to",
          "[execute][sockets]") {
  CHECK(*ListenAddress("") == "127.0.0.1");
  CHECK(*ListenAddress("lo") == "127.0.0.1");
  CHECK(*ListenAddress("127.0.0.1") == "127.0.0.1");
  for (const char* const bad : {"eth77", "8.8.8.8", "0.0.0.0", "localhost"}) {
    const absl::Status status = ListenAddress(bad).status();
    INFO(status);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(status.message(), absl::StrCat("--listen: ", bad)));
    CHECK(absl::StrContains(status.message(), "lo"));
  }
  // What is written is where it listens, for its owner to read.
  Meeting meeting(2);
  meeting.Start(0);
  CHECK(meeting.AwaitPlace(0).address == "127.0.0.1");
  meeting.Start(1);
  CHECK(meeting.Await(0).ok());
  CHECK(meeting.Await(1).ok());
}

}  // namespace
}  // namespace pipewright::socket_meeting_test
