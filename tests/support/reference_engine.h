// A deliberately naive engine: it spells a Program out as one graph of
// operations, all replicas and iterations, and takes longest paths. Slow and
// simple; the engines are held against it.
#pragma once

#include "absl/status/statusor.h"
#include "sim/engine/engine.h"

namespace pipewright {

absl::StatusOr<RunSummary> RunReference(const Program& program);

}  // namespace pipewright
