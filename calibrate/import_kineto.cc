#include "calibrate/import_kineto.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "calibrate/kineto_checks.h"
#include "calibrate/kineto_layers.h"
#include "calibrate/kineto_notes.h"
#include "calibrate/kineto_parts.h"
#include "calibrate/statistics.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/profile/profile.h"

namespace pipewright {
namespace {

constexpr double kMicrosecond = 1e-6;

// Largest share of a backward's time in kernels that belong to nobody.
constexpr double kMostUnknown = 0.05;

class Assembly {
 public:
  Assembly(const KinetoOptions& options, const std::vector<KinetoRank>& ranks,
           KinetoLayout layout)
      : options_(options), ranks_(ranks), layout_(std::move(layout)) {}

  absl::Status CheckDevices();
  absl::Status CheckSizes();
  absl::Status TakeSamples();
  absl::StatusOr<Profile> Build();

 private:
  TracedShape Shape() const {
    return {options_.model, options_.part, options_.microbatch_size,
            options_.sequence, layout_.tp};
  }
  absl::Status TakeRegion(const KinetoRank& rank, const RegionParts& parts,
                          bool has_ends, RankSamples* samples);
  PassEntry Entry(PassKey key, const Rounds& rounds) const;
  void Note(std::string text) { notes_.push_back(std::move(text)); }

  const KinetoOptions& options_;
  const std::vector<KinetoRank>& ranks_;
  const KinetoLayout layout_;
  std::optional<DeviceSpec> device_;
  KinetoFindings found_;
  Rounds optimizer_;
  std::vector<std::string> notes_;
};

absl::Status Assembly::CheckDevices() {
  for (const KinetoRank& rank : ranks_) {
    PW_ASSIGN_OR_RETURN(std::optional<DeviceSpec> device,
                        DeviceOfTrace(rank, options_.device));
    const TraceDevice& first = ranks_[0].device;
    if (rank.device.name != first.name ||
        rank.device.multiprocessors != first.multiprocessors) {
      return BadValue(
          FieldPlace::InFile(rank.source, 0, "deviceProperties.name"),
          absl::StrCat(rank.device.name, " (", rank.device.multiprocessors,
                       " SMs)"),
          absl::StrCat("that of ", ranks_[0].source, ": ", first.name, " (",
                       first.multiprocessors, " SMs)"));
    }
    device_ = std::move(device);
  }
  if (!device_) {
    Note(absl::StrCat(
        "times are not checked against a peak: no shipped device is ",
        ranks_[0].device.name.empty()
            ? "named by the trace"
            : absl::StrCat("a ", ranks_[0].device.name),
        " (--device takes a name of pipewright list devices, or a device "
        "file)"));
  } else if (ranks_[0].device.name.empty()) {
    Note("the trace does not name its device: --device is taken as it stands");
  }
  return absl::OkStatus();
}

absl::Status Assembly::CheckSizes() {
  CheckedShapes sum;
  for (const KinetoRank& rank : ranks_) {
    PW_ASSIGN_OR_RETURN(const CheckedShapes checked,
                        CheckShapes(rank, Shape()));
    sum.products += checked.products;
    sum.attentions += checked.attentions;
    if (device_) {
      PW_RETURN_IF_ERROR(CheckProductRates(rank, options_.type, *device_));
    }
  }
  if (sum.products == 0) {
    Note(
        "hidden size and tokens are not checked: the trace has no products "
        "with sizes (record_shapes)");
  }
  if (sum.attentions == 0) {
    Note(
        "sequence, microbatch size and heads are not checked one by one: the "
        "trace has no attention with sizes (record_shapes)");
  }
  return absl::OkStatus();
}

absl::Status Assembly::TakeRegion(const KinetoRank& rank,
                                  const RegionParts& parts, bool has_ends,
                                  RankSamples* samples) {
  const ProfilePass pass = *PassOf(parts.region->region);
  double layer_us = parts.Us(TracePart::kLayer);
  double other_us = parts.Us(TracePart::kOther);
  const double communication_us = parts.Us(TracePart::kCommunication);
  if (parts.has_vague_head) {
    return InFile(
        rank.source, 0,
        absl::InvalidArgumentError(absl::StrFormat(
            "'%s' at %.3f us has a loss, and nothing tells the product of the "
            "head from those of the layers; allowed: a trace with modules "
            "(with_stack), sizes (record_shapes) or marks, or regions around "
            "the layers alone (--forward, --backward)",
            parts.region->name, parts.region->host_start_us)));
  }
  double whole_us = 0;
  for (const double us : parts.us) whole_us += us;
  if (pass != ProfilePass::kForward) {
    if (!has_ends) {
      layer_us += other_us;
      other_us = 0;
    } else if (other_us > kMostUnknown * (whole_us - communication_us)) {
      return InFile(
          rank.source, 0,
          absl::InvalidArgumentError(absl::StrFormat(
              "'%s' at %.3f us spends %.3f of %.3f us in kernels that nothing "
              "ascribes to the layers, the embedding or the head, and the "
              "rank has an embedding or a head; allowed: a trace whose "
              "operators have sequence numbers or whose backward is marked, "
              "or regions around the layers alone (--forward, --backward)",
              parts.region->name, parts.region->host_start_us, other_us,
              whole_us)));
    }
  }
  KinetoLeftOut& left_out = found_.left_out[parts.region->region];
  left_out.whole_us += whole_us;
  left_out.other_us += other_us;
  left_out.communication_us += communication_us;
  const auto add = [&](ProfilePart part, ProfilePass of, double us) {
    if (us > 0) (*samples)[{part, of}].push_back(us * kMicrosecond);
  };
  add(options_.part, pass, layer_us / static_cast<double>(parts.layers));
  add(ProfilePart::kHead, pass, parts.Us(TracePart::kHead));
  // An embedding has no gradient of its input.
  add(ProfilePart::kEmbedding,
      pass == ProfilePass::kForward ? pass : ProfilePass::kBackwardWeight,
      parts.Us(TracePart::kEmbedding));
  return absl::OkStatus();
}

absl::Status Assembly::TakeSamples() {
  std::vector<std::vector<RegionParts>> all;
  for (const KinetoRank& rank : ranks_) {
    PW_ASSIGN_OR_RETURN(
        std::vector<RegionParts> regions,
        PartsOfRegions(rank,
                       {options_.model, layout_.tp,
                        options_.microbatch_size * options_.sequence},
                       options_.sum_kernels));
    PW_RETURN_IF_ERROR(SetLayers(rank, {options_.layers, options_.model_layers},
                                 &regions, &notes_));
    all.push_back(std::move(regions));
  }
  PW_RETURN_IF_ERROR(
      CheckModelLayers(ranks_, layout_, all, options_.model_layers));
  for (size_t index = 0; index < ranks_.size(); ++index) {
    const bool has_ends = std::any_of(
        all[index].begin(), all[index].end(), [](const RegionParts& parts) {
          return parts.Us(TracePart::kEmbedding) > 0 ||
                 parts.Us(TracePart::kHead) > 0;
        });
    RankSamples& samples = found_.samples.emplace_back();
    optimizer_.emplace_back();
    std::map<Region, int64_t> seen;
    for (const RegionParts& parts : all[index]) {
      const TraceRegion& region = *parts.region;
      // What took no time does not count as one of the first.
      if (region.end_us <= region.start_us) continue;
      if (seen[region.region]++ < options_.skip) continue;
      if (region.region == Region::kOptimizer) {
        optimizer_.back().push_back(kMicrosecond *
                                    (options_.sum_kernels
                                         ? region.sum_us
                                         : region.end_us - region.start_us));
      } else {
        PW_RETURN_IF_ERROR(
            TakeRegion(ranks_[index], parts, has_ends, &samples));
      }
    }
  }
  return absl::OkStatus();
}

PassEntry Assembly::Entry(PassKey key, const Rounds& rounds) const {
  const bool layer = key.first == options_.part;
  return {.model = options_.model,
          .part = key.first,
          .pass = key.second,
          .type = options_.type,
          .microbatch_size = options_.microbatch_size,
          .sequence = options_.sequence,
          .tp = layout_.tp,
          .ep = layer ? options_.ep : 0,
          .time = Summarize(rounds, kTraceResolution),
          .flops = LeastFlops(key.first, key.second, Shape()),
          .implementation = "traced"};
}

absl::StatusOr<Profile> Assembly::Build() {
  Profile profile;
  const KinetoRank& first = ranks_[0];
  ProfileSource source = {.kind = "kineto",
                          .file = first.source,
                          .backend = "cuda",
                          .device = first.device.name,
                          .memory_bytes = first.device.memory_bytes};
  std::map<PassKey, Rounds> pooled;
  std::map<PassKey, std::map<int64_t, Rounds>> by_rank;
  for (size_t index = 0; index < ranks_.size(); ++index) {
    for (const auto& [key, values] : found_.samples[index]) {
      pooled[key].push_back(values);
      by_rank[key][layout_.pipeline[index]].push_back(values);
    }
  }
  NoteTraces(ranks_, layout_, found_, &notes_);
  for (const auto& [key, rounds] : pooled) {
    profile.passes.push_back(Entry(key, rounds));
    NoteSpread(ranks_, found_, key, &notes_);
    const auto& of_ranks = by_rank[key];
    if (of_ranks.size() < 2 || of_ranks.begin()->first < 0) continue;
    for (const auto& [rank, own] : of_ranks) {
      PassEntry& entry = profile.passes.emplace_back(Entry(key, own));
      entry.pp = layout_.pp;
      entry.rank = rank;
    }
  }
  if (profile.passes.empty()) {
    return InFile(first.source, 0,
                  absl::InvalidArgumentError(
                      "no region of a pass takes any time; allowed: regions "
                      "with kernels, and --skip below their number"));
  }
  const bool steps = std::any_of(optimizer_.begin(), optimizer_.end(),
                                 [](const auto& of) { return !of.empty(); });
  if (steps && options_.parameters > 0) {
    profile.optimizers.push_back(
        {.where = "device",
         .parameters = options_.parameters,
         .time = Summarize(optimizer_, kTraceResolution)});
  } else if (steps) {
    Note(
        "optimizer steps are left out: --parameters does not say of how many "
        "parameters");
  }
  if (device_) {
    PW_RETURN_IF_ERROR(
        CheckRates(profile.passes, *device_, first.source, &notes_));
  }
  source.warnings = layout_.notes;
  source.warnings.insert(source.warnings.end(), notes_.begin(), notes_.end());
  profile.sources.push_back(std::move(source));
  PW_RETURN_IF_ERROR(CheckProfile(profile, first.source));
  return profile;
}

}  // namespace

absl::Status KinetoImport::Add(std::istream& in,
                               const std::string& source_name) {
  PW_ASSIGN_OR_RETURN(
      KinetoRank rank,
      ReadKinetoRank(in, source_name, options_.patterns, options_.layer_name));
  const bool any = std::any_of(
      rank.regions.begin(), rank.regions.end(),
      [](const TraceRegion& region) { return PassOf(region.region); });
  if (!any) {
    return absl::InvalidArgumentError(absl::StrCat(
        source_name,
        ": no region is a forward or a backward; allowed: patterns "
        "(--forward, --backward, --backward-input, "
        "--backward-weight) that match names in the trace (",
        absl::StrJoin(rank.other_names, ", "), ")"));
  }
  ranks_.push_back(std::move(rank));
  return absl::OkStatus();
}

absl::StatusOr<Profile> KinetoImport::Finish() const {
  if (ranks_.empty()) {
    return absl::InvalidArgumentError(
        "--kineto: no traces; allowed: files, or a folder with a .json or "
        ".json.gz file of each rank");
  }
  PW_ASSIGN_OR_RETURN(KinetoLayout layout,
                      LayoutOfRanks(ranks_, options_.axes));
  Assembly assembly(options_, ranks_, std::move(layout));
  PW_RETURN_IF_ERROR(assembly.CheckDevices());
  PW_RETURN_IF_ERROR(assembly.CheckSizes());
  PW_RETURN_IF_ERROR(assembly.TakeSamples());
  return assembly.Build();
}

absl::StatusOr<Profile> ImportKineto(std::istream& in,
                                     const std::string& source_name,
                                     const KinetoOptions& options) {
  KinetoImport import(options);
  PW_RETURN_IF_ERROR(import.Add(in, source_name));
  return import.Finish();
}

}  // namespace pipewright
