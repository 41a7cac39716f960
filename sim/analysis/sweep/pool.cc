#include "sim/analysis/sweep/pool.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/analysis/sweep/child_process.h"
#include "sim/base/check.h"
#include "sim/base/file.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr int64_t kMostTasks = 256;
constexpr size_t kMostChunkBytes = 64 << 10;  // well below a socket's buffer
constexpr double kChunkSeconds = 5e-3;
constexpr int kMostBarren = 8;

double NowS() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

template <typename Value>
void AppendPlain(const Value& value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

WorkerPool::WorkerPool(const SweepPoints* points, PoolOptions options,
                       EvaluateFunction evaluate)
    : points_(points), options_(options), evaluate_(std::move(evaluate)) {}

WorkerPool::~WorkerPool() {
  for (const auto& child : children_) End(child.get(), true);
}

std::vector<int> WorkerPool::processes() const {
  std::vector<int> processes;
  for (const auto& child : children_) processes.push_back(child->process);
  return processes;
}

int64_t WorkerPool::MostOfChunk() const {
  const size_t bytes = 12 + 4 * points_->grid().axes.size();
  return std::clamp<int64_t>(static_cast<int64_t>(kMostChunkBytes / bytes), 1,
                             kMostTasks);
}

int64_t WorkerPool::wants() const {
  int64_t chunk = 1;
  for (const auto& child : children_) {
    for (const Lane& lane : child->lanes) chunk = std::max(chunk, lane.chunk);
  }
  // What the lanes may take at once, and as much again.
  return 2 * options_.workers * chunk -
         static_cast<int64_t>(ready_.size() + careful_.size());
}

void WorkerPool::Give(PointTask task) {
  ++pending_;
  ready_.push_back(std::move(task));
}

absl::Status WorkerPool::Start(int lanes, bool careful) {
  auto child = std::make_unique<Child>();
  child->careful = careful;
  std::vector<int> theirs;
  absl::Status status;
  for (int lane = 0; lane < lanes && status.ok(); ++lane) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      status = absl::InternalError(
          absl::StrCat("no socket for a worker: ", std::strerror(errno)));
      break;
    }
    child->lanes.emplace_back().file = ends[0];
    theirs.push_back(ends[1]);
  }
  if (status.ok()) {
    const bool at_once = options_.timeout_s > 0 || careful;
    const absl::StatusOr<int> process = StartChild(
        theirs,
        [this, at_once](int file) { ServeLane(file, at_once, evaluate_); });
    status = process.status();
    if (process.ok()) child->process = *process;
  }
  for (const int file : theirs) ::close(file);
  if (!status.ok()) {
    for (const Lane& lane : child->lanes) ::close(lane.file);
    return status;
  }
  children_.push_back(std::move(child));
  return absl::OkStatus();
}

absl::Status WorkerPool::StartWhatIsMissing() {
  if (barren_ > kMostBarren) {
    return absl::InternalError(
        absl::StrCat(barren_,
                     " worker processes in a row ended before they had a "
                     "result"));
  }
  int lanes = 0;
  bool careful = false;
  for (const auto& child : children_) {
    careful |= child->careful;
    if (!child->careful) lanes += static_cast<int>(child->lanes.size());
  }
  if (!careful_.empty() && !careful) PW_RETURN_IF_ERROR(Start(1, true));
  if (ready_.empty()) return absl::OkStatus();
  if (options_.threads) {
    if (lanes == 0) PW_RETURN_IF_ERROR(Start(options_.workers, false));
    return absl::OkStatus();
  }
  const int needed = static_cast<int>(
      std::min<size_t>(options_.workers, lanes + ready_.size()));
  for (; lanes < needed; ++lanes) PW_RETURN_IF_ERROR(Start(1, false));
  return absl::OkStatus();
}

bool WorkerPool::Send(Lane* lane, size_t first) {
  std::string bytes;
  for (size_t index = first; index < lane->given.size(); ++index) {
    const PointTask& task = lane->given[index];
    AppendPlain(task.serial, &bytes);
    AppendPlain(static_cast<uint32_t>(task.choices.size()), &bytes);
    for (const int32_t choice : task.choices) AppendPlain(choice, &bytes);
  }
  std::string message;
  AppendPlain(static_cast<uint32_t>(bytes.size()), &message);
  message += bytes;
  return SendAll(lane->file, message);
}

void WorkerPool::Feed(Child* child, Lane* lane) {
  std::deque<PointTask>& queue = child->careful ? careful_ : ready_;
  const int64_t most = child->careful ? 1 : lane->chunk;
  const auto held = static_cast<int64_t>(lane->given.size());
  if (queue.empty() || (child->careful ? held > 0 : 2 * held > most)) return;
  const size_t first = lane->given.size();
  if (first == 0) lane->since_s = NowS();
  lane->chunk_s = NowS();
  for (int64_t count = 0; count < most && !queue.empty(); ++count) {
    lane->given.push_back(std::move(queue.front()));
    queue.pop_front();
  }
  // A worker that has ended shows it when it is read from.
  Send(lane, first);
}

void WorkerPool::Feed() {
  for (const auto& child : children_) {
    for (Lane& lane : child->lanes) Feed(child.get(), &lane);
  }
}

void WorkerPool::TakeFrames(Child* child, Lane* lane,
                            std::vector<FinishedPoint>* finished) {
  absl::string_view bytes = lane->inbox;
  while (bytes.size() >= sizeof(uint32_t)) {
    uint32_t size = 0;
    std::memcpy(&size, bytes.data(), sizeof(size));
    if (bytes.size() < sizeof(size) + size) break;
    absl::string_view frame = bytes.substr(sizeof(size), size);
    bytes.remove_prefix(sizeof(size) + size);
    FinishedPoint point;
    PW_CHECK(frame.size() >= sizeof(point.serial));
    std::memcpy(&point.serial, frame.data(), sizeof(point.serial));
    frame.remove_prefix(sizeof(point.serial));
    PW_CHECK(TakeResult(&frame, &point.result));
    PW_CHECK(!lane->given.empty() &&
             lane->given.front().serial == point.serial);
    std::string& shape = point.result.shape;
    if (!shape.empty() && shape[0] == '#') {
      shape = lane->shapes[std::stoul(shape.substr(1))];
    } else if (!shape.empty()) {
      lane->shapes.push_back(shape);
    }
    lane->given.pop_front();
    lane->since_s = NowS();
    ++child->finished;
    --pending_;
    barren_ = 0;
    finished->push_back(std::move(point));
  }
  lane->inbox.erase(0, lane->inbox.size() - bytes.size());
  if (lane->given.empty() && NowS() - lane->chunk_s < kChunkSeconds) {
    lane->chunk = std::min(2 * lane->chunk, MostOfChunk());
  } else if (NowS() - lane->chunk_s > 20 * kChunkSeconds) {
    lane->chunk = std::max<int64_t>(lane->chunk / 2, 1);
  }
}

bool WorkerPool::Receive(Child* child, Lane* lane,
                         std::vector<FinishedPoint>* finished) {
  char buffer[64 << 10];
  while (true) {
    const ssize_t got =
        ::recv(lane->file, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    const bool empty = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (got > 0) lane->inbox.append(buffer, static_cast<size_t>(got));
    if (got == static_cast<ssize_t>(sizeof(buffer))) continue;
    TakeFrames(child, lane, finished);
    return got > 0 || empty;
  }
}

std::string WorkerPool::End(Child* child, bool kills) {
  if (kills) ::kill(child->process, SIGKILL);
  for (const Lane& lane : child->lanes) ::close(lane.file);
  int state = 0;
  while (::waitpid(child->process, &state, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(state)) {
    return absl::StrCat("the worker was killed by signal ", WTERMSIG(state),
                        " (", strsignal(WTERMSIG(state)), ")");
  }
  return absl::StrCat("the worker ended with exit code ", WEXITSTATUS(state));
}

void WorkerPool::TryAgain(PointTask task, PointStatus status,
                          const std::string& reason,
                          std::vector<FinishedPoint>* finished) {
  if (++task.attempts <= options_.retries) {
    careful_.push_back(std::move(task));
    return;
  }
  --pending_;
  finished->push_back(
      {task.serial,
       LostPoint(*points_, task.choices, status,
                 task.attempts == 1
                     ? reason
                     : absl::StrCat(reason, ", ", task.attempts, " times"))});
}

void WorkerPool::Lose(Child* child, std::vector<FinishedPoint>* finished) {
  const std::string reason = End(child, true);
  if (child->finished == 0) ++barren_;
  for (Lane& lane : child->lanes) {
    for (PointTask& task : lane.given) {
      if (child->careful) {
        TryAgain(std::move(task), PointStatus::kCrashed, reason, finished);
      } else {
        careful_.push_back(std::move(task));
      }
    }
  }
  // A careful task that ends its process is no sign that none can be started.
  if (child->careful) barren_ = 0;
  children_.remove_if(
      [child](const auto& each) { return each.get() == child; });
}

void WorkerPool::EndSlow(std::vector<FinishedPoint>* finished) {
  if (options_.timeout_s <= 0) return;
  std::vector<Child*> slow;
  const double now_s = NowS();
  const auto is_late = [&](const Lane& lane) {
    return !lane.given.empty() && now_s - lane.since_s > options_.timeout_s;
  };
  for (const auto& child : children_) {
    if (std::any_of(child->lanes.begin(), child->lanes.end(), is_late)) {
      slow.push_back(child.get());
    }
  }
  for (Child* child : slow) {
    for (Lane& lane : child->lanes) {
      if (is_late(lane)) {
        TryAgain(std::move(lane.given.front()), PointStatus::kTimeout,
                 absl::StrFormat("took longer than %g s (--timeout)",
                                 options_.timeout_s),
                 finished);
        lane.given.pop_front();
      }
      for (PointTask& task : lane.given) ready_.push_front(std::move(task));
    }
    End(child, true);
    children_.remove_if(
        [child](const auto& each) { return each.get() == child; });
  }
}

absl::Status WorkerPool::Wait(double seconds,
                              std::vector<FinishedPoint>* finished) {
  PW_RETURN_IF_ERROR(StartWhatIsMissing());
  Feed();
  std::vector<pollfd> files;
  std::vector<std::pair<Child*, Lane*>> lanes;
  for (const auto& child : children_) {
    for (Lane& lane : child->lanes) {
      files.push_back({.fd = lane.file, .events = POLLIN, .revents = 0});
      lanes.emplace_back(child.get(), &lane);
    }
  }
  if (watched_ >= 0) {
    files.push_back({.fd = watched_, .events = POLLIN, .revents = 0});
  }
  if (options_.timeout_s > 0) seconds = std::min(seconds, 0.02);
  const int ready =
      ::poll(files.data(), files.size(), static_cast<int>(seconds * 1000));
  std::vector<Child*> lost;
  for (size_t index = 0; ready > 0 && index < lanes.size(); ++index) {
    if (files[index].revents == 0) continue;
    const auto [child, lane] = lanes[index];
    if (!Receive(child, lane, finished) &&
        std::find(lost.begin(), lost.end(), child) == lost.end()) {
      lost.push_back(child);
    }
  }
  for (Child* child : lost) Lose(child, finished);
  EndSlow(finished);
  // A careful process has done its work.
  if (careful_.empty()) {
    for (auto child = children_.begin(); child != children_.end();) {
      const bool idle =
          (*child)->careful && (*child)->lanes.front().given.empty();
      if (idle) End(child->get(), true);
      child = idle ? children_.erase(child) : std::next(child);
    }
  }
  Feed();
  return absl::OkStatus();
}

}  // namespace pipewright
