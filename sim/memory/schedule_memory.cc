#include "sim/memory/schedule_memory.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "sim/memory/activations.h"
#include "sim/schedule/schedule.h"

namespace pipewright {
namespace {

// The live bytes of a rank as its order is walked.
class LiveMemory {
 public:
  // All must outlive this.
  LiveMemory(const Schedule& schedule, const ScheduleMemory& memory,
             const MemoryFramework& framework, int rank);

  int StageOf(Pass pass) const {
    return schedule_.placement.StageOf(rank_, pass.chunk(), pass.direction());
  }
  // The pass's own highest point; null where it has none.
  const PassMemory* Peak(Pass pass) const {
    return PeakOf(pass.kind(), MemoryOf(pass), IsAgain(pass));
  }

  void Begin(Pass pass);
  void End(Pass pass);
  // What waits for its transfer until the block of the pass is over.
  int64_t SentBytes(Pass pass) const;

  int64_t total() const { return activations + recomputed + handed_over; }
  // Held between passes, in microbatches through all stages of the rank.
  double Microbatches() const;
  // The same of what a forward is about to hold.
  double Microbatches(Pass forward) const;

  int64_t activations = 0;
  int64_t recomputed = 0;
  int64_t handed_over = 0;
  int64_t on_host = 0;

 private:
  // What the passes of a chunk and direction are of.
  struct Lane {
    const StageMemory* stage;
    const StageMemory* again;  // of passes that an R runs again
  };

  const Lane& LaneOf(Pass pass) const {
    return lanes_[pass.direction() * vpp_ + pass.chunk()];
  }
  bool IsAgain(Pass pass) const {
    return !again_.empty() && again_.contains(pass.activation());
  }
  const StageMemory& MemoryOf(Pass pass) const {
    return IsAgain(pass) ? *LaneOf(pass).again : *LaneOf(pass).stage;
  }
  void Hold(Pass pass, int64_t bytes) {
    if (bytes == 0) return;
    activations += bytes;
    held_[pass.direction()] += bytes;
    stale_ = true;
  }
  // The stage that the pass has its input from (-1) or gives its output to
  // (+1); below 0: none.
  int NeighbourOf(Pass pass, int direction) const;
  bool GivenHere(Pass pass, int direction) const;
  static std::vector<Lane> LanesOf(const Schedule& schedule,
                                   const ScheduleMemory& memory, int rank);
  // [replica]: the most that one microbatch holds between two of its passes.
  std::vector<int64_t> MicrobatchBytes() const;

  const Schedule& schedule_;
  const bool hands_over_;
  const int rank_;
  const int vpp_;
  const std::vector<Lane> lanes_;  // [direction * vpp + chunk]
  const absl::flat_hash_set<uint64_t> again_;
  absl::flat_hash_set<uint64_t> away_;
  absl::flat_hash_set<uint64_t> loaded_;   // and not used yet
  std::vector<int64_t> held_;              // [replica], with what is recomputed
  const std::vector<int64_t> microbatch_;  // [replica]
  // Microbatches(), as long as nothing has changed.
  mutable bool stale_ = true;
  mutable double microbatches_ = 0;
};

LiveMemory::LiveMemory(const Schedule& schedule, const ScheduleMemory& memory,
                       const MemoryFramework& framework, int rank)
    : schedule_(schedule),
      hands_over_(framework.hands_over),
      rank_(rank),
      vpp_(schedule.vpp()),
      lanes_(LanesOf(schedule, memory, rank)),
      again_(RunAgain(schedule.order(rank))),
      held_(schedule.directions),
      microbatch_(MicrobatchBytes()) {}

std::vector<LiveMemory::Lane> LiveMemory::LanesOf(const Schedule& schedule,
                                                  const ScheduleMemory& memory,
                                                  int rank) {
  std::vector<Lane> lanes;
  for (int direction = 0; direction < schedule.directions; ++direction) {
    for (int chunk = 0; chunk < schedule.vpp(); ++chunk) {
      const int stage = schedule.placement.StageOf(rank, chunk, direction);
      lanes.push_back({memory.stages[stage].get(),
                       memory.again.empty() ? memory.stages[stage].get()
                                            : memory.again[stage].get()});
    }
  }
  return lanes;
}

void LiveMemory::Begin(Pass pass) {
  const StageMemory& stage = MemoryOf(pass);
  if (pass.kind() == PassKind::kForward && pass.slice() == 0) {
    Hold(pass, stage.per_microbatch);
  }
  if (GivenHere(pass, -1)) handed_over -= stage.boundary;
  if (!loaded_.empty() && ReadsActivations(pass.kind()) &&
      loaded_.erase(pass.activation()) > 0) {
    on_host -= stage.away;
  }
}

void LiveMemory::End(Pass pass) {
  const StageMemory& stage = MemoryOf(pass);
  // FREE gives the device's memory back, O alone does not.
  if (pass.kind() == PassKind::kOffload) {
    on_host += stage.away;
    return;
  }
  if (pass.kind() == PassKind::kFree) away_.insert(pass.activation());
  if (pass.kind() == PassKind::kLoad) {
    loaded_.insert(pass.activation());
    if (away_.erase(pass.activation()) == 0) return;
  }
  const PassChange change = ChangeOf(pass.kind(), stage, IsAgain(pass));
  Hold(pass, change.activations);
  if (change.recomputed != 0) {
    held_[pass.direction()] += change.recomputed;
    recomputed += change.recomputed;
    stale_ = true;
  }
  if (IsBackward(pass.kind()) && pass.slice() == 0) {
    Hold(pass, -stage.per_microbatch);
  }
  if (GivenHere(pass, +1)) handed_over += stage.boundary;
}

int64_t LiveMemory::SentBytes(Pass pass) const {
  if (!hands_over_) return 0;
  const int other = NeighbourOf(pass, +1);
  const bool sends = other >= 0 && schedule_.placement.RankOf(
                                       other, pass.direction()) != rank_;
  return sends ? MemoryOf(pass).boundary : 0;
}

double LiveMemory::Microbatches() const {
  if (!stale_) return microbatches_;
  double sum = 0;
  for (size_t replica = 0; replica < held_.size(); ++replica) {
    if (microbatch_[replica] == 0) continue;
    sum += static_cast<double>(held_[replica]) /
           static_cast<double>(microbatch_[replica]);
  }
  stale_ = false;
  microbatches_ = sum;
  return sum;
}

double LiveMemory::Microbatches(Pass forward) const {
  const int64_t microbatch = microbatch_[forward.direction()];
  return microbatch == 0 ? 0
                         : static_cast<double>(MemoryOf(forward).kept) /
                               static_cast<double>(microbatch);
}

int LiveMemory::NeighbourOf(Pass pass, int direction) const {
  const bool forward = pass.kind() == PassKind::kForward;
  if (!forward && !IsBackward(pass.kind())) return -1;
  const int other = StageOf(pass) + (forward ? direction : -direction);
  return other < schedule_.stages() ? other : -1;
}

bool LiveMemory::GivenHere(Pass pass, int direction) const {
  if (!hands_over_) return false;
  const int other = NeighbourOf(pass, direction);
  return other >= 0 &&
         schedule_.placement.RankOf(other, pass.direction()) == rank_;
}

std::vector<int64_t> LiveMemory::MicrobatchBytes() const {
  std::vector<int64_t> bytes(schedule_.directions);
  std::vector<int64_t> most(lanes_.size());  // of a slice
  for (const Pass pass : schedule_.order(rank_)) {
    const StageMemory& stage = MemoryOf(pass);
    int64_t& own = most[pass.direction() * vpp_ + pass.chunk()];
    if (pass.kind() == PassKind::kForward) {
      own = std::max(own, stage.kept);
    } else if (pass.kind() == PassKind::kRecompute) {
      own = std::max(own, stage.kept + stage.recomputed);
    } else if (pass.kind() == PassKind::kBackwardInput) {
      own = std::max(own, stage.weight_part);
    }
  }
  for (size_t index = 0; index < most.size(); ++index) {
    bytes[index / vpp_] +=
        schedule_.slices * most[index] + lanes_[index].stage->per_microbatch;
  }
  return bytes;
}

std::string KeyOf(const std::vector<StageBlock>& blocks,
                  const TrainingSpec& training, const ModelSpec& model,
                  int chunk) {
  std::string key =
      training.recompute_chunks.empty()
          ? ""
          : absl::StrCat(training.recompute_chunks[chunk] ? 1 : 0);
  for (const StageBlock& block : blocks) {
    const int64_t frozen = std::clamp<int64_t>(
        model.frozen_layers - block.first_layer, 0, block.count);
    absl::StrAppend(&key, "|", static_cast<int>(block.kind), " ", block.count,
                    " ", block.part, " ", frozen, " ",
                    frozen > 0 ? block.first_layer : 0, " ",
                    static_cast<int>(block.layer_kind.mixer),
                    static_cast<int>(block.layer_kind.feed_forward));
  }
  return key;
}

int64_t FirstLayer(const std::vector<StageBlock>& blocks) {
  for (const StageBlock& block : blocks) {
    if (block.kind != BlockKind::kEmbedding) return block.first_layer;
  }
  return 0;
}

// Entries of one block: two in a joint pair, else one.
template <typename Visit>
void ForEachBlock(const RankOrder& order, const Visit& visit) {
  const int64_t size = static_cast<int64_t>(order.size());
  for (int64_t index = 0; index < size; ++index) {
    const bool joint = order[index].joint_with_next() && index + 1 < size;
    visit(index, joint ? 2 : 1);
    if (joint) ++index;
  }
}

// Walks one order and keeps its highest point.
class PeakSearch {
 public:
  PeakSearch(const Schedule& schedule, const ScheduleMemory& memory,
             const MemoryFramework& framework, int rank, RankMemory* out)
      : order_(schedule.order(rank)),
        memory_(memory),
        live_(schedule, memory, framework, rank),
        out_(*out) {}

  // Passes that begin and end together. `waiting`: bytes that the pass before
  // them in a block has for another rank.
  void Run(int64_t first, int count, int64_t waiting) {
    for (int nth = 0; nth < count; ++nth) live_.Begin(order_[first + nth]);
    int64_t total = live_.total() + waiting;
    double microbatches = live_.Microbatches();
    const PassMemory* peaks[2] = {nullptr, nullptr};
    for (int nth = 0; nth < count; ++nth) {
      const Pass pass = order_[first + nth];
      peaks[nth] = live_.Peak(pass);
      if (peaks[nth] != nullptr) total += peaks[nth]->peak.total();
      if (pass.kind() == PassKind::kForward) {
        microbatches += live_.Microbatches(pass);
      }
    }
    See(microbatches);
    if (total > highest_) {
      highest_ = total;
      Remember(first, count, peaks);
      inside_[MemoryKind::kBuffers] += waiting;
    }
    for (int nth = 0; nth < count; ++nth) {
      live_.End(order_[first + nth]);
      out_.peak_activations =
          std::max(out_.peak_activations, live_.activations);
      out_.peak_host_activations =
          std::max(out_.peak_host_activations, live_.on_host);
    }
    See(live_.Microbatches());
  }

  // A pair whose passes run one after the other allocates, for the count of
  // microbatches, at its common start all the same.
  void RunInTurn(int64_t first, int count) {
    double microbatches = live_.Microbatches();
    for (int nth = 0; nth < count; ++nth) {
      const Pass pass = order_[first + nth];
      if (pass.kind() != PassKind::kForward) continue;
      microbatches += live_.Microbatches(pass);
    }
    See(microbatches);
    int64_t waiting = 0;
    for (int nth = 0; nth < count; ++nth) {
      Run(first + nth, 1, waiting);
      waiting += live_.SentBytes(order_[first + nth]);
    }
  }

  void Finish() {
    out_.activations_at_end = live_.total();
    out_.at_peak = out_.fixed;
    out_.at_peak += inside_;
  }

 private:
  void See(double microbatches) {
    out_.peak_microbatches = std::max(out_.peak_microbatches, microbatches);
  }

  void Remember(int64_t first, int count, const PassMemory* const peaks[2]) {
    inside_ = MemoryBytes();
    inside_[MemoryKind::kActivations] = live_.activations;
    inside_[MemoryKind::kRecomputed] = live_.recomputed;
    inside_[MemoryKind::kBuffers] = live_.handed_over;
    out_.pass_index = first;
    out_.op = "";
    int64_t most = 0;
    for (int nth = 0; nth < count; ++nth) {
      if (peaks[nth] == nullptr) continue;
      inside_ += peaks[nth]->peak;
      // Names the pass of a pair that needs more.
      if (!out_.op.empty() && peaks[nth]->peak.total() <= most) continue;
      most = peaks[nth]->peak.total();
      out_.pass = order_[first + nth];
      out_.stage = live_.StageOf(out_.pass);
      out_.op = peaks[nth]->layer < 0
                    ? peaks[nth]->op
                    : absl::StrCat(
                          "layer ",
                          memory_.first_layer[out_.stage] + peaks[nth]->layer,
                          " ", peaks[nth]->op);
    }
  }

  const RankOrder& order_;
  const ScheduleMemory& memory_;
  LiveMemory live_;
  RankMemory& out_;
  int64_t highest_ = 0;
  MemoryBytes inside_;
};

void FindPeak(const Schedule& schedule, const ScheduleMemory& memory,
              const MemoryFramework& framework, int rank, RankMemory* out) {
  PeakSearch search(schedule, memory, framework, rank, out);
  ForEachBlock(schedule.order(rank), [&](int64_t first, int count) {
    if (framework.pairs_in_turn) {
      search.RunInTurn(first, count);
    } else {
      search.Run(first, count, 0);
    }
  });
  search.Finish();
}

void Offload(const OffloadedStates& states, RankMemory* out) {
  for (const MemoryKind kind : {MemoryKind::kMaster, MemoryKind::kMoments}) {
    out->fixed[kind] =
        std::llround(states.resident * static_cast<double>(out->fixed[kind]));
  }
  out->fixed[MemoryKind::kBuffers] += states.device;
  out->host_optimizer = states.host;
}

}  // namespace

PassChange ChangeOf(PassKind kind, const StageMemory& stage,
                    bool has_recompute) {
  const int64_t again = has_recompute ? stage.recomputed : 0;
  switch (kind) {
    case PassKind::kForward:
      return {.activations = stage.kept};
    case PassKind::kLoad:
      return {.activations = stage.away};
    case PassKind::kOffload:
    case PassKind::kFree:
      return {.activations = -stage.away};
    case PassKind::kRecompute:
      return {.recomputed = stage.recomputed};
    case PassKind::kBackwardInput:
      return {.activations = stage.weight_part - stage.kept,
              .recomputed = -again};
    case PassKind::kBackwardFull:
      return {.activations = -stage.kept, .recomputed = -again};
    case PassKind::kBackwardWeight:
      return {.activations = -stage.weight_part};
    case PassKind::kSync:
      return {};
  }
  return {};
}

const PassMemory* PeakOf(PassKind kind, const StageMemory& stage,
                         bool has_recompute) {
  switch (kind) {
    case PassKind::kForward:
      return &stage.forward;
    case PassKind::kBackwardInput:
      return has_recompute ? &stage.backward_input_after
                           : &stage.backward_input;
    case PassKind::kBackwardFull:
      return has_recompute ? &stage.backward_full_after : &stage.backward_full;
    case PassKind::kBackwardWeight:
      return &stage.backward_weight;
    case PassKind::kRecompute:
      return &stage.recompute;
    case PassKind::kOffload:
    case PassKind::kLoad:
    case PassKind::kSync:
    case PassKind::kFree:
      return nullptr;
  }
  return nullptr;
}

int ScheduleMemory::WorstRank() const {
  int worst = 0;
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    if (ranks[rank].needed() > ranks[worst].needed()) {
      worst = static_cast<int>(rank);
    }
  }
  return worst;
}

ScheduleMemory BuildScheduleMemory(const ModelSpec& model,
                                   const TrainingSpec& training,
                                   const StageLayout& layout,
                                   const Schedule& schedule,
                                   const MemoryOptions& options) {
  const std::shared_ptr<const MemoryFramework> framework =
      options.framework != nullptr ? options.framework : MegatronMemory();
  ScheduleMemory memory;
  StageMemories own;
  const bool shares = options.shared != nullptr && options.framework == nullptr;
  StageMemories& known = shares ? *options.shared : own;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const int chunk = schedule.placement.ChunkOf(stage);
    const std::vector<StageBlock>& blocks = layout.stages[stage];
    memory.stages.push_back(
        known.Get(KeyOf(blocks, training, model, chunk), [&] {
          return std::make_shared<const StageMemory>(
              framework->stage(model, training, blocks, chunk));
        }));
    memory.first_layer.push_back(FirstLayer(blocks));
  }
  if (schedule.Has(PassKind::kRecompute)) {
    memory.again = memory.stages;
    TrainingSpec whole = training;
    whole.recompute = Recompute::kFull;
    for (int stage = 0;
         training.recompute == Recompute::kNone && stage < schedule.stages();
         ++stage) {
      memory.again[stage] = std::make_shared<const StageMemory>(
          framework->stage(model, whole, layout.stages[stage],
                           schedule.placement.ChunkOf(stage)));
    }
  }
  const std::vector<int> versions = WeightVersionsOf(schedule).versions;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    RankMemory out;
    out.fixed = framework->fixed({.schedule = schedule,
                                  .stages = memory.stages,
                                  .training = training,
                                  .options = options,
                                  .versions = versions[rank],
                                  .rank = rank});
    if (!options.optimizer.empty()) Offload(options.optimizer[rank], &out);
    FindPeak(schedule, memory, *framework, rank, &out);
    out.context = std::llround(options.context_bytes);
    out.fragmentation =
        std::llround(options.fragmentation * static_cast<double>(out.peak()));
    memory.ranks.push_back(std::move(out));
  }
  return memory;
}

}  // namespace pipewright
