#include "sim/schedule/verify_transfers.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/schedule/grid.h"

namespace pipewright {
namespace {

// Most ranks that a message tells about in words.
constexpr int kMaxListedTransfers = 16;

// What the three rules share: where each rank stands and what it waits for.
class Progress {
 public:
  Progress(const Schedule& schedule, const std::vector<StepList>& lists)
      : schedule_(schedule),
        lists_(lists),
        positions_(lists.size(), 0),
        ends_(lists.size(), 0),
        sent_(MessageCount(schedule), kNever),
        received_(MessageCount(schedule), kNever),
        waits_(lists.size(), false) {}
  virtual ~Progress() = default;

  absl::Status Run(Semantics semantics, ProgressFacts* facts) {
    for (int rank = schedule_.pp() - 1; rank >= 0; --rank) Wake(rank);
    while (!to_visit_.empty()) {
      const int rank = to_visit_.back();
      to_visit_.pop_back();
      waits_[rank] = false;
      ++facts_.visits;
      while (Advance(rank)) continue;
    }
    for (int rank = 0; rank < schedule_.pp(); ++rank) {
      if (!Ended(rank)) return Deadlock(semantics, rank);
    }
    facts_.steps = *std::max_element(ends_.begin(), ends_.end());
    if (facts != nullptr) *facts = facts_;
    return absl::OkStatus();
  }

 protected:
  static constexpr int64_t kNever = -1;

  // Runs one more step on `rank` and wakes whom that lets go on; false when it
  // has to wait or has ended.
  virtual bool Advance(int rank) = 0;
  // The step that blocks `rank`; the size of its list when there is none.
  virtual size_t Blocked(int rank) const { return positions_[rank]; }
  virtual bool Ended(int rank) const {
    return positions_[rank] == lists_[rank].size();
  }

  int64_t IndexOf(int rank, const Step& step) const {
    return MessageOf(schedule_, rank, step).index;
  }
  // The message that a pass needs; -1 where it needs none.
  int64_t InputOf(int rank, const Step& step) const {
    return step.kind == StepKind::kPass &&
                   NeedsReceive(schedule_, rank, step.pass)
               ? IndexOf(rank, ReceiveOf(step.pass))
               : -1;
  }

  // A block's parts run side by side: its second one counts.
  void RunPass(int rank, const Step& step) {
    if (IsComputePass(step.pass.kind()) && !step.pass.joint_with_next()) {
      ++ends_[rank];
    }
  }

  void Wake(int rank) {
    if (!waits_[rank]) to_visit_.push_back(rank);
    waits_[rank] = true;
  }

  const Schedule& schedule_;
  const std::vector<StepList>& lists_;
  std::vector<size_t> positions_;
  std::vector<int64_t> ends_;  // [rank] of its last pass or call, in steps
  // [message] since when its side is there, in steps.
  std::vector<int64_t> sent_;
  std::vector<int64_t> received_;
  ProgressFacts facts_;

 private:
  std::string WaitsFor(int rank) const {
    const Step& step = lists_[rank][Blocked(rank)];
    std::string text =
        absl::StrCat("rank ", rank, ", position ", Blocked(rank), ": ",
                     StepToString(schedule_, step), " waits for ");
    const bool sends = step.kind == StepKind::kSend;
    const Step held =
        step.kind == StepKind::kPass ? ReceiveOf(step.pass) : step;
    const int peer = MessageOf(schedule_, rank, held).peer;
    const absl::string_view what =
        sends ? "its receive on rank " : "its send on rank ";
    return absl::StrCat(text, what, peer);
  }

  absl::Status Deadlock(Semantics semantics, int first) const {
    std::string message =
        absl::StrCat("deadlock: with ", SemanticsName(semantics),
                     " transfers these ranks wait for each other");
    int listed = 0;
    std::vector<int64_t> positions;
    for (int rank = 0; rank < schedule_.pp(); ++rank) {
      positions.push_back(Ended(rank)
                              ? static_cast<int64_t>(lists_[rank].size())
                              : static_cast<int64_t>(Blocked(rank)));
      if (!Ended(rank) && ++listed <= kMaxListedTransfers) {
        absl::StrAppend(&message, "\n  ", WaitsFor(rank));
      }
    }
    const GridSource grid = {
        .ranks = schedule_.pp(),
        .size =
            [&](int rank) { return static_cast<int64_t>(lists_[rank].size()); },
        .text =
            [&](int rank, int64_t index) {
              return StepToString(schedule_, lists_[rank][index]);
            },
        .opens =
            [&](int rank, int64_t index) {
              return lists_[rank][index].kind == StepKind::kPass &&
                     lists_[rank][index].pass.joint_with_next();
            }};
    return AtOrder(schedule_, first,
                   absl::FailedPreconditionError(absl::StrCat(
                       message, "\n", MarkedGrid(grid, positions))));
  }

  std::vector<int> to_visit_;
  std::vector<bool> waits_;  // [rank] is in `to_visit_`
};

class Buffered : public Progress {
 public:
  using Progress::Progress;

 protected:
  bool Advance(int rank) override {
    if (Ended(rank)) return false;
    const Step& step = lists_[rank][positions_[rank]];
    if (step.kind == StepKind::kSend) {
      const Message message = MessageOf(schedule_, rank, step);
      sent_[message.index] = ends_[rank];
      Wake(message.peer);
    }
    // A block starts when both of its parts can.
    const bool opens =
        step.kind == StepKind::kPass && step.pass.joint_with_next();
    int64_t start = ends_[rank];
    for (size_t part = 0; part < (opens ? 2u : 1u); ++part) {
      const int64_t input =
          InputOf(rank, lists_[rank][positions_[rank] + part]);
      if (input < 0) continue;
      if (sent_[input] == kNever) return false;
      start = std::max(start, sent_[input]);
    }
    ends_[rank] = start;
    if (step.kind == StepKind::kPass) RunPass(rank, step);
    ++positions_[rank];
    return true;
  }
};

class Rendezvous : public Progress {
 public:
  using Progress::Progress;

 protected:
  bool Advance(int rank) override {
    if (Ended(rank)) return false;
    const Step& step = lists_[rank][positions_[rank]];
    if (step.kind == StepKind::kSend || step.kind == StepKind::kReceive) {
      const Message message = MessageOf(schedule_, rank, step);
      const size_t other = positions_[message.peer];
      if (other == lists_[message.peer].size()) return false;
      const Step& theirs = lists_[message.peer][other];
      const bool meets = (theirs.kind == StepKind::kSend ||
                          theirs.kind == StepKind::kReceive) &&
                         theirs.kind != step.kind &&
                         IndexOf(message.peer, theirs) == message.index;
      if (!meets) return false;
      ends_[rank] = ends_[message.peer] =
          std::max(ends_[rank], ends_[message.peer]);
      ++positions_[message.peer];
      Wake(message.peer);
    } else if (step.kind == StepKind::kPass) {
      RunPass(rank, step);
    }
    ++positions_[rank];
    return true;
  }
};

// positions_ is the next pass (or other step that is no transfer); batches
// follow behind on their own stream.
class Nccl : public Progress {
 public:
  Nccl(const Schedule& schedule, const std::vector<StepList>& lists, bool holds)
      : Progress(schedule, lists),
        holds_(holds),
        batches_(lists.size()),
        arrived_(MessageCount(schedule), 0) {
    for (int rank = 0; rank < schedule.pp(); ++rank) {
      passed_.emplace_back(lists[rank].size(), 0);
      SkipTransfers(rank);
      NextBatch(rank);
    }
  }

 protected:
  bool Advance(int rank) override {
    return AdvancePass(rank) || AdvanceBatch(rank);
  }

  bool Ended(int rank) const override {
    return Progress::Ended(rank) && batches_[rank].begin == lists_[rank].size();
  }

  // The member of the batch that is missing its partner, or the pass.
  size_t Blocked(int rank) const override {
    const Batch& batch = batches_[rank];
    if (!batch.posted) return positions_[rank];
    for (size_t index = batch.begin; index < batch.end; ++index) {
      if (IsTransfer(rank, index) && !Met(rank, index)) return index;
    }
    return positions_[rank];
  }

 private:
  // Steps begin..end-1 of a rank's list, from one pass to the next.
  struct Batch {
    size_t begin = 0;
    size_t end = 0;
    bool posted = false;
    int64_t free = 0;  // since when the stream is, in steps
    size_t last = 0;   // which transfer in front of it ended then
  };

  bool IsTransfer(int rank, size_t index) const {
    const StepKind kind = lists_[rank][index].kind;
    return kind == StepKind::kSend || kind == StepKind::kReceive;
  }
  bool IsPass(int rank, size_t index) const {
    return lists_[rank][index].kind == StepKind::kPass;
  }
  // `sent_` and `received_` say here that a side has been posted.
  bool Met(int rank, size_t index) const {
    const int64_t message = IndexOf(rank, lists_[rank][index]);
    return sent_[message] != kNever && received_[message] != kNever;
  }

  void SkipTransfers(int rank) {
    size_t& position = positions_[rank];
    while (position < lists_[rank].size() && !IsPass(rank, position)) {
      passed_[rank][position++] = ends_[rank];
    }
  }

  // The batch behind the current one.
  void NextBatch(int rank) {
    Batch& batch = batches_[rank];
    const size_t size = lists_[rank].size();
    size_t begin = batch.end;
    while (begin < size && !IsTransfer(rank, begin)) ++begin;
    size_t end = begin;
    while (end < size && !IsPass(rank, end)) ++end;
    batch.begin = begin;
    batch.end = end;
    batch.posted = false;
  }

  bool AdvancePass(int rank) {
    size_t& position = positions_[rank];
    if (position == lists_[rank].size()) return false;
    if (holds_ && batches_[rank].begin < position) return false;
    const bool opens = lists_[rank][position].pass.joint_with_next();
    int64_t start = holds_ ? batches_[rank].free : 0;
    for (size_t part = 0; part < (opens ? 2u : 1u); ++part) {
      const Step& step = lists_[rank][position + part];
      const int64_t input = InputOf(rank, step);
      if (input < 0) continue;
      if (!Arrived(rank, step)) return false;
      start = std::max(start, arrived_[input]);
    }
    ends_[rank] = std::max(ends_[rank], start);
    RunPass(rank, lists_[rank][position]);
    passed_[rank][position++] = ends_[rank];
    SkipTransfers(rank);
    return true;
  }

  // The batch of the receive has ended: it is in none that is to come.
  bool Arrived(int rank, const Step& pass) const {
    const int64_t input = IndexOf(rank, ReceiveOf(pass.pass));
    if (sent_[input] == kNever || received_[input] == kNever) return false;
    const Batch& batch = batches_[rank];
    for (size_t index = batch.begin; index < batch.end; ++index) {
      if (lists_[rank][index].kind == StepKind::kReceive &&
          IndexOf(rank, lists_[rank][index]) == input) {
        return false;
      }
    }
    return true;
  }

  bool AdvanceBatch(int rank) {
    Batch& batch = batches_[rank];
    if (batch.begin == lists_[rank].size()) return false;
    if (!batch.posted) {
      if (positions_[rank] < batch.end) return false;
      const int64_t ready =
          batch.begin == 0 ? 0 : passed_[rank][batch.begin - 1];
      CountHeld(rank, ready);
      batch.free = std::max(batch.free, ready);
      for (size_t index = batch.begin; index < batch.end; ++index) {
        if (!IsTransfer(rank, index)) continue;
        const Step& step = lists_[rank][index];
        const Message message = MessageOf(schedule_, rank, step);
        (step.kind == StepKind::kSend ? sent_ : received_)[message.index] =
            batch.free;
        Wake(message.peer);
      }
      batch.posted = true;
      return true;
    }
    for (size_t index = batch.begin; index < batch.end; ++index) {
      if (IsTransfer(rank, index) && !Met(rank, index)) return false;
    }
    for (size_t index = batch.begin; index < batch.end; ++index) {
      if (!IsTransfer(rank, index)) continue;
      const int64_t message = IndexOf(rank, lists_[rank][index]);
      const int64_t met = std::max(sent_[message], received_[message]);
      if (met > batch.free) batch.last = index;
      batch.free = std::max(batch.free, met);
    }
    for (size_t index = batch.begin; index < batch.end; ++index) {
      if (lists_[rank][index].kind == StepKind::kReceive) {
        arrived_[IndexOf(rank, lists_[rank][index])] = batch.free;
      }
    }
    NextBatch(rank);
    return true;
  }

  // Counts sends of the batch that could go since `ready`, if a receive in
  // front of it is what they wait for.
  void CountHeld(int rank, int64_t ready) {
    const Batch& batch = batches_[rank];
    const StepList& list = lists_[rank];
    const int64_t held = batch.free - ready;
    if (held <= 0 || list[batch.last].kind != StepKind::kReceive) return;
    for (size_t index = batch.begin; index < batch.end; ++index) {
      if (list[index].kind != StepKind::kSend) continue;
      ++facts_.held_sends;
      if (held <= facts_.longest.steps) continue;
      facts_.longest = {rank, list[index], list[batch.last], held};
    }
  }

  const bool holds_;  // a pass waits for all batches in front of it
  std::vector<Batch> batches_;
  // [rank][position] when its pass, and all in front of it, had ended.
  std::vector<std::vector<int64_t>> passed_;
  std::vector<int64_t> arrived_;  // [message] when its batch had ended
};

// NCCL's rule 4: between two ranks the n-th sent is the n-th received.
absl::Status CheckSequence(const Schedule& schedule,
                           const std::vector<StepList>& lists) {
  std::map<std::pair<int, int>, std::vector<Step>> sent;  // (from, to)
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    for (const Step& step : lists[rank]) {
      if (step.kind != StepKind::kSend) continue;
      sent[{rank, MessageOf(schedule, rank, step).peer}].push_back(step);
    }
  }
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    std::map<int, size_t> seen;
    for (size_t index = 0; index < lists[rank].size(); ++index) {
      const Step& step = lists[rank][index];
      if (step.kind != StepKind::kReceive) continue;
      const Message message = MessageOf(schedule, rank, step);
      const size_t number = seen[message.peer]++;
      const Step& partner = sent[{message.peer, rank}][number];
      if (MessageOf(schedule, message.peer, partner).index == message.index) {
        continue;
      }
      return AtOrder(
          schedule, rank,
          absl::FailedPreconditionError(absl::StrCat(
              "rank ", rank, ", position ", index, ": ",
              StepToString(schedule, step), " is number ", number + 1,
              " that rank ", rank, " receives from rank ", message.peer,
              ", which sends ", StepToString(schedule, partner), " as number ",
              number + 1, "; NCCL pairs them by their order")));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view SemanticsName(Semantics semantics) {
  constexpr absl::string_view kNames[] = {"buffered", "rendezvous", "nccl",
                                          "batched"};
  return kNames[static_cast<int>(semantics)];
}

absl::Status CheckProgress(const Schedule& schedule,
                           const std::vector<StepList>& lists,
                           Semantics semantics, ProgressFacts* facts) {
  PW_CHECK(static_cast<int>(lists.size()) == schedule.pp());
  switch (semantics) {
    case Semantics::kBuffered:
      return Buffered(schedule, lists).Run(semantics, facts);
    case Semantics::kRendezvous:
      return Rendezvous(schedule, lists).Run(semantics, facts);
    case Semantics::kNccl:
    case Semantics::kBatched:
      PW_RETURN_IF_ERROR(CheckSequence(schedule, lists));
      return Nccl(schedule, lists, semantics == Semantics::kBatched)
          .Run(semantics, facts);
  }
  return absl::OkStatus();
}

std::vector<StepList> DefaultSteps(const Schedule& schedule,
                                   Semantics semantics) {
  return semantics == Semantics::kRendezvous
             ? BlockingSteps(schedule)
             : PostAhead(schedule, PassSteps(schedule));
}

// CheckPairs: each transfer by itself.

namespace {

enum TransferFlag : uint8_t { kSent = 1, kReceived = 2, kUsed = 4 };

class PairCheck {
 public:
  PairCheck(const Schedule& schedule, const std::vector<StepList>& lists)
      : schedule_(schedule), lists_(lists), flags_(MessageCount(schedule), 0) {
    for (const StepList& list : lists) {
      for (const Step& step : list) {
        reduces_ |= step.kind == StepKind::kReduceGradient;
      }
    }
  }

  absl::Status Run() {
    for (int rank = 0; rank < schedule_.pp(); ++rank) {
      absl::Status status = CheckList(rank);
      if (status.ok()) status = CheckStates(rank);
      if (!status.ok()) return AtOrder(schedule_, rank, status);
    }
    for (int rank = 0; rank < schedule_.pp(); ++rank) {
      const absl::Status status = CheckMissing(rank);
      if (!status.ok()) return AtOrder(schedule_, rank, status);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Fail(int rank, size_t index, absl::string_view what) const {
    const Step& step = lists_[rank][index];
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", rank, ", position ", index, ": ",
                     StepToString(schedule_, step), " (stage ",
                     schedule_.placement.StageOf(rank, step.pass.chunk(),
                                                 step.pass.direction()),
                     ") ", what));
  }

  // Checks what this rank alone shows: the order of a pass and its transfers.
  absl::Status CheckList(int rank) {
    const StepList& list = lists_[rank];
    for (size_t index = 0; index < list.size(); ++index) {
      const Step& step = list[index];
      switch (step.kind) {
        case StepKind::kPass:
          if (NeedsReceive(schedule_, rank, step.pass)) {
            uint8_t& flags = FlagsOf(rank, ReceiveOf(step.pass));
            if ((flags & kReceived) == 0) {
              return Fail(rank, index, "stands before its receive");
            }
          }
          if (NeedsSend(schedule_, rank, step.pass)) {
            FlagsOf(rank, SendOf(step.pass)) |= kUsed;
          }
          break;
        case StepKind::kSend:
        case StepKind::kReceive: {
          const bool sends = step.kind == StepKind::kSend;
          const Message message = MessageOf(schedule_, rank, step);
          if (message.peer < 0) {
            return Fail(rank, index, "has no neighbour stage");
          }
          if (message.peer == rank) {
            return Fail(rank, index,
                        "is between two stages of one rank, which need none");
          }
          uint8_t& flags = flags_[message.index];
          if ((flags & (sends ? kSent : kReceived)) != 0) {
            return Fail(rank, index, "stands twice");
          }
          if (sends && (flags & kUsed) == 0) {
            return Fail(rank, index,
                        "stands before the pass whose result it "
                        "sends");
          }
          flags |= sends ? kSent : kReceived;
          break;
        }
        default:
          break;
      }
    }
    return absl::OkStatus();
  }

  uint8_t& FlagsOf(int rank, const Step& step) {
    return flags_[MessageOf(schedule_, rank, step).index];
  }

  // A pass whose send is missing; its receive is, too, or the receiver's list
  // has failed already.
  absl::Status CheckMissing(int rank) {
    for (size_t index = 0; index < lists_[rank].size(); ++index) {
      const Step& step = lists_[rank][index];
      if (step.kind == StepKind::kReceive &&
          (FlagsOf(rank, step) & kSent) == 0) {
        return Fail(rank, index,
                    absl::StrCat("has no send on rank ",
                                 MessageOf(schedule_, rank, step).peer));
      }
      if (step.kind == StepKind::kSend &&
          (FlagsOf(rank, step) & kReceived) == 0) {
        return Fail(rank, index,
                    absl::StrCat("has no receive on rank ",
                                 MessageOf(schedule_, rank, step).peer));
      }
    }
    return absl::OkStatus();
  }

  // UNSHARD and RESHARD in turn, passes between them; REDUCE_GRAD once, behind
  // the last weight gradient. A file may have none of them (PyTorch 2.6 has
  // no REDUCE_GRAD; without FSDP the other two change nothing).
  absl::Status CheckStates(int rank) const {
    const StepList& list = lists_[rank];
    for (int chunk = 0; chunk < schedule_.vpp(); ++chunk) {
      bool sharded = true;
      bool used = false;
      bool reduced = false;
      bool knows_shards = false;
      for (const Step& step : list) {
        knows_shards |=
            step.kind == StepKind::kUnshard && step.pass.chunk() == chunk;
      }
      for (size_t index = 0; index < list.size(); ++index) {
        const Step& step = list[index];
        if (step.pass.chunk() != chunk) continue;
        const bool weights = step.pass.kind() == PassKind::kBackwardFull ||
                             step.pass.kind() == PassKind::kBackwardWeight;
        switch (step.kind) {
          case StepKind::kPass:
            if (knows_shards && sharded) {
              return Fail(rank, index, "runs on a stage that is not unsharded");
            }
            if (weights && reduced) {
              return Fail(rank, index,
                          "comes after the REDUCE_GRAD of its stage");
            }
            used = true;
            break;
          case StepKind::kUnshard:
            if (!sharded) return Fail(rank, index, "is unsharded already");
            sharded = false;
            used = false;
            break;
          case StepKind::kReshard:
            if (sharded) return Fail(rank, index, "is not unsharded");
            if (!used) {
              return Fail(rank, index, "ends an UNSHARD that no pass uses");
            }
            sharded = true;
            break;
          case StepKind::kReduceGradient:
            if (reduced) return Fail(rank, index, "stands twice");
            reduced = true;
            break;
          default:
            break;
        }
      }
      if (reduces_ && !reduced) {
        return absl::FailedPreconditionError(absl::StrCat(
            "rank ", rank, ": REDUCE_GRAD of stage ",
            schedule_.placement.StageOf(rank, chunk), " is missing"));
      }
    }
    return absl::OkStatus();
  }

  const Schedule& schedule_;
  const std::vector<StepList>& lists_;
  std::vector<uint8_t> flags_;  // [message]
  bool reduces_ = false;        // there is a REDUCE_GRAD somewhere
};

}  // namespace

absl::Status CheckPairs(const Schedule& schedule,
                        const std::vector<StepList>& lists) {
  return PairCheck(schedule, lists).Run();
}

}  // namespace pipewright
