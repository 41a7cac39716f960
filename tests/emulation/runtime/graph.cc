// Capture and graphs. A graph does its nodes in any order that its edges allow.
#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "tests/emulation/runtime/device_state.h"
#include "tests/emulation/runtime/settings.h"

namespace emulated {
namespace {

// A launch of a graph.
class Launched {
 public:
  Launched(std::shared_ptr<const Graph> graph, std::shared_ptr<bool> busy)
      : graph_(std::move(graph)), busy_(std::move(busy)) {
    steps_.resize(graph_->nodes.size());
    done_.resize(graph_->nodes.size());
  }

  bool Advance() {
    // Launches of one graph are done one after the other.
    if (!started_ && *busy_) return false;
    started_ = true;
    *busy_ = true;
    while (count_ < done_.size()) {
      std::vector<size_t> ready = Ready();
      std::shuffle(ready.begin(), ready.end(), Random());
      if (std::none_of(ready.begin(), ready.end(),
                       [this](size_t index) { return Do(index); })) {
        return false;
      }
    }
    *busy_ = false;
    return true;
  }

 private:
  std::vector<size_t> Ready() const {
    std::vector<size_t> ready;
    for (size_t index = 0; index < done_.size(); ++index) {
      const std::vector<size_t>& after = graph_->nodes[index].after;
      if (!done_[index] &&
          std::all_of(after.begin(), after.end(),
                      [this](size_t node) -> bool { return done_[node]; })) {
        ready.push_back(index);
      }
    }
    return ready;
  }

  bool Do(size_t index) {
    if (steps_[index] == nullptr) {
      steps_[index] = graph_->nodes[index].work.begin();
    }
    if (!steps_[index]()) return false;
    steps_[index] = nullptr;
    done_[index] = true;
    ++count_;
    return true;
  }

  std::shared_ptr<const Graph> graph_;
  std::shared_ptr<bool> busy_;
  bool started_ = false;
  std::vector<Step> steps_;
  std::vector<bool> done_;
  size_t count_ = 0;
};

// True if all nodes come before those that a stream ends with.
bool Joined(const Graph& graph, const std::vector<size_t>& tail) {
  std::set<size_t> before(tail.begin(), tail.end());
  for (size_t index = graph.nodes.size(); index-- > 0;) {
    if (before.count(index) == 0) continue;
    before.insert(graph.nodes[index].after.begin(),
                  graph.nodes[index].after.end());
  }
  return before.size() == graph.nodes.size();
}

}  // namespace
}  // namespace emulated

using emulated::Call;
using emulated::Give;
using emulated::Graph;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const Call call;
  if (stream == nullptr) return Give(cudaErrorStreamCaptureUnsupported);
  if (stream->graph != nullptr) return Give(cudaErrorIllegalState);
  stream->graph = std::make_shared<Graph>();
  stream->began_capture = true;
  stream->tail.clear();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Call call;
  *graph = nullptr;
  if (stream->graph == nullptr || !stream->began_capture) {
    return Give(cudaErrorIllegalState);
  }
  const std::shared_ptr<Graph> made = stream->graph;
  const bool joined = emulated::Joined(*made, stream->tail);
  stream->graph.reset();
  stream->began_capture = false;
  for (const cudaStream_t other : made->streams) other->graph.reset();
  made->streams.clear();
  if (!joined) return Give(cudaErrorStreamCaptureUnjoined);
  *graph = new CUgraph_st{made};
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                  cudaStreamCaptureStatus* status) {
  *status = emulated::Capturing(stream) ? cudaStreamCaptureStatusActive
                                        : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                 unsigned long long) {
  *made = new CUgraphExec_st{graph->graph};
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  const Call call;
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const Call call;
  double seconds = 2e-6;
  for (const emulated::Node& node : executable->graph->nodes) {
    seconds += node.work.seconds;
  }
  const std::shared_ptr<const Graph> graph = executable->graph;
  const std::shared_ptr<bool> busy = executable->busy;
  emulated::Put(stream, {"graph", seconds, [graph, busy]() -> emulated::Step {
                           auto launched = std::make_shared<emulated::Launched>(
                               graph, busy);
                           return [launched] { return launched->Advance(); };
                         }});
  return cudaSuccess;
}

}  // extern "C"
