// The output of an engine: each operation with its time. A Trace is a sink; an
// engine without one only fills RunSummary, which costs nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "sim/program/op_kind.h"
#include "sim/schedule/pass.h"

namespace pipewright {

// One operation that has run. Seconds from the start of the run. A plain
// struct: engines pass it between processes as bytes.
struct TraceOp {
  double start_s = 0;
  double end_s = 0;
  double bytes = 0;
  OpKind kind = OpKind::kPass;
  Stream stream = Stream::kCompute;
  bool joint = false;   // part of an (X&Y) block
  int32_t replica = 0;  // data-parallel
  int32_t rank = 0;
  int32_t iteration = 0;
  int32_t stage = -1;    // for passes, their transfers and copies
  int32_t channel = -1;  // for transfers: kSend on the producer's rank and
                         // kReceive on the consumer's, same times
  int32_t side_op = -1;  // index in RankProgram::side_ops
  Pass pass{};           // for passes, their transfers and copies
};

class TraceSink {
 public:
  virtual ~TraceSink() = default;
  // Passes of one rank come in the order of their start, transfers of one
  // channel in the order of their sending; nothing else is promised. Replicas
  // that are exactly alike may be reported once, as the first of them.
  virtual void OnOp(const TraceOp& op) = 0;
};

// Keeps everything.
class FullTrace : public TraceSink {
 public:
  void OnOp(const TraceOp& op) override { ops_.push_back(op); }
  const std::vector<TraceOp>& ops() const { return ops_; }

 private:
  std::vector<TraceOp> ops_;
};

// Keeps what a predicate accepts, at most `limit` operations; counts the rest.
class SampledTrace : public TraceSink {
 public:
  SampledTrace(std::function<bool(const TraceOp&)> accept, size_t limit)
      : accept_(std::move(accept)), limit_(limit) {}
  void OnOp(const TraceOp& op) override {
    if (!accept_(op)) return;
    if (ops_.size() < limit_) {
      ops_.push_back(op);
    } else {
      ++dropped_;
    }
  }
  const std::vector<TraceOp>& ops() const { return ops_; }
  int64_t dropped() const { return dropped_; }

 private:
  std::function<bool(const TraceOp&)> accept_;
  size_t limit_;
  std::vector<TraceOp> ops_;
  int64_t dropped_ = 0;
};

}  // namespace pipewright
