// A diagnosis as text, as JSON, and its ideal timeline as a Chrome trace and as
// a picture. Keys are those of docs/diagnose.md.
#pragma once

#include <string>

#include "sim/diagnose/diagnosis.h"
#include "sim/diagnose/job.h"

namespace pipewright {

std::string DiagnosisToText(const MeasuredJob& job, const Diagnosis& diagnosis);
// Pretty-printed; numbers read back exactly.
std::string DiagnosisToJson(const MeasuredJob& job, const Diagnosis& diagnosis);

// Chrome's JSON: a process a replica, a thread a stage (and one beside it for
// what communicates).
std::string IdealTimelineJson(const MeasuredJob& job,
                              const Diagnosis& diagnosis);
// Timeline of one replica, a row a stage: the first step as recorded above the
// ideal one, on one axis.
std::string TimelineSvg(const MeasuredJob& job, const Diagnosis& diagnosis,
                        int replica);

// The replica of the slowest worker.
int SlowestReplica(const Diagnosis& diagnosis);

}  // namespace pipewright
