// What a ModelWorker is told, and what it leaves when it ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "execute/run/faults.h"
#include "sim/program/lower.h"
#include "sim/trace/export.h"

namespace pipewright {

struct Owners;

// What one rank has when an iteration is over, in memory of the host.
struct StageSnapshot {
  int iteration = 0;
  int stage = 0;          // a unit (Units)
  int bidirectional = 0;  // replica of the schedule
  // [parameters]; gradients as the optimizer took them (reduced), or as they
  // are at the end where there is none. Of a sharded optimizer only [begin,
  // end) is of this rank.
  std::vector<float> gradients;
  std::vector<float> weights;
  int64_t begin = 0;
  int64_t end = 0;
};

struct WorkerRecord {
  std::vector<StageSnapshot> snapshots;
  // [iteration] mean over the tokens of the run's own microbatches; only of
  // ranks with a head.
  std::map<int, double> loss_sum;
  // With keeps_first_step: gradients that the very first step has taken, and
  // the weights before it; the sum of the losses until then.
  std::vector<StageSnapshot> first_step;
  double first_loss_sum = 0;
  size_t peak_bytes = 0;      // activations, weights and all else
  size_t resident_bytes = 0;  // weights, gradients, optimizer, workspace
  // Pinned: of activations that are offloaded, of an optimizer on the host.
  size_t peak_host_bytes = 0;
  // Beside them: of messages on their way or waiting, and collectives; hangs on
  // how far ranks are apart.
  size_t message_bytes = 0;
  // Beside them, of the host: sums of the own shard and, with owners, the block
  // that clients share and the copy of the gradients that are pushed.
  size_t owner_bytes = 0;
  // Held between passes, over the most that one microbatch through all stages
  // of the rank holds.
  double peak_activations = 0;
  std::vector<PassBytes> memory;  // [pass], as it has run
};

struct WorkerOptions {
  bool sharded_step = false;  // zero1 and up: a replica steps its part
  // Owners under odc; null: none. The service of this rank's owner looks at
  // requests every `owner_poll_s`; a client waits for it for `owner_patience_s`
  // at most.
  std::shared_ptr<Owners> owners;
  double owner_poll_s = 100e-6;
  double owner_patience_s = 60;
  Faults faults;              // those of a worker
  bool synchronised = false;  // the norm of all ranks decides about clipping
  bool post_validated = false;
  // Nobody is there but this rank: random numbers stand for what other ranks
  // would send, its own part for that of a group, and no step fails.
  bool alone = false;
  // Who holds it is the only one that computes; null: as many as there are
  // ranks. On a GPU, which ranks of one process share, there always is one.
  std::shared_ptr<std::mutex> token;
  // A pass is queued whole before it starts (PwKernels.hold_stream), as where
  // it is calibrated, so that its time has no gaps between launches. For clocks
  // that take that time; on others the host's time counts too.
  bool holds = false;
  // On a GPU: each rank has a part of its processors (green contexts), and no
  // rank waits for a token.
  bool parts = false;
  // Where the optimizer's states are; the one that the program was lowered
  // with.
  OptimizerOffload offload;
  std::vector<int> snapshot_iterations;
  // For schedules with several steps in an iteration; a snapshot shows the last
  // step.
  bool keeps_first_step = false;
  WorkerRecord* record = nullptr;  // filled in when the worker ends
};

}  // namespace pipewright
