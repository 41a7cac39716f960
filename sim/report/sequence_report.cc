#include "sim/report/sequence_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/json.h"
#include "sim/report/format.h"

namespace pipewright {
namespace {

template <typename Value>
std::string LeastToMost(const std::vector<Value>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return *least == *most ? absl::StrCat(*most)
                         : absl::StrCat(*least, " to ", *most);
}

}  // namespace

std::string SequencesToText(const SequenceReport& report) {
  return absl::StrCat(
      ReportLine("sequences", absl::StrCat(report.samples),
                 absl::StrCat("samples of ", report.source, ", ", report.tokens,
                              " tokens, the longest has ", report.longest)),
      ReportLine(
          "packer", report.packer,
          absl::StrCat("by ", report.packer_cost, "; a replica has ",
                       LeastToMost(report.microbatches), " microbatches, ",
                       LeastToMost(report.of_replica), " tokens")),
      ReportLine("packing idles",
                 absl::StrFormat("%.1f%%", 100 * report.idle_lockstep),
                 absl::StrFormat("of all passes' time where replicas meet at "
                                 "every microbatch; %.1f%% where they meet "
                                 "once a step",
                                 100 * report.idle_one_sided)));
}

Json SequencesToJson(const SequenceReport& report) {
  return {{"source", report.source},
          {"packer", report.packer},
          {"packer_cost", report.packer_cost},
          {"samples", report.samples},
          {"tokens", report.tokens},
          {"longest", report.longest},
          {"max_token_len", report.max_token_len},
          {"classes", report.classes},
          {"microbatches", report.microbatches},
          {"tokens_of_replica", report.of_replica},
          {"idle_lockstep", report.idle_lockstep},
          {"idle_one_sided", report.idle_one_sided}};
}

}  // namespace pipewright
