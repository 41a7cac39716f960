#include "sim/analysis/sweep/child_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "sim/analysis/sweep/pool.h"
#include "sim/base/file.h"

namespace pipewright {
namespace {

// What a result may wait for others before it is sent.
constexpr size_t kFlushBytes = 48 << 10;
constexpr double kFlushSeconds = 2e-3;

void CloseOthers(std::vector<int> files) {
  std::sort(files.begin(), files.end());
  unsigned first = 3;
  for (const int file : files) {
    const auto kept = static_cast<unsigned>(file);
    if (kept > first) ::close_range(first, kept - 1, 0);
    first = std::max(first, kept + 1);
  }
  ::close_range(first, ~0U, 0);
}

double SecondsNow() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * now.tv_nsec;
}

}  // namespace

absl::StatusOr<int> StartChild(const std::vector<int>& files,
                               const std::function<void(int)>& serve) {
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    return absl::InternalError(
        absl::StrCat("no process for a worker: ", std::strerror(errno)));
  }
  if (child > 0) return static_cast<int>(child);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);
  ::signal(SIGINT, SIG_IGN);
  ::signal(SIGTERM, SIG_DFL);
  ::signal(SIGHUP, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  CloseOthers(files);
  std::vector<std::thread> threads;
  for (size_t index = 0; index + 1 < files.size(); ++index) {
    threads.emplace_back(serve, files[index]);
  }
  serve(files.back());
  for (std::thread& thread : threads) thread.join();
  ::_exit(0);
}

void ServeLane(int file, bool at_once, const EvaluateFunction& evaluate) {
  std::unordered_map<std::string, size_t> sent_shapes;
  std::string outbox;
  std::string message;
  while (true) {
    uint32_t size = 0;
    if (!ReadAll(file, &size, sizeof(size))) return;
    message.resize(size);
    if (!ReadAll(file, message.data(), size)) return;
    double flushed_s = SecondsNow();
    size_t at = 0;
    const auto take = [&](void* into, size_t bytes) {
      std::memcpy(into, message.data() + at, bytes);
      at += bytes;
    };
    while (at < message.size()) {
      uint64_t serial = 0;
      uint32_t count = 0;
      take(&serial, sizeof(serial));
      take(&count, sizeof(count));
      SweepChoices choices(count);
      take(choices.data(), count * sizeof(int32_t));
      PointResult result = evaluate(choices);
      if (!result.shape.empty()) {
        const auto [known, is_new] =
            sent_shapes.emplace(result.shape, sent_shapes.size());
        if (!is_new) result.shape = absl::StrCat("#", known->second);
      }
      const size_t start = outbox.size();
      outbox.append(sizeof(uint32_t), '\0');
      outbox.append(reinterpret_cast<const char*>(&serial), sizeof(serial));
      AppendResult(result, &outbox);
      const auto bytes =
          static_cast<uint32_t>(outbox.size() - start - sizeof(uint32_t));
      std::memcpy(outbox.data() + start, &bytes, sizeof(bytes));
      const bool due = at_once || at == message.size() ||
                       outbox.size() > kFlushBytes ||
                       SecondsNow() - flushed_s > kFlushSeconds;
      if (!due) continue;
      if (!SendAll(file, outbox)) return;
      outbox.clear();
      flushed_s = SecondsNow();
    }
  }
}

}  // namespace pipewright
