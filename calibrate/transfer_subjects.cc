#include "calibrate/transfer_subjects.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "calibrate/measure.h"
#include "sim/base/status.h"
#include "sim/profile/profile.h"

namespace pipewright {
namespace {

constexpr int64_t kSizes[] = {4096, 65536, 1 << 20, 8 << 20};
constexpr int64_t kQuickSizes[] = {65536, 1 << 20};
// More threads than this tell nothing that a simulation of one node needs.
constexpr int kMostThreads = 16;

int Repeats(const Transport& transport, int64_t bytes) {
  return static_cast<int>(std::clamp<int64_t>(transport.sample_bytes / bytes,
                                              transport.least_repeats,
                                              transport.most_repeats));
}

std::vector<int64_t> SizesOf(const Transport& transport, bool quick) {
  if (!transport.sizes.empty()) return transport.sizes;
  if (quick) return {std::begin(kQuickSizes), std::end(kQuickSizes)};
  return {std::begin(kSizes), std::end(kSizes)};
}

}  // namespace

std::vector<Subject> TransferSubjects(const Transport& transport, bool quick,
                                      bool alone) {
  const std::vector<int64_t> sizes = SizesOf(transport, quick);
  std::vector<Subject> subjects;
  for (const TransferKind kind : kTransferKinds) {
    // Between two of them, however many there are.
    const bool pair = kind == TransferKind::kSendRecv;
    if (pair && transport.ranks > 2 && !alone) continue;
    Subject subject;
    subject.name = absl::StrCat(TransferName(kind), ", ", transport.ranks, " ",
                                transport.name);
    subject.share = 0.4;
    for (const int64_t bytes : sizes) {
      TransferEntry entry;
      entry.operation = std::string(TransferName(kind));
      entry.transport = transport.name;
      entry.ranks = pair ? 2 : transport.ranks;
      entry.bytes = bytes;
      entry.nodes = transport.nodes;
      subject.series.push_back(
          EntrySeries(entry, &Profile::transfers, &TransferEntry::time));
    }
    subject.visit = [transport, kind, sizes](std::vector<double>* samples) {
      samples->clear();
      for (const int64_t bytes : sizes) {
        PW_ASSIGN_OR_RETURN(
            const double seconds,
            transport.run(kind, bytes, Repeats(transport, bytes)));
        samples->push_back(seconds);
      }
      return absl::OkStatus();
    };
    if (transport.renew != nullptr) {
      subject.begin_round = [renew = transport.renew](int) {
        renew();
        return absl::OkStatus();
      };
    }
    subjects.push_back(std::move(subject));
  }
  return subjects;
}

std::vector<Transport> ThreadTransports() {
  const int cores = std::min<int>(
      kMostThreads, static_cast<int>(std::thread::hardware_concurrency()));
  std::vector<Transport> transports;
  for (const int ranks : {2, cores}) {
    if (!transports.empty() && ranks <= 2) continue;
    auto group = std::make_shared<std::unique_ptr<ThreadGroup>>();
    const auto renew = [group, ranks] {
      *group = std::make_unique<ThreadGroup>(ranks, kSizes[3]);
    };
    renew();
    transports.push_back({kThreadsTransport, ranks,
                          [group](TransferKind kind, int64_t bytes,
                                  int repeats) -> absl::StatusOr<double> {
                            return (*group)->Run(kind, bytes, repeats);
                          },
                          renew, /*nodes=*/1});
  }
  return transports;
}

}  // namespace pipewright
