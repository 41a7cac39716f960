// Data-parallel replicas of several classes (DpClass) as numbers and words:
// what each class takes, which of them all wait for, and how far they are
// apart.
#pragma once

#include <string>
#include <vector>

#include "sim/engine/engine.h"

namespace pipewright {

class Json;
struct Program;
struct Report;

struct DpClassReport {
  int replicas = 0;
  int first_replica = 0;
  std::string schedule;
  int microbatches = 0;  // for one replica
  // Weight of one replica's gradients in the sum over all replicas; over all
  // replicas weights add up to 1.
  double gradient_weight = 0;
  // As configured: factor on the times, and the rank that it concerns (-1:
  // all).
  double slower = 1;
  int slow_rank = -1;
  // Times of its slowest replica, first iteration: first start to last end of
  // passes on any rank, and the pass time of the busiest rank.
  double span_s = 0;
  double busy_s = 0;
  std::vector<double> peak_activations;   // [rank]
  std::vector<double> peak_memory_bytes;  // [rank], with a model
  std::vector<double> peak_host_bytes;    // the same
};

struct ClassesReport {
  std::vector<DpClassReport> classes;
  int slowest = 0;    // the class whose times the Report gives
  int hungriest = 0;  // the one whose memory it gives in full
  // Part of the longest span of a class by which the shortest is shorter.
  double spread = 0;
};

// Fills Report::dp_classes where the program has several classes, and makes
// what is one number of one replica that of the slowest class; peaks become
// those over all classes. `peak_activations`: [class][rank].
void ReportClasses(const Program& program, const RunSummary& run,
                   const std::vector<std::vector<double>>& peak_activations,
                   Report* report);

// [rank] the largest over all classes, of what each has for its ranks.
std::vector<double> MostOfClasses(const ClassesReport& classes,
                                  std::vector<double> DpClassReport::*of_ranks);

// "class 1, 1 replica (replica 3), 6 microbatches".
std::string ClassName(const ClassesReport& classes, int index);

// The value of the key "dp_classes".
Json ClassesToJson(const ClassesReport& classes);

// A table by class, lines ended.
std::string ClassesToText(const ClassesReport& classes);
// The same as a section of a page.
std::string ClassesToHtml(const ClassesReport& classes);

}  // namespace pipewright
