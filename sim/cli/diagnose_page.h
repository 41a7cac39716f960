// The pictures of a diagnosis that need more than sim/diagnose sees: the heat
// map of workers, and the page with it, tables and timelines.
#pragma once

#include <string>

#include "sim/diagnose/diagnosis.h"
#include "sim/diagnose/job.h"

namespace pipewright {

std::string WorkerHeatMap(const MeasuredJob& job, const Diagnosis& diagnosis);
std::string DiagnosisHtml(const MeasuredJob& job, const Diagnosis& diagnosis);

}  // namespace pipewright
