// Streams' queues, the clocks, and the order in which things happen.
#include "tests/emulation/runtime/queue.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "tests/emulation/device/emulated_cuda.h"
#include "tests/emulation/runtime/device_state.h"
#include "tests/emulation/runtime/mapped.h"
#include "tests/emulation/runtime/settings.h"

namespace emulated {
namespace {

// A wait this long for other threads of the host is one without end.
constexpr double kForeverSeconds = 60;
// What a thread waits for another at a time.
constexpr std::chrono::milliseconds kPatience(1);

std::recursive_mutex mutex;
std::condition_variable_any changed;
int depth = 0;  // depth of calls, for the thread that has the lock

double RealNow() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double host_s = 0;
double released_s = RealNow();  // when the host last began to run

std::atomic<int> violations{0};  // also of threads without the lock
constexpr int kMostSaid = 20;    // the others are counted

// Exits with 99 where something was violated. Static objects of other
// libraries end before it or after it: nothing of theirs is touched.
struct AtEnd {
  ~AtEnd() {
    for (const std::string& path : RealLibraries()) {
      Violation("%s is loaded too", path.c_str());
    }
    if (violations == 0) return;
    std::fprintf(stderr, "emulation: %d violations\n", violations.load());
    std::fflush(nullptr);
    _exit(99);
  }
} at_end;

bool Traced() {
  static const bool traced = Setting("EMULATION_TRACE", 0) != 0;
  return traced;
}

bool Advance(cudaStream_t stream) {
  if (stream->queue.empty()) return false;
  const std::shared_ptr<Operation> operation = stream->queue.front();
  if (operation->step == nullptr) operation->step = operation->work.begin();
  if (!operation->step()) {
    operation->waited = true;
    return false;
  }
  double begun_s = std::max(stream->now_s, operation->queued_s);
  if (operation->work.met) {
    begun_s = std::max(begun_s, operation->work.met());
  } else if (operation->waited && operation->work.seconds > 0) {
    // It ran on when something let it, just now.
    begun_s = std::max(begun_s, host_s);
  }
  stream->now_s = begun_s + operation->work.seconds;
  if (Traced()) {
    std::fprintf(stderr, "emulation: %.6f s, device %d, stream %d, %s\n",
                 stream->now_s, stream->device, stream->number,
                 operation->work.name.c_str());
  }
  stream->queue.pop_front();
  changed.notify_all();
  return true;
}

[[noreturn]] void WaitsForEver(const char* what) {
  std::fprintf(stderr, "emulation: %s waits for ever\n", what);
  for (const cudaStream_t stream : Streams()) {
    if (stream->queue.empty()) continue;
    std::fprintf(stderr, "  device %d, stream %d: %s and %zu more\n",
                 stream->device, stream->number,
                 stream->queue.front()->work.name.c_str(),
                 stream->queue.size() - 1);
  }
  std::fflush(nullptr);
  _exit(99);
}

}  // namespace

void Violation(const char* format, ...) {
  if (++violations > kMostSaid) return;
  va_list list;
  va_start(list, format);
  std::fprintf(stderr, "emulation: VIOLATION: ");
  std::vfprintf(stderr, format, list);
  std::fprintf(stderr, "\n");
  va_end(list);
}

Call::Call() {
  mutex.lock();
  if (depth++ == 0) host_s += RealNow() - released_s;
}

Call::~Call() {
  if (--depth == 0) released_s = RealNow();
  mutex.unlock();
}

void Call::LetOthers() {
  const int mine = std::exchange(depth, 0);
  released_s = RealNow();
  for (int held = 1; held < mine; ++held) mutex.unlock();
  changed.wait_for(mutex, kPatience);
  for (int held = 1; held < mine; ++held) mutex.lock();
  host_s += RealNow() - released_s;
  depth = mine;
}

void Wake() { changed.notify_all(); }

double HostNow() { return host_s; }
void HostReaches(double now_s) { host_s = std::max(host_s, now_s); }
uint64_t GlobalNanoseconds() { return static_cast<uint64_t>(host_s * 1e9); }

std::vector<cudaStream_t>& Streams() {
  static std::vector<cudaStream_t> streams;
  return streams;
}

cudaStream_t StreamOf(cudaStream_t stream) {
  // Its order against all other streams is none that the backend wants.
  static CUstream_st legacy{.number = -1};
  if (stream != nullptr) return stream;
  if (std::count(Streams().begin(), Streams().end(), &legacy) == 0) {
    Streams().push_back(&legacy);
    Violation("the legacy default stream is used");
  }
  return &legacy;
}

void Put(cudaStream_t stream, Work work) {
  stream = StreamOf(stream);
  if (stream->graph != nullptr) {
    stream->graph->nodes.push_back({std::move(work), stream->tail});
    stream->tail = {stream->graph->nodes.size() - 1};
    return;
  }
  auto operation = std::make_shared<Operation>();
  operation->work = std::move(work);
  operation->queued_s = host_s;
  stream->queue.push_back(std::move(operation));
}

void PutStep(cudaStream_t stream, const char* name, double seconds, Step step) {
  Put(stream, {name, seconds, [step = std::move(step)] { return step; }});
}

void Queue(cudaStream_t stream, const char* name, double seconds,
           std::function<bool()> step) {
  const Call call;
  if (ClockOnly()) step = [] { return true; };
  PutStep(stream, name, seconds, std::move(step));
}

void QueueMeeting(cudaStream_t stream, const char* name, double seconds,
                  std::function<bool(double now_s)> step,
                  std::function<double()> met) {
  const Call call;
  stream = StreamOf(stream);
  const Step now = [stream, step = std::move(step)] {
    return step(std::max(stream->now_s, stream->queue.front()->queued_s));
  };
  Put(stream, {.name = name,
               .seconds = seconds,
               .begin = [now] { return now; },
               .met = std::move(met)});
}

int DeviceOf(cudaStream_t stream) {
  const Call call;
  return StreamOf(stream)->device;
}

bool AdvanceAny() {
  std::vector<cudaStream_t> all = Streams();
  std::shuffle(all.begin(), all.end(), Random());
  return std::any_of(all.begin(), all.end(), Advance);
}

void RunUntil(Call* call, const char* what, const std::function<bool()>& over) {
  double moved_s = RealNow();
  while (!over()) {
    if (AdvanceAny()) {
      moved_s = RealNow();
      continue;
    }
    call->LetOthers();
    if (RealNow() - moved_s > kForeverSeconds) WaitsForEver(what);
  }
}

bool Idle(int device) {
  return std::all_of(Streams().begin(), Streams().end(),
                     [device](cudaStream_t stream) {
                       return stream->device != device || stream->queue.empty();
                     });
}

bool Capturing(cudaStream_t stream) {
  const Call call;
  return StreamOf(stream)->graph != nullptr;
}

}  // namespace emulated
