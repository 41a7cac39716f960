#include "sim/report/memory_report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/base/error_parts.h"
#include "sim/base/json.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

std::string Key(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kMaster:
      return "master_weights";
    case MemoryKind::kPlaceholders:
      return "gradient_placeholders";
    default:
      return std::string(MemoryKindName(kind));
  }
}

std::string Gib(int64_t bytes) {
  return absl::StrFormat("%.2f", static_cast<double>(bytes) / kGiB);
}

bool IsUsed(const ScheduleMemory& memory, MemoryKind kind) {
  for (const RankMemory& rank : memory.ranks) {
    if (rank.at_peak[kind] != 0) return true;
  }
  return false;
}

std::string Change(const MemoryChange& change) {
  return absl::StrCat(change.change, " saves ", FormatBytes(change.saved_bytes),
                      change.fits
                          ? " (fits)"
                          : absl::StrCat(" (", FormatBytes(change.needed_bytes),
                                         ", not enough alone)"));
}

// What the devices of a node keep there.
struct HostBytes {
  int64_t activations = 0;
  int64_t optimizer = 0;
  double needed() const { return static_cast<double>(activations + optimizer); }
};

HostBytes FullestHost(const MemoryReport& report) {
  const std::vector<RankMemory>& ranks = report.memory->ranks;
  HostBytes fullest;
  const auto see = [&](const HostBytes& host) {
    if (host.needed() > fullest.needed()) fullest = host;
  };
  if (report.devices_on_node.empty()) {
    for (const RankMemory& rank : ranks) {
      see({.activations = rank.peak_host_activations,
           .optimizer = rank.host_optimizer});
    }
  }
  for (const std::vector<int>& devices : report.devices_on_node) {
    HostBytes host;
    for (size_t rank = 0; rank < devices.size(); ++rank) {
      host.activations += devices[rank] * ranks[rank].peak_host_activations;
      host.optimizer += devices[rank] * ranks[rank].host_optimizer;
    }
    see(host);
  }
  return fullest;
}

// What fills it is what there should be less of.
std::string HostAdvice(const MemoryReport& report, const HostBytes& host) {
  std::vector<std::string> advice;
  if (host.activations > 0) {
    advice.push_back(
        "fewer activations on the host (strategy.offload selective, a smaller "
        "strategy.offload_fraction)");
  }
  if (host.optimizer > 0) {
    advice.push_back(
        "fewer optimizer states on the host (strategy.optimizer_placement gpu, "
        "or twinflow with a smaller strategy.optimizer_ratio)");
  }
  if (host.optimizer > host.activations) {
    std::reverse(advice.begin(), advice.end());
  }
  if (report.devices_on_node.size() > 1) {
    advice.push_back(
        "ranks that keep much and ranks that keep little on one node "
        "(strategy.mapping)");
  }
  return absl::StrJoin(advice, ", or ");
}

std::string HostVerdictLine(const MemoryReport& report) {
  const HostBytes host = FullestHost(report);
  return absl::StrCat(
      "host memory: ",
      report.devices_on_node.empty() ? "one device keeps "
                                     : "the devices of one node keep ",
      FormatBytes(host.needed()), " of ", FormatBytes(*report.host_limit_bytes),
      " there; what would help: ", HostAdvice(report, host));
}

}  // namespace

bool MemoryReport::fits_host() const {
  return !host_limit_bytes || HostNeeded() <= *host_limit_bytes;
}

double MemoryReport::HostNeeded() const { return FullestHost(*this).needed(); }

bool MemoryReport::fits() const { return fits_device() && fits_host(); }

bool MemoryReport::fits_device() const {
  if (!limit_bytes) return true;
  const RankMemory& worst = memory->ranks[memory->WorstRank()];
  return static_cast<double>(worst.needed() - worst.fragmentation) <=
         *limit_bytes;
}

bool MemoryReport::fits_tightly() const {
  if (!limit_bytes || !fits_device()) return false;
  const RankMemory& worst = memory->ranks[memory->WorstRank()];
  return static_cast<double>(worst.needed()) > *limit_bytes;
}

bool MemoryReport::is_near_limit() const {
  if (!limit_bytes || !fits_device()) return false;
  const RankMemory& worst = memory->ranks[memory->WorstRank()];
  return static_cast<double>(worst.needed()) +
             kMemoryError * static_cast<double>(worst.peak()) >
         *limit_bytes;
}

std::optional<double> MemoryReport::allocator_limit() const {
  if (!limit_bytes) return {};
  const RankMemory& worst = memory->ranks[memory->WorstRank()];
  return *limit_bytes - static_cast<double>(worst.context) -
         static_cast<double>(worst.fragmentation);
}

std::string MemoryCause(const MemoryReport& report, int rank) {
  const RankMemory& row = report.memory->ranks[rank];
  if (row.pass_index < 0) return "all the time";
  return absl::StrCat(PassToString(*report.schedule, row.pass), " (stage ",
                      row.stage, row.op.empty() ? "" : ", ", row.op, ")");
}

std::string MemoryVerdictLine(const MemoryReport& report) {
  if (!report.limit_bytes) return "";
  const int worst = report.memory->WorstRank();
  const RankMemory& row = report.memory->ranks[worst];
  const double needed = static_cast<double>(row.needed());
  const double over = needed - *report.limit_bytes;
  if (report.fits_tightly()) {
    return absl::StrCat(
        "rank ", worst, " needs ",
        FormatBytes(needed - static_cast<double>(row.fragmentation)), " of ",
        FormatBytes(*report.limit_bytes), " (", report.limit_source,
        "): fits tightly, without the ",
        FormatBytes(static_cast<double>(row.fragmentation)),
        " of fragmentation");
  }
  return absl::StrCat(
      "rank ", worst, " needs ", FormatBytes(needed), " of ",
      FormatBytes(*report.limit_bytes), " (", report.limit_source, "): ",
      over > 0 ? absl::StrCat("does not fit, ", FormatBytes(over),
                              " too much, in ", MemoryCause(report, worst))
               : absl::StrCat("fits, ", FormatBytes(-over), " left"));
}

absl::Status MemoryVerdict(const MemoryReport& report) {
  if (report.fits()) return absl::OkStatus();
  if (report.fits_device()) {
    return WithValue(
        AboutField("system.host_memory",
                   absl::ResourceExhaustedError(HostVerdictLine(report))),
        FormatBytes(*report.host_limit_bytes),
        absl::StrCat(FormatBytes(report.HostNeeded()), " or more"));
  }
  std::vector<std::string> changes;
  for (const MemoryChange& change : report.changes) {
    changes.push_back(Change(change));
  }
  const absl::Status verdict = absl::ResourceExhaustedError(absl::StrCat(
      "memory: ", MemoryVerdictLine(report),
      changes.empty() ? ""
                      : absl::StrCat("; what would help most: ",
                                     absl::StrJoin(changes, "; ")),
      report.fits_host() ? "" : absl::StrCat("; ", HostVerdictLine(report))));
  const RankMemory& row = report.memory->ranks[report.memory->WorstRank()];
  return WithValue(
      AboutField("system.memory", verdict), FormatBytes(*report.limit_bytes),
      absl::StrCat(FormatBytes(static_cast<double>(row.needed())), " or more"));
}

Json MemoryToJson(const MemoryReport& report) {
  Json out;
  if (report.limit_bytes) {
    out["limit_bytes"] = *report.limit_bytes;
    out["limit_source"] = report.limit_source;
  }
  if (report.host_limit_bytes) {
    out["host_limit_bytes"] = *report.host_limit_bytes;
    out["host_needed_bytes"] = report.HostNeeded();
  }
  out["worst_rank"] = report.memory->WorstRank();
  std::vector<std::string> keys;
  for (int kind = 0; kind < kNumMemoryKinds; ++kind) {
    keys.push_back(Key(static_cast<MemoryKind>(kind)));
  }
  Json ranks = Json::array();
  for (size_t rank = 0; rank < report.memory->ranks.size(); ++rank) {
    const RankMemory& row = report.memory->ranks[rank];
    Json at_peak = Json::object();
    at_peak.reserve(kNumMemoryKinds);
    for (int kind = 0; kind < kNumMemoryKinds; ++kind) {
      at_peak.append(keys[kind], row.at_peak.of[kind]);
    }
    Json cause;
    if (row.pass_index >= 0) {
      cause = {{"pass", PassToString(*report.schedule, row.pass)},
               {"index", row.pass_index},
               {"stage", row.stage},
               {"op", row.op}};
    }
    ranks.push_back({{"rank", rank},
                     {"peak_bytes", row.peak()},
                     {"needed_bytes", row.needed()},
                     {"at_peak", std::move(at_peak)},
                     {"peak_activation_bytes", row.peak_activations},
                     {"peak_host_bytes", row.peak_host()},
                     {"context", row.context},
                     {"fragmentation", row.fragmentation},
                     {"cause", std::move(cause)}});
  }
  out["ranks"] = std::move(ranks);
  if (!report.changes.empty()) {
    Json changes = Json::array();
    for (const MemoryChange& change : report.changes) {
      changes.push_back({{"change", change.change},
                         {"needed_bytes", change.needed_bytes},
                         {"saved_bytes", change.saved_bytes},
                         {"fits", change.fits}});
    }
    out["changes"] = std::move(changes);
  }
  return out;
}

std::string BeyondAllocator(const RankMemory& rank) {
  return absl::StrCat(
      "context ", FormatBytes(static_cast<double>(rank.context)),
      ", fragmentation ",
      rank.fragmentation == 0
          ? "none assumed"
          : FormatBytes(static_cast<double>(rank.fragmentation)));
}

MemoryTable MemoryTableOf(const MemoryReport& report) {
  const ScheduleMemory& memory = *report.memory;
  MemoryTable table;
  table.header = {"rank", "peak"};
  std::vector<MemoryKind> kinds;
  for (int index = 0; index < kNumMemoryKinds; ++index) {
    const auto kind = static_cast<MemoryKind>(index);
    if (!IsUsed(memory, kind)) continue;
    kinds.push_back(kind);
    table.header.push_back(std::string(MemoryKindName(kind)));
  }
  const bool host =
      std::any_of(memory.ranks.begin(), memory.ranks.end(),
                  [](const RankMemory& rank) { return rank.peak_host() > 0; });
  if (host) table.header.push_back("on host");
  table.header.push_back("peak in");
  for (size_t rank = 0; rank < memory.ranks.size(); ++rank) {
    const RankMemory& row = memory.ranks[rank];
    std::vector<std::string> cells = {absl::StrCat(rank), Gib(row.peak())};
    for (const MemoryKind kind : kinds) cells.push_back(Gib(row.at_peak[kind]));
    if (host) cells.push_back(Gib(row.peak_host()));
    cells.push_back(MemoryCause(report, static_cast<int>(rank)));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

std::string MemoryToText(const MemoryReport& report, size_t rows) {
  const MemoryTable table = MemoryTableOf(report);
  const size_t last = table.header.size() - 1;
  std::string out = "memory at the peak of each rank (GiB)\n";
  const auto line = [&](const std::vector<std::string>& cells) {
    for (size_t column = 0; column < last; ++column) {
      const size_t width = std::max<size_t>(7, table.header[column].size());
      absl::StrAppendFormat(&out, "%s%*s", column == 0 ? "" : "  ",
                            static_cast<int>(column == 0 ? 6 : width),
                            cells[column]);
    }
    absl::StrAppend(&out, "  ", cells[last], "\n");
  };
  line(table.header);
  const size_t ends = rows / 4;
  for (size_t row = 0; row < table.rows.size(); ++row) {
    if (table.rows.size() > rows && row == ends) {
      absl::StrAppend(&out, "     … ", table.rows.size() - 2 * ends, " more\n");
      row = table.rows.size() - ends;
    }
    line(table.rows[row]);
  }
  absl::StrAppend(&out, "  beyond the allocator: ",
                  BeyondAllocator(report.memory->ranks[0]), "\n");
  if (report.limit_bytes) {
    absl::StrAppend(&out, "  ", MemoryVerdictLine(report), "\n");
  }
  for (const MemoryChange& change : report.changes) {
    absl::StrAppend(&out, "  would help: ", Change(change), "\n");
  }
  return out;
}

}  // namespace pipewright
