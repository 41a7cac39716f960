#include "sim/analysis/sweep/pool_server.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/analysis/sweep/child_process.h"
#include "sim/base/file.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

template <typename Value>
void PutValue(const Value& value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename Value>
bool GetValue(absl::string_view* bytes, Value* value) {
  if (bytes->size() < sizeof(*value)) return false;
  std::memcpy(value, bytes->data(), sizeof(*value));
  bytes->remove_prefix(sizeof(*value));
  return true;
}

std::string Framed(absl::string_view bytes) {
  std::string message;
  PutValue(static_cast<uint32_t>(bytes.size()), &message);
  message.append(bytes.data(), bytes.size());
  return message;
}

// Adds what has come to `inbox`; false at the end.
bool ReceiveMore(int file, std::string* inbox) {
  char buffer[64 << 10];
  while (true) {
    const ssize_t got = ::recv(file, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (got == 0) return false;
    inbox->append(buffer, static_cast<size_t>(got));
  }
}

// The bytes of whole frames, taken out of `inbox`.
std::string WholeFrames(std::string* inbox) {
  std::string bytes;
  absl::string_view rest = *inbox;
  while (true) {
    absl::string_view frame = rest;
    uint32_t size = 0;
    if (!GetValue(&frame, &size) || frame.size() < size) break;
    bytes.append(frame.data(), size);
    rest = frame.substr(size);
  }
  inbox->erase(0, inbox->size() - rest.size());
  return bytes;
}

void Serve(int file, WorkerPool* pool) {
  pool->WatchToo(file);
  std::string inbox;
  while (true) {
    std::vector<FinishedPoint> finished;
    if (!pool->Wait(1, &finished).ok()) return;
    std::string results;
    for (const FinishedPoint& point : finished) {
      AppendFinished(point, &results);
    }
    if (!results.empty() && !SendAll(file, Framed(results))) return;
    if (!ReceiveMore(file, &inbox)) return;
    const std::string tasks = WholeFrames(&inbox);
    absl::string_view rest = tasks;
    PointTask task;
    while (TakeTask(&rest, &task)) pool->Give(std::move(task));
  }
}

}  // namespace

void AppendTask(const PointTask& task, std::string* bytes) {
  PutValue(task.serial, bytes);
  PutValue(static_cast<uint32_t>(task.choices.size()), bytes);
  for (const int32_t choice : task.choices) PutValue(choice, bytes);
}

bool TakeTask(absl::string_view* bytes, PointTask* task) {
  uint32_t count = 0;
  if (!GetValue(bytes, &task->serial) || !GetValue(bytes, &count) ||
      bytes->size() / sizeof(int32_t) < count) {
    return false;
  }
  task->choices.assign(count, 0);
  for (int32_t& choice : task->choices) GetValue(bytes, &choice);
  task->attempts = 0;
  return true;
}

void AppendFinished(const FinishedPoint& point, std::string* bytes) {
  PutValue(point.serial, bytes);
  AppendResult(point.result, bytes);
}

bool TakeFinished(absl::string_view* bytes, FinishedPoint* point) {
  return GetValue(bytes, &point->serial) && TakeResult(bytes, &point->result);
}

absl::StatusOr<PoolServer> PoolServer::Start(const SweepPoints* points,
                                             const PoolOptions& options,
                                             const EvaluateFunction& evaluate) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::InternalError(
        absl::StrCat("no socket for the workers: ", std::strerror(errno)));
  }
  const absl::StatusOr<int> process =
      StartChild({ends[1]}, [points, &options, &evaluate](int file) {
        WorkerPool pool(points, options, evaluate);
        Serve(file, &pool);
      });
  ::close(ends[1]);
  if (!process.ok()) {
    ::close(ends[0]);
    return process.status();
  }
  return PoolServer(*process, ends[0]);
}

PoolServer::PoolServer(PoolServer&& other) noexcept
    : process_(std::exchange(other.process_, -1)),
      file_(std::exchange(other.file_, -1)),
      inbox_(std::move(other.inbox_)) {}

PoolServer::~PoolServer() {
  if (process_ < 0) return;
  // Its workers end with it.
  ::kill(process_, SIGKILL);
  ::close(file_);
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

absl::Status PoolServer::Send(absl::string_view tasks) {
  if (SendAll(file_, Framed(tasks))) return absl::OkStatus();
  return absl::InternalError("the process that holds the workers has ended");
}

absl::StatusOr<std::string> PoolServer::Receive(double seconds) {
  pollfd wait = {.fd = file_, .events = POLLIN, .revents = 0};
  ::poll(&wait, 1, static_cast<int>(seconds * 1000));
  const bool open = ReceiveMore(file_, &inbox_);
  std::string results = WholeFrames(&inbox_);
  if (!open && results.empty()) {
    return absl::InternalError("the process that holds the workers has ended");
  }
  return results;
}

}  // namespace pipewright
