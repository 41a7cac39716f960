#include "sim/report/sequence_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/json.h"

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
  std::string out = absl::StrFormat(
      "%-14s %10d  samples of %s, %d tokens, the longest has %d\n", "sequences",
      report.samples, report.source, report.tokens, report.longest);
  absl::StrAppendFormat(
      &out, "%-14s %10s  by %s; a replica has %s microbatches, %s tokens\n",
      "packer", report.packer, report.packer_cost,
      LeastToMost(report.microbatches), LeastToMost(report.of_replica));
  absl::StrAppendFormat(
      &out,
      "%-14s %9.1f%%  of all passes' time where replicas meet at every "
      "microbatch; %.1f%% where they meet once a step\n",
      "packing idles", 100 * report.idle_lockstep, 100 * report.idle_one_sided);
  return out;
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
