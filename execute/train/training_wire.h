// The results of training as messages between processes.
#pragma once

#include <optional>

#include "execute/train/training.h"
#include "execute/transport/wire.h"

namespace pipewright {

void PutRecord(const WorkerRecord& record, WireWriter* writer);
WorkerRecord GetRecord(WireReader* reader);

void PutCheck(const TrainingCheck& check, WireWriter* writer);
TrainingCheck GetCheck(WireReader* reader);

void PutReference(const std::optional<ReferenceCheck>& check,
                  WireWriter* writer);
std::optional<ReferenceCheck> GetReference(WireReader* reader);

}  // namespace pipewright
