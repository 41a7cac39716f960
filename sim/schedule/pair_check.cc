// CheckPairs (verify_transfers.h): each transfer by itself.
#include "absl/strings/str_cat.h"
#include "sim/schedule/verify_transfers.h"

namespace pipewright {
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
