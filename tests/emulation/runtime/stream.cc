// Streams and events.
#include <algorithm>
#include <map>
#include <memory>

#include "tests/emulation/runtime/device_state.h"

namespace emulated {
namespace {

constexpr int kHighestPriority = -5;
// Operations that an event's query lets the device do.
constexpr int kStepsOfAQuery = 4;
// Times of an event that are kept: what waits for older ones waits no more.
constexpr size_t kTimesKept = 8;

int streams_made = 0;

// Handles that are alive. What is queued keeps an event longer.
std::map<cudaEvent_t, std::shared_ptr<CUevent_st>> events;

std::shared_ptr<CUevent_st> EventOf(cudaEvent_t handle) {
  const auto found = events.find(handle);
  if (found != events.end()) return found->second;
  Violation("an event is used that is not there");
  return std::make_shared<CUevent_st>();
}

void WaitFor(Call* call, const char* what, cudaStream_t stream) {
  RunUntil(call, what, [=] { return stream->queue.empty(); });
  HostReaches(stream->now_s);
}

}  // namespace
}  // namespace emulated

using emulated::Call;
using emulated::EventOf;
using emulated::Give;
using emulated::StreamOf;
using emulated::Violation;

extern "C" {

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = emulated::kHighestPriority;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags,
                                         int priority) {
  const Call call;
  if (flags != cudaStreamNonBlocking) {
    Violation("a stream that waits for the legacy default stream");
  }
  if (priority > 0 || priority < emulated::kHighestPriority) {
    Violation("a stream of priority %d", priority);
  }
  *stream = new CUstream_st{.device = emulated::CurrentDevice(),
                            .number = emulated::streams_made++};
  (*stream)->now_s = emulated::HostNow();
  emulated::Streams().push_back(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Call call;
  // What is queued is still done.
  emulated::WaitFor(&call, "cudaStreamDestroy", stream);
  auto& all = emulated::Streams();
  all.erase(std::find(all.begin(), all.end(), stream));
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Call call;
  stream = StreamOf(stream);
  if (stream->graph != nullptr) return Give(cudaErrorStreamCaptureUnsupported);
  emulated::WaitFor(&call, "cudaStreamSynchronize", stream);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Call call;
  stream = StreamOf(stream);
  emulated::AdvanceAny();
  return stream->queue.empty() ? cudaSuccess : Give(cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize() {
  Call call;
  const int device = emulated::CurrentDevice();
  emulated::RunUntil(&call, "cudaDeviceSynchronize",
                     [=] { return emulated::Idle(device); });
  for (const cudaStream_t stream : emulated::Streams()) {
    if (stream->device == device) emulated::HostReaches(stream->now_s);
  }
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const Call call;
  auto made = std::make_shared<CUevent_st>();
  made->timed = (flags & cudaEventDisableTiming) == 0;
  made->device = emulated::CurrentDevice();
  *event = made.get();
  emulated::events[*event] = made;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Call call;
  if (emulated::events.erase(event) == 0) {
    Violation("an event is destroyed that is not there");
  }
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  const Call call;
  stream = StreamOf(stream);
  const std::shared_ptr<CUevent_st> event = EventOf(handle);
  if (event->device != stream->device) {
    Violation("an event of device %d on a stream of device %d", event->device,
              stream->device);
    return Give(cudaErrorInvalidResourceHandle);
  }
  event->graph = stream->graph;
  if (stream->graph != nullptr) {
    event->tail = stream->tail;
    return cudaSuccess;
  }
  const int64_t version = ++event->recorded;
  emulated::PutStep(stream, "record", 0, [=] {
    event->reached = version;
    event->times_s[version] =
        std::max(stream->now_s, stream->queue.front()->queued_s);
    if (event->times_s.size() > emulated::kTimesKept) {
      event->times_s.erase(event->times_s.begin());
    }
    return true;
  });
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle,
                                unsigned) {
  const Call call;
  stream = StreamOf(stream);
  const std::shared_ptr<CUevent_st> event = EventOf(handle);
  if (event->graph != nullptr) {
    if (stream->graph == nullptr) {
      // It joins the capture.
      stream->graph = event->graph;
      stream->graph->streams.push_back(stream);
      stream->tail.clear();
    } else if (stream->graph != event->graph) {
      return Give(cudaErrorStreamCaptureMerge);
    }
    stream->tail.insert(stream->tail.end(), event->tail.begin(),
                        event->tail.end());
    return cudaSuccess;
  }
  if (stream->graph != nullptr) return Give(cudaErrorStreamCaptureIsolation);
  const int64_t version = event->recorded;
  emulated::PutStep(stream, "wait", 0, [=] {
    if (event->reached < version) return false;
    const auto time = event->times_s.find(version);
    if (time != event->times_s.end()) {
      stream->now_s = std::max(stream->now_s, time->second);
    }
    return true;
  });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  const Call call;
  const std::shared_ptr<CUevent_st> event = EventOf(handle);
  if (event->graph != nullptr) return Give(cudaErrorStreamCaptureUnsupported);
  for (int step = 0; step < emulated::kStepsOfAQuery; ++step) {
    if (event->reached == event->recorded || !emulated::AdvanceAny()) break;
  }
  if (event->reached < event->recorded) return Give(cudaErrorNotReady);
  // What polls would have polled until then.
  if (event->recorded > 0) emulated::HostReaches(event->time_s());
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  Call call;
  const std::shared_ptr<CUevent_st> event = EventOf(handle);
  emulated::RunUntil(&call, "cudaEventSynchronize",
                     [=] { return event->reached == event->recorded; });
  if (event->recorded > 0) emulated::HostReaches(event->time_s());
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from,
                                 cudaEvent_t to) {
  const Call call;
  const std::shared_ptr<CUevent_st> ends[] = {EventOf(from), EventOf(to)};
  for (const auto& end : ends) {
    if (!end->timed || end->recorded == 0 || end->graph != nullptr) {
      return Give(cudaErrorInvalidResourceHandle);
    }
    if (end->reached < end->recorded) return Give(cudaErrorNotReady);
  }
  *milliseconds =
      static_cast<float>((ends[1]->time_s() - ends[0]->time_s()) * 1e3);
  return cudaSuccess;
}

}  // extern "C"
