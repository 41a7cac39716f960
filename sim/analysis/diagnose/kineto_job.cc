#include "sim/analysis/diagnose/kineto_job.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr double kSecondsOfMicrosecond = 1e-6;

// Asked in this order, because "backward_weight" is a backward too.
constexpr Region kAsked[] = {Region::kOptimizer,      Region::kRecompute,
                             Region::kBackwardWeight, Region::kBackwardInput,
                             Region::kBackwardFull,   Region::kForward};

const char* RegionKind(Region region) {
  switch (region) {
    case Region::kForward:
      return "F";
    case Region::kBackwardInput:
      return "B";
    case Region::kBackwardWeight:
      return "W";
    case Region::kBackwardFull:
      return "BW";
    case Region::kRecompute:
      return "R";
    case Region::kOptimizer:
      break;
  }
  return "optimizer";
}

bool SendsGradient(Region region) {
  return region == Region::kBackwardInput || region == Region::kBackwardFull;
}

}  // namespace

absl::Status KinetoJob::Add(std::istream& in, const std::string& source) {
  PW_ASSIGN_OR_RETURN(const std::vector<RegionPattern> patterns,
                      CompileRegions(options_.patterns, kAsked));
  RegionReader reader(patterns);
  TraceHeader header;
  PW_RETURN_IF_ERROR(ReadTraceEvents(
      in, source, [&](const TraceEvent& event) { return reader.See(event); },
      &header));
  std::vector<TraceRegion> regions = reader.Finish();
  if (regions.empty()) {
    return InFile(
        source, 0,
        absl::InvalidArgumentError(absl::StrCat(
            "no region is a forward or a backward; allowed: patterns "
            "(--forward, --backward, --backward-input, --backward-weight) that "
            "match names in the trace (",
            absl::StrJoin(reader.other_names(), ", "), ")")));
  }
  std::stable_sort(regions.begin(), regions.end(),
                   [](const TraceRegion& a, const TraceRegion& b) {
                     return a.start_us < b.start_us;
                   });
  RankFile file;
  file.source = source;
  file.rank = header.rank.value_or(static_cast<int>(files_.size()));
  for (const RankFile& other : files_) {
    if (other.rank != file.rank) continue;
    return BadValue(
        FieldPlace::InFile(source, 0, "distributedInfo.rank"),
        absl::StrCat(file.rank),
        absl::StrCat("a rank of its own; ", other.source, " has it too"));
  }
  PW_RETURN_IF_ERROR(SplitSteps(std::move(regions), &file));
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::Status KinetoJob::SplitSteps(std::vector<TraceRegion> regions,
                                   RankFile* file) {
  bool ended = true;
  bool optimizer = false;
  for (TraceRegion& region : regions) {
    const bool updates = region.region == Region::kOptimizer;
    // An update without passes before it is of a step that began earlier.
    if (updates && file->steps.empty()) continue;
    if (ended && !updates) file->steps.emplace_back();
    ended = updates;
    optimizer |= updates;
    file->steps.back().push_back(std::move(region));
  }
  if (optimizer && !ended) {
    file->steps.pop_back();
    warnings_.push_back(absl::StrCat(
        file->source, ": the last step has no optimizer and is left out"));
  }
  const auto skip = static_cast<size_t>(options_.skip);
  if (file->steps.size() <= skip) {
    return InFile(file->source, 0,
                  BadValue("--skip", absl::StrCat(skip),
                           absl::StrCat("fewer than the ", file->steps.size(),
                                        " steps")));
  }
  file->steps.erase(file->steps.begin(),
                    file->steps.begin() + static_cast<std::ptrdiff_t>(skip));
  return absl::OkStatus();
}

// All steps of a rank have the same regions, all ranks as many steps.
absl::Status KinetoJob::CheckSteps() const {
  for (const RankFile& file : files_) {
    const auto refuse = [&](const std::string& what,
                            const std::string& allowed) {
      return BadValue(FieldPlace::InFile(file.source, 0, "traceEvents"), what,
                      allowed);
    };
    if (file.steps.size() != files_[0].steps.size()) {
      return refuse(absl::StrCat(file.steps.size(), " steps"),
                    absl::StrCat("the ", files_[0].steps.size(), " of ",
                                 files_[0].source));
    }
    for (size_t step = 1; step < file.steps.size(); ++step) {
      const auto same = [](const TraceRegion& a, const TraceRegion& b) {
        return a.region == b.region;
      };
      const std::vector<TraceRegion>& one = file.steps[0];
      const std::vector<TraceRegion>& other = file.steps[step];
      if (std::equal(one.begin(), one.end(), other.begin(), other.end(),
                     same)) {
        continue;
      }
      return refuse(
          absl::StrCat("step ", options_.skip + static_cast<int>(step),
                       " with ", other.size(), " regions"),
          absl::StrCat("the ", one.size(), " regions of step ", options_.skip,
                       " in their order (--skip leaves out first steps)"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<MeasuredJob> KinetoJob::Finish(const std::string& source) {
  if (files_.empty()) {
    return InFile(source, 0,
                  absl::InvalidArgumentError(
                      "holds no traces; allowed: a folder with a .json or "
                      ".json.gz file of each rank"));
  }
  std::sort(
      files_.begin(), files_.end(),
      [](const RankFile& a, const RankFile& b) { return a.rank < b.rank; });
  PW_RETURN_IF_ERROR(CheckSteps());
  const auto count = static_cast<int>(files_.size());
  JobDraft draft;
  draft.source = source;
  draft.form = "kineto";
  draft.pp = options_.pp == 0 ? count : options_.pp;
  if (draft.pp > count || count % draft.pp != 0) {
    return BadValue(
        "--pp", absl::StrCat(draft.pp),
        absl::StrCat("a divisor of the ", count, " traces of ", source));
  }
  draft.dp = count / draft.pp;
  draft.warnings = warnings_;
  draft.warnings.push_back(
      "messages are not read from these traces: the time of a hop is a gap");
  const size_t steps = files_[0].steps.size();
  std::vector<double> zero(steps, files_[0].steps[0][0].start_us);
  for (size_t step = 0; step < steps; ++step) {
    draft.steps.push_back(options_.skip + static_cast<int64_t>(step));
    zero[step] = files_[0].steps[step][0].start_us;
    for (const RankFile& file : files_) {
      zero[step] = std::min(zero[step], file.steps[step][0].start_us);
    }
  }
  for (const Region region :
       {Region::kForward, Region::kBackwardInput, Region::kBackwardWeight,
        Region::kBackwardFull, Region::kRecompute, Region::kOptimizer}) {
    draft.kinds.push_back({RegionKind(region), RegionKind(region), false});
  }
  // By replica and stage: forwards, and what sends a gradient back.
  std::map<std::pair<int, int>, std::array<std::vector<int32_t>, 2>> sent;
  for (int index = 0; index < count; ++index) {
    const RankFile& file = files_[index];
    const int stage = index / draft.dp;
    const int replica = index % draft.dp;
    std::array<int32_t, kNumRegions> numbers{};
    for (size_t place = 0; place < file.steps[0].size(); ++place) {
      const Region region = file.steps[0][place].region;
      const auto op = static_cast<int32_t>(draft.ops.size());
      const auto kind = static_cast<int32_t>(
          std::find_if(draft.kinds.begin(), draft.kinds.end(),
                       [&](const JobKind& each) {
                         return each.name == RegionKind(region);
                       }) -
          draft.kinds.begin());
      draft.ops.push_back(
          {kind, stage, replica, numbers[static_cast<int>(region)]++});
      draft.groups.push_back({op});
      draft.dependencies.emplace_back();
      if (place > 0) draft.dependencies.back().push_back(op - 1);
      if (region == Region::kForward) sent[{replica, stage}][0].push_back(op);
      if (SendsGradient(region)) sent[{replica, stage}][1].push_back(op);
      for (size_t step = 0; step < steps; ++step) {
        const TraceRegion& each = file.steps[step][place];
        draft.start_s.push_back(kSecondsOfMicrosecond *
                                (each.start_us - zero[step]));
        draft.duration_s.push_back(kSecondsOfMicrosecond *
                                   (each.end_us - each.start_us));
      }
    }
  }
  for (const auto& [place, own] : sent) {
    const auto& [replica, stage] = place;
    for (const int direction : {0, 1}) {
      const auto from = sent.find({replica, stage + (direction == 0 ? -1 : 1)});
      if (from == sent.end()) continue;
      const std::vector<int32_t>& made = from->second[direction];
      if (made.size() != own[direction].size()) {
        const RankFile& file = files_[stage * draft.dp + replica];
        return BadValue(
            FieldPlace::InFile(file.source, 0, "traceEvents"),
            absl::StrCat(own[direction].size(),
                         direction == 0 ? " forwards" : " backwards"),
            absl::StrCat("the ", made.size(), " of the neighbour stage"));
      }
      for (size_t number = 0; number < made.size(); ++number) {
        draft.dependencies[own[direction][number]].push_back(made[number]);
      }
    }
  }
  std::vector<int32_t> circle;
  absl::StatusOr<MeasuredJob> job = SortJob(draft, &circle);
  if (!job.ok()) return InFile(source, 0, job.status());
  return job;
}

}  // namespace pipewright
