// A Program: all operations of a training run on the streams of devices, with
// their dependencies. Engines run it; they know no schedule.
//
// Storage. Data-parallel replicas that run the same are a class (DpClass) and
// share all they run; most Programs have one class. The pass order of a rank is
// the Schedule's own array, shared by all iterations. Everything around a pass
// (its duration, where its input comes from, where its result goes) is the
// same for all microbatches of a lane, so it is kept once a lane. What does
// not happen once a pass (collectives, optimizer, validation) is a SideOp
// attached to a position in the order. Memory therefore grows with classes, but
// with neither replicas nor iterations; OpCursor (cursor.h) yields the
// operations one by one for whoever wants them spelled out.
//
// Every engine keeps the rules of docs/architecture.md, Rules of time; comments
// here cite them by number.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sim/cost/interference.h"
#include "sim/cost/jitter.h"
#include "sim/cost/pass_costs.h"
#include "sim/program/group.h"
#include "sim/program/lane_hook.h"
#include "sim/program/layer_part.h"
#include "sim/program/network.h"
#include "sim/program/op_kind.h"
#include "sim/program/peer_plan.h"
#include "sim/program/wait_rule.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

// What every microbatch of one (rank, kind, replica, chunk) has in common.
struct Lane {
  double seconds = 0;   // before the factors
  int32_t stage = -1;   // -1: the rank has no such lane
  int32_t input = -1;   // channel awaited, -1: none (or local, by order alone)
  int32_t output = -1;  // channel fed, -1: none
  // O and L only: bytes, where the network decides the time; 0: `seconds`.
  double bytes = 0;
  int64_t passes = 0;  // in this lane in one iteration
  // Index in DpClass::lane_factors, and in DpClass::exchanges; -1: none.
  int32_t factors = -1;
  int32_t exchanges = -1;
};

enum class ChannelKind : uint8_t {
  kActivation,  // F to F of the next stage, other rank
  kGradient,    // B or BW to B or BW of the stage before, other rank
  kMessage,     // side operation to side operation, other rank
  kEvent,       // side operation to side operation, same rank, no time
};

struct Channel {
  ChannelKind kind = ChannelKind::kEvent;
  int from_rank = 0;
  int to_rank = 0;
  double bytes = 0;
  int stage = -1;     // producing stage, of passes
  int direction = 0;  // in the bidirectional schedule, for passes
};

struct SideOp {
  OpKind kind = OpKind::kWait;
  Stream stream = Stream::kCompute;
  // Time of kCpu, kOptimizer, kValidate, kRollback, kPredict, kFlush, kCast;
  // for pull and push what they take besides their bytes.
  double seconds = 0;
  // Bytes of collectives (whole buffer), pull, push (with every peer), host
  // copies.
  double bytes = 0;
  // Parameters of kHostAdam, kHostCast and kHostUndo, the bytes of host memory
  // that each of them reads and writes, and how many a second at most (0: no
  // limit).
  double parameters = 0;
  double host_bytes_each = 0;
  double most_per_s = 0;
  int group = -1;  // for collectives
  int peer = -1;   // for pull and push: a rank
  // Which data-parallel replica that rank is of: this many behind the own
  // one, counted around. 0: the own.
  int peer_offset = 0;
  // Peers of a pull or push with several, all of the own rank; then `peer` is
  // that rank.
  std::shared_ptr<const PeerPlan> peers;
  int chunk = -1;  // for pictures, where it concerns one
  int stage = -1;  // whose gradients or parameters it moves, where any
  // Moves only the gradients of the table that embedding and output head share.
  bool tied = false;
  // Left out before this iteration. A consumer that starts one later than its
  // producer takes the token of the iteration before.
  int first_iteration = 0;
  // In an iteration that begins twice (rule 8).
  enum class Starts : uint8_t {
    kEvery,
    kFirst,  // not again in the second: its inputs come once an iteration
    kFalse,  // only in a false start
  };
  Starts starts = Starts::kEvery;
  // Left out in an iteration that is followed by a false start: a step that
  // its own rank has seen fail.
  bool unless_fails = false;
  // Only in an iteration whose step is undone before the next one begins.
  bool if_undone = false;
  std::vector<int32_t> inputs;  // channels
  std::vector<int32_t> outputs;
};

struct Attachment {
  int64_t position = 0;  // before the pass at this index; size(): at the end
  int32_t side_op = -1;
};

// One start of an iteration (rule 8).
struct Start {
  int iteration = 0;
  bool is_false = false;
  bool again = false;   // after a false one
  bool fails = false;   // the next iteration starts falsely
  bool undone = false;  // its step is, at its end

  bool Includes(const SideOp& op) const {
    if (iteration < op.first_iteration || (op.unless_fails && fails) ||
        (op.if_undone && !undone)) {
      return false;
    }
    return op.starts == SideOp::Starts::kFalse
               ? is_false
               : !again || op.starts == SideOp::Starts::kEvery;
  }
};

// A transfer of a false start whose consumer is beyond its end.
struct Dropped {
  int32_t channel = -1;
  Pass pass{};  // the consumer
};

// What a rank receives in a time step (WaitRule::kStepped).
struct StepReceive {
  int64_t position = 0;
  // 0: in the step of the block that ends at `position`. Else in so-many-th of
  // the empty steps in front of the block that begins there.
  int64_t empty = 0;
  int32_t channel = -1;
  Pass pass{};  // the consumer
};

struct RankProgram {
  std::shared_ptr<const RankOrder> order;
  // [chunk of a pass in `order`]; empty: passes are whole.
  std::vector<LayerPart> layers;
  std::vector<Lane> lanes;  // [Pass::lane()]
  // Each is attached once or belongs to one hook.
  std::vector<SideOp> side_ops;
  std::vector<Attachment> attachments;  // by position, then in issue order
  std::vector<LaneHook> hooks;
  // Where iterations after the first begin; nothing is attached before it.
  int64_t later_start = 0;
  // A false start takes in this many attachments and ends with the last.
  int32_t false_start_end = 0;
  std::vector<Dropped> dropped;  // in the order of their sends
  // By position, then by step; of the wait rule stepped only.
  std::vector<StepReceive> step_receives;

  // The pass of the schedule that one in `order` is, or is a layer of.
  Pass Whole(Pass pass) const {
    if (layers.empty()) return pass;
    return Pass(pass.kind(), pass.microbatch(), layers[pass.chunk()].chunk,
                pass.slice(), pass.direction())
        .WithJoint(pass.joint_with_next());
  }
  // False of a layer but the first that its pass runs.
  bool BeginsPass(Pass pass) const {
    return layers.empty() || layers[pass.chunk()].IsFirst(pass.kind());
  }
  bool EndsPass(Pass pass) const {
    return layers.empty() || layers[pass.chunk()].IsLast(pass.kind());
  }

  // Where a start of an iteration begins and ends in `order`.
  int64_t BeginOf(const Start& start) const {
    return start.iteration == 0 ? 0 : later_start;
  }
  int64_t EndOf(const Start& start) const {
    if (!start.is_false) return static_cast<int64_t>(order->size());
    return false_start_end == 0 ? 0 : attachments[false_start_end - 1].position;
  }
};

// What data-parallel replicas that run the same have in common. The ranks of
// all classes hold the same stages.
struct DpClass {
  std::shared_ptr<const Schedule> schedule;
  std::vector<RankProgram> ranks;         // [rank]
  std::vector<Channel> channels;          // in one replica; each has its own
  std::vector<double> microbatch_factor;  // empty: 1
  std::vector<double> slice_factor;       // empty: 1
  // Factors of single lanes (Lane::factors), [index][microbatch]. Lanes may
  // share one.
  std::vector<std::vector<double>> lane_factors;
  std::vector<LaneExchanges> exchanges;  // for passes (Lane::exchanges)
  // Weight of one replica's gradients in their sum over all replicas, relative
  // to the others': its tokens. Takes no time.
  double gradient_weight = 1;

  bool has_factors() const {
    return !microbatch_factor.empty() || !slice_factor.empty() ||
           !lane_factors.empty();
  }
  // On the time of a pass of `rank`.
  double Factor(int rank, Pass pass) const {
    const int32_t own = ranks[rank].lanes[pass.lane()].factors;
    return (microbatch_factor.empty() ? 1.0
                                      : microbatch_factor[pass.microbatch()]) *
           (slice_factor.empty() ? 1.0 : slice_factor[pass.slice()]) *
           (own < 0 ? 1.0 : lane_factors[own][pass.microbatch()]);
  }
  // Operations of one iteration of one replica, transfers counted once; no
  // false start.
  int64_t num_ops() const;
  // Passes (F B W BW R) of one iteration of one replica.
  int64_t num_passes() const;
};

// Is itself its first class: what has one class is written without naming it.
struct Program : DpClass {
  std::string name;  // name of the schedule
  std::vector<DpClass> more_classes;
  // [replica] 0: the Program's own, k: more_classes[k - 1]. Empty: all are of
  // the first.
  std::vector<int> class_of_replica;
  std::vector<Group> groups;  // groups of all classes
  Network network;
  WaitRule wait_rule = WaitRule::kBuffered;
  // Copies to and from hosts that share a link run one after the other, in the
  // order in which they could begin, not side by side. Of engines that share
  // links; on others each copy has its links alone either way.
  bool copies_in_turn = false;
  // True if turns of these were to be settled before the run, and could not be.
  bool turns_dropped = false;
  int replicas = 1;  // data-parallel copies of the whole pipeline
  // Upper limit; an engine stops earlier once the period is constant, but
  // only if `until_steady`.
  int iterations = 1;
  bool until_steady = false;
  // Time of a block (X&Y) over that of its passes one after the other.
  double pair_factor = 1;
  std::vector<int> false_starts;  // iterations, from 1 on, ascending
  // Iterations, from 0 on, ascending, that undo their step and repeat it.
  std::vector<int> undone_steps;
  // Noise on the times of passes and optimizer steps; null: none.
  std::shared_ptr<const Jitter> jitter;
  // How passes and what runs beside them on their device slow each other down;
  // null: not at all.
  std::shared_ptr<const InterferenceMatrix> interference;
  // The part of a BW's time that is B, [stage]; empty: half.
  std::vector<double> input_part;

  int pp() const { return static_cast<int>(ranks.size()); }
  int num_classes() const { return static_cast<int>(more_classes.size()) + 1; }
  const DpClass& dp_class(int index) const {
    return index == 0 ? *this : more_classes[index - 1];
  }
  int ClassOf(int replica) const {
    return class_of_replica.empty() ? 0 : class_of_replica[replica];
  }
  const DpClass& OfReplica(int replica) const {
    return dp_class(ClassOf(replica));
  }
  // [class] how many replicas it has, and the first of them.
  std::vector<int> ReplicasOfClasses() const;
  std::vector<int> FirstReplicas() const;

  // What a pass, or a side operation of a length of its own, takes when it
  // runs: factors and noise included, the pair factor not.
  double PassSeconds(int iteration, int replica, int rank, Pass pass) const;
  double SideSeconds(int iteration, int replica, int rank,
                     const SideOp& op) const;
  // How `iteration` begins: once, or falsely and then again.
  std::vector<Start> StartsOf(int iteration) const;
  // From this iteration on, all are alike except for how they begin.
  int settled() const {
    const int started = false_starts.empty() ? 0 : false_starts.back();
    return undone_steps.empty() ? started
                                : std::max(started, undone_steps.back() + 1);
  }
  // Pass time of one rank in one iteration, without noise.
  double BusySeconds(int rank, int dp_class = 0) const;
};

// Our own bugs, found early: indexes in range, every channel with one
// producer and one consumer that agree on the count of tokens, attachments in
// order, hooks on lanes of passes, groups whose members meet equally often and
// alike, whatever their class. kInternal.
absl::Status VerifyProgram(const Program& program);

// The whole Program as text: groups, and of every class its channels and the
// operations of one iteration by rank; "[1..]" behind those left out before
// iteration 1, "|" where later iterations begin. Then those of a false start.
std::string ToString(const Program& program);

}  // namespace pipewright
