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
#include "sim/program/network.h"
#include "sim/program/op_kind.h"
#include "sim/schedule/pass.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

// What the chunk number of a pass stands for where passes are cut into layers:
// this layer, of so many, of a chunk of the schedule.
struct LayerPart {
  int chunk = 0;
  int layer = 0;
  int layers = 1;

  // The first that a pass of this kind runs, and the last.
  bool IsFirst(PassKind kind) const {
    return RunsDown(kind) ? layer == layers - 1 : layer == 0;
  }
  bool IsLast(PassKind kind) const {
    return RunsDown(kind) ? layer == 0 : layer == layers - 1;
  }
  static bool RunsDown(PassKind kind) {
    return IsBackward(kind) || kind == PassKind::kBackwardWeight;
  }
};

// Side operations that come with the passes of some lanes (rule 7), stored
// once however many passes there are.
struct LaneHook {
  enum class Place : uint8_t { kBefore, kAfter };
  // kUnlessKept: at a pass whose operation's result no pass before it has kept.
  enum class Fires : uint8_t { kEveryPass, kEveryRun, kUnlessKept };
  Place place = Place::kBefore;
  Fires fires = Fires::kEveryPass;
  int64_t every = 1;  // for kEveryPass: passes of one lane
  int window = 0;
  // [Pass::lane()]: index in RankProgram::side_ops, -1: none. All of one
  // stream, so that they end in order. Their own channels, if any, come with
  // every pass.
  std::vector<int32_t> side_ops;
  // Lanes of kBefore, [lane] 1: never issued ahead of its own pass. Empty:
  // nowhere.
  std::vector<char> in_time;
  // Lanes of kUnlessKept, [lane] 1: a pass keeps the result for the next pass
  // with the same operation; 0: it gives it up.
  std::vector<char> keeps;
  // A channel that the last one of an iteration feeds; -1: none. False starts
  // feed nothing.
  int32_t output = -1;
};

// Who meets in a collective. Knows no operations and no times.

// Members of a collective. Each member reaches it through a SideOp of its
// own rank that names the group; the n-th one of a rank belongs with the n-th
// ones of the others, whatever class their replicas are of.
struct Group {
  enum class Span : uint8_t {
    kReplicas,  // one rank, all data-parallel replicas
    kRanks,     // the ranks listed, each replica for itself
    kAll,       // the ranks listed, all replicas
  };
  Span span = Span::kReplicas;
  std::vector<int> ranks;
  // Size of the parts of those that span replicas: this many that stand next to
  // each other meet among themselves, or with `across` the n-th ones of all
  // such parts. 0: all meet. Divides the replicas.
  int part = 0;
  bool across = false;
  // True if all devices of a rank meet that hold the same part of its
  // parameters: those of context parallelism (Network::context_parallel) are
  // members, too.
  bool contexts = false;

  // Which of its instances a replica takes part in, how many there are, and
  // the replicas in each.
  int InstanceOf(int replica) const {
    if (span == Span::kRanks) return replica;
    if (part == 0) return 0;
    return across ? replica % part : replica / part;
  }
  int Instances(int replicas) const {
    if (span == Span::kRanks) return replicas;
    if (part == 0) return 1;
    return across ? part : replicas / part;
  }
  int ReplicasOf(int replicas) const { return replicas / Instances(replicas); }
  // The first replica of an instance.
  int FirstOf(int instance) const {
    return span == Span::kRanks || part == 0 || across ? instance
                                                       : instance * part;
  }
};

// With whom a one-sided operation exchanges bytes, and in which order: the same
// for every data-parallel replica, counted from its own place. Knows no bytes
// and no times.
struct PeerPlan {
  // A replica of the same rank, seen from another one: so many nodes further,
  // and at a place so much further in its node, both counted around.
  struct Peer {
    int node = 0;
    int place = 0;
  };
  // What runs at once.
  struct Step {
    std::vector<Peer> peers;
    // With each of them by a flow of its own; else all flows keep pace.
    bool apart = false;
  };

  int node_size = 1;        // replicas of a node, next to each other
  int nodes = 0;            // that peers are in, next to each other; 0: all
  std::vector<Step> steps;  // one after the other

  // `replicas` is a multiple of node_size.
  int ReplicaOf(const Peer& peer, int replica, int replicas) const {
    const int counted = nodes > 0 ? nodes : replicas / node_size;
    const int own = replica / node_size;
    const int node = own / counted * counted + (own + peer.node) % counted;
    return node * node_size + (replica % node_size + peer.place) % node_size;
  }
};

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

// One side of a transfer that holds its rank (WaitRule).
struct Handshake {
  int32_t channel = -1;
  bool send = false;
  Pass pass{};  // the producer where it sends, else the consumer
};

// What a rank posts in a time step (AddStepPosts).
struct StepPost {
  int64_t position = 0;
  // 0: in the step of the block that ends at `position`. Else in so-many-th of
  // the empty steps in front of the block that begins there.
  int64_t empty = 0;
  Handshake post;
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
  // By position, then by step; empty if ranks do not walk through time steps.
  std::vector<StepPost> step_posts;

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
  // Times are units of one pass, which nobody has given a time.
  bool in_units = false;

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

// The part of it that compares classes: kFailedPrecondition, which says who
// does not meet whom.
absl::Status VerifyMeetingsOfClasses(const Program& program);

// The whole Program as text: groups, and of every class its channels and the
// operations of one iteration by rank; "[1..]" behind those left out before
// iteration 1, "|" where later iterations begin. Then those of a false start.
std::string ToString(const Program& program);

// BlockedGrid (sim/schedule/grid.h) of a replica of a class of a Program, whose
// orders may be longer than the schedule's. Names the class if there are
// several.
std::string BlockedGrid(const Program& program,
                        const std::vector<int64_t>& positions,
                        int dp_class = 0);

}  // namespace pipewright
