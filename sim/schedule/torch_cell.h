// One cell of PyTorch's CSV (torch_csv.h) and what it says, in PyTorch's
// letters. Which dialect the whole file is in is not its question.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "sim/schedule/transfers.h"

namespace pipewright {

enum class TorchLetter : uint8_t { kF, kI, kW, kB, kBW, kNone };

struct TorchKind {
  absl::string_view name;
  StepKind step;
  TorchLetter letter;  // for a pass
  bool forward;        // for a transfer
};

struct TorchAction {
  const TorchKind* kind = nullptr;
  int stage = 0;
  int microbatch = 0;  // where the kind has one
  bool opens = false;  // an overlapped pair with the next action

  bool is_pass() const { return kind->step == StepKind::kPass; }
  // "2SEND_F0".
  std::string Name() const;
};

// Do cells of this kind carry a microbatch?
inline bool HasMicrobatch(const TorchKind& kind) {
  return kind.step <= StepKind::kReceive;
}

// "PROBLEM; allowed: ALLOWED", as kInvalidArgument.
absl::Status BadTorchCell(absl::string_view problem, absl::string_view allowed);

// Adds the one or two actions of a cell that is neither empty nor blank. Sets
// `*mid_2024` where it is of the form F3_s1 or F3_1. Error: BadTorchCell.
absl::Status ReadTorchCell(absl::string_view text,
                           std::vector<TorchAction>* actions, bool* mid_2024);

}  // namespace pipewright
