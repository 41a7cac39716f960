// 1F1B-V: 1F1B on a V placement. The first and the last stage share a rank, so
// that no rank holds many activations for long: two thirds of 1F1B's memory.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "schedules/v_choice.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"

namespace pipewright::one_f_one_b_v {
namespace {

// The order: a pattern of six slots that repeats, moved to the left on a grid
// of slots. Has no costs. Source: zero-bubble-pipeline-parallelism, the
// authors' implementation of arXiv 2405.15362, branch main.

// F of chunk 0, F of chunk 1, then both halves of BW of chunk 1 and chunk 0:
// a slot each, so that a microbatch takes a rank six slots.
enum Cell : uint8_t { kF0, kF1, kFirst1, kSecond1, kFirst0, kSecond0, kFree };
constexpr int kPeriod = kFree;

bool IsForward(uint8_t kind) { return kind <= kF1; }
bool IsFirst(uint8_t kind) { return kind == kFirst1 || kind == kFirst0; }
bool IsSecond(uint8_t kind) { return kind == kSecond1 || kind == kSecond0; }

// All passes, F and BW, of a V placement.
class Grid {
 public:
  Grid(int pp, int microbatches)
      : pp_(pp),
        microbatches_(microbatches),
        slots_(kPeriod * (4 * pp + microbatches + 3)),
        cells_(int64_t{pp} * slots_, kFree),
        live_(int64_t{pp} * slots_, 0),
        at_(int64_t{pp} * kPeriod * microbatches) {
    Repeat();
    CountLive();
  }

  // Moves every pass to the left while no rank needs more memory than the
  // fullest one.
  void Compact() {
    std::vector<std::array<int, kPeriod>> counts(pp_);
    for (int slot = 0; slot < slots_; ++slot) {
      for (int rank = 0; rank < pp_; ++rank) {
        const uint8_t kind = Row(rank)[slot];
        if (kind == kFree) continue;
        const int microbatch = counts[rank][kind]++;
        Move(rank, kind, microbatch, slot,
             Target(rank, kind, slot, Earliest(rank, kind, microbatch)));
      }
    }
  }

  void AddTo(ScheduleBuilder& builder) {
    for (int rank = 0; rank < pp_; ++rank) {
      std::array<int, kPeriod> counts{};
      builder.Reserve(rank, int64_t{4} * microbatches_);
      for (int slot = 0; slot < slots_; ++slot) {
        const uint8_t kind = Row(rank)[slot];
        if (kind == kFree || IsSecond(kind)) continue;
        builder.Add(
            rank,
            IsForward(kind) ? PassKind::kForward : PassKind::kBackwardFull,
            counts[kind]++, kind == kF1 || kind == kFirst1 ? 1 : 0);
      }
    }
  }

 private:
  uint8_t* Row(int rank) { return cells_.data() + int64_t{rank} * slots_; }
  int16_t* Live(int rank) { return live_.data() + int64_t{rank} * slots_; }
  int& At(int rank, int kind, int microbatch) {
    return at_[(int64_t{rank} * kPeriod + kind) * microbatches_ + microbatch];
  }

  // A microbatch's way through the ranks and back, again every six slots, each
  // pass at the first slot behind the one before it that keeps ranks free of
  // collisions.
  void Repeat() {
    int last = kPeriod;
    const auto place = [&](int rank, uint8_t kind, int position) {
      last +=
          1 + (position % kPeriod + kPeriod - (last + 1) % kPeriod) % kPeriod;
      for (int half = 0; half < (IsForward(kind) ? 1 : 2); ++half) {
        for (int index = 0; index < microbatches_; ++index) {
          const int slot = last + half + kPeriod * index;
          PW_CHECK(Row(rank)[slot] == kFree);
          Row(rank)[slot] = static_cast<uint8_t>(kind + half);
          At(rank, kind + half, index) = slot;
        }
      }
    };
    for (int rank = 0; rank < pp_; ++rank) place(rank, kF0, rank + 1);
    for (int rank = pp_ - 1; rank >= 0; --rank) {
      place(rank, kF1, 2 * pp_ - rank);
    }
    int position = 2 * pp_ + 1 + (pp_ % 3 == 0 ? 3 : 0);
    int since_gap = (3 - (pp_ + 2) % 3) % 3;
    const auto place_backward = [&](int rank, uint8_t kind) {
      place(rank, kind, position);
      position += 2;
      if (++since_gap == 3) {
        position += 3;
        since_gap = 0;
      }
    };
    for (int rank = 0; rank < pp_; ++rank) place_backward(rank, kFirst1);
    for (int rank = pp_ - 1; rank >= 0; --rank) place_backward(rank, kFirst0);
  }

  void CountLive() {
    for (int rank = 0; rank < pp_; ++rank) {
      int live = 0;
      for (int slot = 0; slot < slots_; ++slot) {
        const uint8_t kind = Row(rank)[slot];
        live += IsForward(kind) - IsSecond(kind);
        Live(rank)[slot] = static_cast<int16_t>(live);
        peak_ = std::max(peak_, live);
      }
    }
  }

  // The first slot after its kind of the microbatch before and after its
  // producer.
  int Earliest(int rank, uint8_t kind, int microbatch) {
    int earliest = microbatch > 0 ? At(rank, kind, microbatch - 1) + 1 : 0;
    int producer = rank;
    int made = kind - 1;
    const bool up = kind == kF0 || kind == kFirst1;
    if (!IsSecond(kind) && (up ? rank > 0 : rank < pp_ - 1)) {
      producer = up ? rank - 1 : rank + 1;
      made = IsForward(kind) ? kind : kind + 1;
    }
    if (made < kF0) return earliest;
    return std::max(earliest, At(producer, made, microbatch) + 1);
  }

  int Target(int rank, uint8_t kind, int slot, int earliest) {
    const uint8_t* const row = Row(rank);
    if (IsForward(kind)) {
      int begin = slot;
      while (begin > earliest && Live(rank)[begin - 1] < peak_) --begin;
      earliest = begin;
    }
    while (earliest < slot) {
      const void* const free =
          std::memchr(row + earliest, kFree, slot - earliest);
      if (free == nullptr) return slot;
      earliest = static_cast<int>(static_cast<const uint8_t*>(free) - row);
      // The second half needs a place right behind the first.
      if (!IsFirst(kind) || row[earliest + 1] == kFree) return earliest;
      ++earliest;
    }
    return slot;
  }

  void Move(int rank, uint8_t kind, int microbatch, int from, int to) {
    if (to >= from) return;
    Row(rank)[from] = kFree;
    Row(rank)[to] = kind;
    At(rank, kind, microbatch) = to;
    const int change = IsForward(kind) - IsSecond(kind);
    if (change == 0) return;
    int16_t* const live = Live(rank);
    for (int slot = to; slot < from; ++slot) {
      live[slot] = static_cast<int16_t>(live[slot] + change);
    }
  }

  int pp_;
  int microbatches_;
  int slots_;
  int peak_ = 0;                // peak of the repeated pattern, in chunks
  std::vector<uint8_t> cells_;  // [rank][slot]
  std::vector<int16_t> live_;   // [rank][slot], behind it
  std::vector<int> at_;         // slot of [rank][kind][microbatch]
};

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly("1f1b-v", "strategy.vpp", params.vpp, 2));
  PW_RETURN_IF_ERROR(
      RequireOnly("1f1b-v", "strategy.slices", params.slices, 1));
  ScheduleBuilder builder("1f1b-v", Placement::V(params.pp),
                          params.microbatches);
  Grid grid(params.pp, params.microbatches);
  grid.Compact();
  grid.AddTo(builder);
  return std::move(builder).Finish();
}

// With 3 | p the pattern has a gap more, and a chunk more is alive.
bool NoGap(const ScheduleParams& params) { return params.pp % 3 != 0; }

bool Filled(const ScheduleParams& params) {
  return NoGap(params) && params.microbatches >= 2 * params.pp;
}

double Peak(const ScheduleParams& params, int) {
  const int peak = (2 * params.pp + 2) / 3;
  return peak;
}

bool EqualPasses(const ScheduleParams& params) {
  return NoGap(params) && params.pp >= 4 && params.microbatches >= params.pp &&
         params.costs.equal_without_hop();
}

double Bubble(const ScheduleParams& params, int) {
  const int slots =
      params.pp % 3 == 1 ? 5 * (params.pp - 1) : 5 * params.pp - 7;
  return slots * params.costs.forward / 2;
}

const RegisterSchedule kRow({
    .name = "1f1b-v",
    .summary = "1F1B on a V placement, two thirds of its memory",
    .source = "zero-bubble-pipeline-parallelism, the authors' implementation "
              "of arXiv 2405.15362, branch main",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 2,
    .params = {},
    .build = Build,
    .placement = WavePlacement,
    .claims =
        {
            {.metric = Claim::Metric::kPeakActivations,
             .formula = "ceil(2p/3) M on every rank",
             .source = "peaks of the authors' implementation; 3 does not "
                       "divide p, m >= 2p",
             .domain = Filled,
             .value = Peak},
            {.metric = Claim::Metric::kBubblePerRank,
             .formula = "5(p-1) slots of F/2 for p mod 3 = 1, 5p-7 for p mod 3 "
                        "= 2",
             .source = "fitted to replays (15, 33, 75 slots at p = 4, 8, 16); "
                       "F = B = W, c = 0, p >= 4, m >= p",
             .domain = EqualPasses,
             .value = Bubble},
        },
});

}  // namespace
}  // namespace pipewright::one_f_one_b_v
