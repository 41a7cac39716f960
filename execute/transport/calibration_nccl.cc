#include "execute/transport/calibration_nccl.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "execute/transport/nccl_processes.h"
#include "execute/transport/nccl_transfers.h"
#include "sim/base/check.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/profile/profile.h"

namespace pipewright {
namespace {

// NCCL changes algorithm and protocol in between: LL up to some 64 KiB, LL128,
// Simple from some MiB on (src/graph/tuning.cc of v2.28.9).
constexpr int64_t kSizes[] = {4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20,
                              4 << 20, 16 << 20, 64 << 20, 256 << 20};
constexpr int64_t kQuickSizes[] = {64 << 10, 1 << 20, 64 << 20};
// nccl-tests: 20 iterations. Of large ones fewer.
constexpr int kMostRepeats = 20;
constexpr int kLeastRepeats = 4;
constexpr int64_t kSampleBytes = 64 << 20;

constexpr char kWhat[] = "transfers over NCCL";

OpKind OpKindOf(TransferKind kind) {
  switch (kind) {
    case TransferKind::kSendRecv:
      return OpKind::kSend;
    case TransferKind::kAllReduce:
      return OpKind::kAllReduce;
    case TransferKind::kAllGather:
      return OpKind::kAllGather;
    case TransferKind::kReduceScatter:
      return OpKind::kReduceScatter;
  }
  PW_CHECK(false);
}

std::string VersionText(int version) {
  return absl::StrCat("NCCL ", version / 10000, ".", version / 100 % 100, ".",
                      version % 100);
}

// 2, 4, 8, ... and all.
std::vector<int> Counts(int devices, bool quick) {
  std::vector<int> counts;
  for (int count = 2; count < devices; count *= 2) {
    if (count == 2 || !quick) counts.push_back(count);
  }
  counts.push_back(devices);
  return counts;
}

// `*left_out`: the sizes that memory does not allow, as text.
std::vector<int64_t> SizesUpTo(int64_t most_bytes, bool quick,
                               std::string* left_out) {
  std::vector<int64_t> sizes(std::begin(kSizes), std::end(kSizes));
  if (quick) sizes = {std::begin(kQuickSizes), std::end(kQuickSizes)};
  std::vector<int64_t> fitting;
  for (const int64_t bytes : sizes) {
    if (bytes <= most_bytes) {
      fitting.push_back(bytes);
    } else {
      absl::StrAppend(left_out, left_out->empty() ? "" : ", ",
                      FormatBytes(static_cast<double>(bytes)));
    }
  }
  return fitting;
}

// NCCL connects when a kind and size first needs it.
absl::Status TryOut(NcclParty* party, int members,
                    const std::vector<int64_t>& sizes) {
  PW_RETURN_IF_ERROR(party->Join(members));
  for (const TransferKind kind : kTransferKinds) {
    if (kind == TransferKind::kSendRecv && members > 2) continue;
    for (const int64_t bytes : sizes) {
      PW_RETURN_IF_ERROR(
          party
              ->Time(
                  {.kind = OpKindOf(kind), .members = members, .bytes = bytes})
              .status());
    }
  }
  return absl::OkStatus();
}

Transport TransportOf(const std::shared_ptr<NcclParty>& party, int members,
                      const std::vector<int64_t>& sizes) {
  const auto transfer = [members](TransferKind kind, int64_t bytes,
                                  int repeats) -> NcclTransfer {
    return {.kind = OpKindOf(kind),
            .members = kind == TransferKind::kSendRecv ? 2 : members,
            .bytes = bytes,
            .repeats = repeats};
  };
  Transport transport;
  transport.name = kNcclTransport;
  transport.ranks = members;
  transport.nodes = party->nodes(members);
  transport.run = [party, transfer](TransferKind kind, int64_t bytes,
                                    int repeats) {
    return party->Time(transfer(kind, bytes, repeats));
  };
  transport.sizes = sizes;
  transport.sample_bytes = kSampleBytes;
  transport.least_repeats = kLeastRepeats;
  transport.most_repeats = kMostRepeats;
  transport.begin = [party, transfer](TransferKind kind, int64_t bytes,
                                      int count) {
    return party->Begin(transfer(kind, bytes, count));
  };
  transport.end = [party] { return party->End(); };
  return transport;
}

absl::StatusOr<TimedTransports> Make(std::shared_ptr<NcclParty> party,
                                     bool quick) {
  TimedTransports out;
  std::string left_out;
  const std::vector<int64_t> sizes =
      SizesUpTo(party->most_bytes(), quick, &left_out);
  if (!left_out.empty()) {
    out.warnings.push_back(absl::StrCat(
        kWhat, ": ", left_out,
        " are not measured: two buffers may take an eighth of the memory that "
        "is free on the fullest GPU, which leaves ",
        FormatBytes(static_cast<double>(party->most_bytes()))));
  }
  for (const int members : Counts(party->members(), quick)) {
    PW_RETURN_IF_ERROR(TryOut(party.get(), members, sizes));
    out.transports.push_back(TransportOf(party, members, sizes));
  }
  return out;
}

int64_t MostBytes(bool quick) {
  return quick ? *std::rbegin(kQuickSizes) : *std::rbegin(kSizes);
}

template <class Group>
TimedTransports OrWhyNot(absl::StatusOr<std::unique_ptr<Group>> party,
                         const absl::StatusOr<const PwNccl*>& nccl,
                         bool quick) {
  absl::Status status = party.status();
  if (status.ok()) {
    absl::StatusOr<TimedTransports> made = Make(*std::move(party), quick);
    if (made.ok()) {
      made->library = VersionText((*nccl)->version());
      return *std::move(made);
    }
    status = made.status();
  }
  TimedTransports none;
  none.warnings.push_back(
      absl::StrCat(kWhat, " are not measured: ", status.message()));
  return none;
}

absl::StatusOr<std::unique_ptr<NcclTransfers>> InThisProcess(
    const absl::StatusOr<const PwNccl*>& nccl, const PwKernels* kernels,
    bool quick, double timeout_s) {
  PW_RETURN_IF_ERROR(nccl.status());
  const int devices = kernels->device_count();
  if (devices < 2) {
    return absl::UnavailableError(
        absl::StrCat("they need two GPUs, there is ", devices));
  }
  return NcclTransfers::Create({.nccl = *nccl,
                                .kernels = kernels,
                                .devices = devices,
                                .most_bytes = MostBytes(quick),
                                .timeout_s = timeout_s});
}

}  // namespace

TimedTransports TransportsOverNccl(const absl::StatusOr<const PwNccl*>& nccl,
                                   const PwKernels* kernels, bool quick,
                                   double timeout_s) {
  return OrWhyNot(InThisProcess(nccl, kernels, quick, timeout_s), nccl, quick);
}

TimedTransports TransportsOverNccl(ProcessGroup* job,
                                   const absl::StatusOr<const PwNccl*>& nccl,
                                   const PwKernels* kernels, bool quick,
                                   double timeout_s) {
  return OrWhyNot(NcclProcesses::Create(job, {.nccl = nccl,
                                              .kernels = kernels,
                                              .most_bytes = MostBytes(quick),
                                              .timeout_s = timeout_s}),
                  nccl, quick);
}

}  // namespace pipewright
