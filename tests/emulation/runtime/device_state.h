// What is behind the handles of the runtime: streams with what is queued on
// them, events, graphs, memory, and the clocks of host and device. For files of
// this folder only.
//
// Nothing runs when it is queued. When the host waits (or asks an event), one
// operation of one stream after the other is done, streams in any order: what
// is not ordered by a stream or an event happens in another order with another
// seed. One lock guards all of it.
#ifndef PIPEWRIGHT_TESTS_EMULATION_RUNTIME_DEVICE_STATE_H_
#define PIPEWRIGHT_TESTS_EMULATION_RUNTIME_DEVICE_STATE_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/emulation/runtime/queue.h"

namespace emulated {

// True when it is done, false while it cannot go on.
using Step = std::function<bool()>;

struct Work {
  std::string name;
  double seconds = 0;  // by the device's time
  // A step for one time that it is done: a graph does it again and again.
  std::function<Step()> begin;
  // Date when the last one came, for work in which others take part.
  std::function<double()> met = nullptr;
};

struct Operation {
  Work work;
  double queued_s = 0;
  Step step;            // begun; empty before
  bool waited = false;  // could not go on once
};

struct Node {
  Work work;
  std::vector<size_t> after;  // nodes of the same graph
};
struct Graph {
  std::vector<Node> nodes;
  std::vector<cudaStream_t> streams;  // that joined the capture
};

// The runtime's lock for the time of a call. The clock of the host stands
// still meanwhile: emulating takes none of its time.
class Call {
 public:
  Call();
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  // Lets other threads of the host in for about a millisecond, or until one of
  // them has changed something.
  void LetOthers();
};

// Seconds; only grows.
double HostNow();
// The host has waited for the device until then.
void HostReaches(double now_s);

// The stream that a handle stands for.
cudaStream_t StreamOf(cudaStream_t stream);
// Queues work, or makes it a node where the stream is captured.
void Put(cudaStream_t stream, Work work);
// Work that has one step.
void PutStep(cudaStream_t stream, const char* name, double seconds, Step step);
// Does one operation of some stream; false where none can go on.
bool AdvanceAny();
// Advances until `over`; ends the process where that never comes.
void RunUntil(Call* call, const char* what, const std::function<bool()>& over);
bool Idle(int device);
std::vector<cudaStream_t>& Streams();
void Wake();

// Keeps the error for cudaGetLastError and gives it back.
cudaError_t Give(cudaError_t error);

}  // namespace emulated

struct CUstream_st {
  int device = 0;
  int number = 0;
  std::deque<std::shared_ptr<emulated::Operation>> queue;
  double now_s = 0;
  // While it is captured.
  std::shared_ptr<emulated::Graph> graph;
  bool began_capture = false;
  std::vector<size_t> tail;  // what its next node comes after
};

struct CUevent_st {
  bool timed = false;
  int device = 0;
  // Each record is a version; what waits, waits for the last one before it.
  int64_t recorded = 0;
  int64_t reached = 0;
  std::map<int64_t, double> times_s;  // times of the last versions
  // Recorded in a capture.
  std::shared_ptr<emulated::Graph> graph;
  std::vector<size_t> tail;

  double time_s() const { return times_s.rbegin()->second; }
};

struct CUgraph_st {
  std::shared_ptr<emulated::Graph> graph;
};
struct CUgraphExec_st {
  std::shared_ptr<emulated::Graph> graph;
  // A launch of it waits for the one before.
  std::shared_ptr<bool> busy = std::make_shared<bool>(false);
};

#endif  // PIPEWRIGHT_TESTS_EMULATION_RUNTIME_DEVICE_STATE_H_
