#include "sim/schedule/header.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/names.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Stages have tables, so a header alone must not ask for many.
constexpr int64_t kMaxStages = int64_t{1} << 20;

constexpr HeaderField kFields[] = {
    {"pp", 1, kMaxRanks, 0},
    {"vpp", 1, Pass::kMaxChunks, 0},
    {"microbatches", 1, Pass::kMaxMicrobatches - 1, 0},
    {"slices", 1, Pass::kMaxSlices, 1},
    {"replicas", 1, 2, 1},
    {"unit", 1, Pass::kMaxMicrobatches - 1, kLeftOut},
    {"update_every", 1, Pass::kMaxMicrobatches - 1, kLeftOut},
};

}  // namespace

const HeaderField* FindHeaderField(absl::string_view name) {
  for (const HeaderField& field : kFields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

absl::Status BadHeaderNumber(const HeaderField& field,
                             absl::string_view value) {
  return BadValue(
      field.name, value,
      absl::StrCat("an integer in ", field.minimum, "..", field.maximum));
}

absl::Status UnknownHeaderField(absl::string_view name,
                                const std::vector<std::string>& more) {
  std::vector<std::string> known;
  for (const HeaderField& field : kFields) known.emplace_back(field.name);
  known.push_back("placement");
  known.push_back("backward");
  known.insert(known.end(), more.begin(), more.end());
  const std::string quoted = Quoted(name);
  return UnknownName("field", quoted.substr(1, quoted.size() - 2), known);
}

int ScheduleHeader::Number(absl::string_view name) const {
  const auto found = numbers.find(std::string(name));
  if (found != numbers.end()) return found->second;
  const HeaderField* field = FindHeaderField(name);
  return field == nullptr ? 0 : field->fallback;
}

TokenSizes ScheduleHeader::Sizes() const {
  return {Number("vpp"), Number("microbatches") / Number("replicas"),
          Number("slices"), Number("replicas")};
}

absl::Status ScheduleHeader::SetPlacement(absl::string_view name) {
  if (name != "plain" && name != "loop" && name != "v" && name != "wave") {
    return BadValue("placement", Quoted(name),
                    "plain, loop, v, wave, or the rank of each stage");
  }
  placement = std::string(name);
  return absl::OkStatus();
}

absl::Status ScheduleHeader::SetBackward(absl::string_view name) {
  for (const BackwardRule rule :
       {BackwardRule::kChain, BackwardRule::kLocal, BackwardRule::kNone}) {
    if (name != BackwardRuleName(rule)) continue;
    backward = rule;
    return absl::OkStatus();
  }
  return BadValue("backward", Quoted(name), "chain, local, none");
}

absl::StatusOr<Placement> ScheduleHeader::MakePlacement() const {
  for (const HeaderField& field : kFields) {
    if (field.fallback == 0 && Number(field.name) == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          field.name, " is missing; needed: pp, vpp, microbatches"));
    }
  }
  const int pp = Number("pp");
  const int vpp = Number("vpp");
  if (int64_t{pp} * vpp > kMaxStages) {
    return BadValue("vpp", absl::StrCat(vpp),
                    absl::StrCat("at most ", kMaxStages, " stages, so 1..",
                                 kMaxStages / pp, " with pp ", pp));
  }
  if (Number("microbatches") % Number("replicas") != 0) {
    return BadValue("microbatches", absl::StrCat(Number("microbatches")),
                    "an even number with 2 replicas");
  }
  const int update_every = Number("update_every");
  if (update_every > 1 && update_every != Number("microbatches")) {
    return BadValue(
        "update_every", absl::StrCat(update_every),
        absl::StrCat("1, or all ", Number("microbatches"), " microbatches"));
  }
  if (rank_of_stage.has_value()) {
    const size_t stages = static_cast<size_t>(pp) * vpp;
    if (rank_of_stage->size() != stages) {
      return BadValue("placement",
                      absl::StrCat("a list of ", rank_of_stage->size()),
                      absl::StrCat("the rank of each of ", stages, " stages"));
    }
    return Placement::FromList(pp, *rank_of_stage);
  }
  if (placement == "plain" && vpp != 1) {
    return BadValue("placement", placement, absl::StrCat("vpp 1, not ", vpp));
  }
  if (placement == "v" && vpp != 2) {
    return BadValue("placement", placement, absl::StrCat("vpp 2, not ", vpp));
  }
  if (placement == "wave" && vpp % 2 != 0) {
    return BadValue("placement", placement,
                    absl::StrCat("an even vpp, not ", vpp));
  }
  if (placement == "v") return Placement::V(pp);
  if (placement == "wave") return Placement::Wave(pp, vpp);
  if (placement == "loop" || (placement.empty() && vpp > 1)) {
    return Placement::Loop(pp, vpp);
  }
  return Placement::Plain(pp);
}

Schedule AssembleSchedule(const ScheduleHeader& header, Placement placement,
                          absl::string_view name, std::vector<RankOrder> orders,
                          std::vector<int> lines) {
  Schedule schedule;
  schedule.name = std::string(name);
  schedule.placement = std::move(placement);
  schedule.microbatches = header.Number("microbatches");
  schedule.slices = header.Number("slices");
  schedule.directions = header.Number("replicas");
  schedule.backward = header.backward;
  schedule.lines = std::move(lines);
  schedule.unit = std::max(0, header.Number("unit"));
  schedule.update_every = std::max(0, header.Number("update_every"));
  schedule.orders.reserve(orders.size());
  for (RankOrder& order : orders) {
    schedule.orders.push_back(
        std::make_shared<const RankOrder>(std::move(order)));
  }
  return schedule;
}

}  // namespace pipewright
