// The schedule files of torch.distributed.pipelining: a CSV with a row a rank,
// whose cells say stage, kind and microbatch ("2F0"). PyTorch's letters differ
// from ours and are translated here and nowhere else:
//
//   PyTorch F  I  W  B
//   ours    F  B  W  BW
//
// Two flavours: compute_only has passes (an empty cell is an empty time step,
// Schedule::gaps); compute_comms also has sends, receives, UNSHARD, RESHARD and
// REDUCE_GRAD. Source: PyTorch 2.14.1, schedules.py (_load_csv, _dump_csv,
// _Action.from_str and the passes that lower one flavour to the other).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/schedule/schedule.h"
#include "sim/schedule/text.h"
#include "sim/schedule/transfers.h"

namespace pipewright {

// Does a file that has none of the other forms look like one of these?
bool LooksLikeTorchCsv(absl::string_view content);

// Reads either flavour, told apart by its cells. Stricter than PyTorch: whole
// cells are matched, a microbatch stands exactly where its kind has one, and
// nothing stands between the quotes that CSV would allow. Read as well, with a
// note: the letters before the end of 2024 (B the input gradient, BW the full
// backward; known by a BW, or by a W without I), and the cells of mid-2024
// (F3_s1 or F3_1: kind, microbatch, stage).
// Which stage is on which rank follows from the rows. Error: kInvalidArgument
// "source:LINE: ..." also for what a Schedule cannot hold: ranks with
// different numbers of stages. Whether the passes are a schedule, and whether
// the transfers fit, is asked of VerifySchedule and CheckPairs.
absl::StatusOr<ScheduleFile> ParseTorchCsv(absl::string_view content,
                                           absl::string_view source);

// True if the stages stand on the ranks as PyTorch knows it: one a rank, in a
// loop, or two a rank in a V (generate_stage_to_rank_mapping).
bool TorchHasPlacement(const Placement& placement);

enum class TorchFlavour { kComputeOnly, kComputeComms };

// The file as PyTorch's _dump_csv writes it, byte for byte (lines end in
// CRLF), but without empty cells. What the file cannot hold but PyTorch can do
// without (offload, SYNC) is left out and named in `warnings`. Error:
// kInvalidArgument for two directions, slices, R for some microbatches and not
// for others, or a backward rule other than kChain. `schedule` must have passed
// VerifySchedule.
absl::StatusOr<std::string> ScheduleToTorchCsv(
    const Schedule& schedule, TorchFlavour flavour,
    std::vector<std::string>* warnings);

// The lists of compute_comms for a schedule of passes F, B, W, BW: unsharding
// (at most three stages ahead), gradient reduction, then PostAhead. Same
// source.
std::vector<StepList> LowerForTorch(const Schedule& schedule);

}  // namespace pipewright
