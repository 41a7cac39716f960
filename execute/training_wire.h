// What training tells from process to process.
#pragma once

#include "execute/training.h"
#include "execute/wire.h"

namespace pipewright {

void PutRecord(const WorkerRecord& record, WireWriter* writer);
WorkerRecord GetRecord(WireReader* reader);

void PutCheck(const TrainingCheck& check, WireWriter* writer);
TrainingCheck GetCheck(WireReader* reader);

}  // namespace pipewright
