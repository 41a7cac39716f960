#include "execute/transport/nccl_comm.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "execute/transport/steady_seconds.h"
#include "sim/base/status.h"

namespace pipewright {

NcclComm::~NcclComm() {
  if (comm_ == nullptr) return;
  if (!idle() || calling_) {
    Abort();
  } else {
    nccl_.leave(comm_);
  }
}

void NcclComm::Abort() {
  if (comm_ != nullptr) nccl_.cut_off(comm_);
  comm_ = nullptr;
  queued_.clear();
  running_.clear();
}

void NcclComm::Enqueue(Operation operation) {
  operation.since_s = SteadySeconds();
  queued_.push_back(std::move(operation));
}

absl::Status NcclComm::Failed(const Operation* operation) const {
  return absl::UnavailableError(absl::StrCat(
      "NCCL", operation == nullptr ? "" : ", ",
      operation == nullptr ? "" : operation->what, ": ", nccl_.error()));
}

absl::Status NcclComm::Pump(double longest_s) {
  if (comm_ == nullptr) return absl::OkStatus();
  while (true) {
    // Errors of what runs on the device show here as well.
    const int state = nccl_.state(comm_);
    if (state < 0) {
      return Failed(!running_.empty()  ? &running_.front()
                    : !queued_.empty() ? &queued_.front()
                                       : nullptr);
    }
    if (state > 0) break;
    calling_ = false;
    if (issued_) {
      if (nccl_.mark(comm_) < 0) return Failed(&queued_.front());
      running_.push_back(std::move(queued_.front()));
      queued_.pop_front();
      issued_ = false;
    }
    if (queued_.empty()) break;
    calling_ = true;
    issued_ = true;
    if (queued_.front().issue(nccl_, comm_) < 0) {
      return Failed(&queued_.front());
    }
  }
  const int64_t reached = running_.empty() ? reached_ : nccl_.reached(comm_);
  if (reached < 0) return Failed(&running_.front());
  for (; reached_ < reached; ++reached_) {
    const Operation ended = std::move(running_.front());
    running_.pop_front();
    if (ended.ended) ended.ended();
  }
  if (idle()) return absl::OkStatus();
  const Operation& waits =
      running_.empty() ? queued_.front() : running_.front();
  if (SteadySeconds() - waits.since_s <= longest_s) return absl::OkStatus();
  return absl::UnavailableError(absl::StrFormat(
      "NCCL, %s: under way for longer than %g s", waits.what, longest_s));
}

namespace {

constexpr size_t kFloatBytes = 4;

bool AllEqual(const std::vector<size_t>& sizes) {
  return std::all_of(sizes.begin(), sizes.end(),
                     [&](size_t size) { return size == sizes[0]; });
}

char* At(const Payload& payload, size_t offset = 0) {
  return static_cast<char*>(payload.data.get()) + offset;
}

// Calls between begin_group and end_group, which must come in any case.
template <class Calls>
int Grouped(const PwNccl& nccl, const Calls& calls) {
  if (nccl.begin_group() < 0) return -1;
  const int called = calls();
  const int ended = nccl.end_group();
  return called < 0 ? called : ended;
}

// In place: nobody else has this payload.
void AllReduce(Collective& collective, NcclComm::Operation* operation) {
  const Payload values = collective.give[0];
  collective.parts = {values};
  operation->issue = [values](const PwNccl& nccl, PwNcclComm* comm) {
    return nccl.all_reduce(comm, At(values), At(values),
                           values.bytes / kFloatBytes);
  };
}

absl::Status ReduceScatter(Collective& collective, DeviceMemory* memory,
                           NcclComm::Operation* operation) {
  const std::vector<Payload> give = collective.give;
  const Payload own = give[collective.self];
  collective.parts = {own};
  std::vector<size_t> sizes;
  for (const Payload& each : give) sizes.push_back(each.bytes);
  if (AllEqual(sizes)) {
    PW_ASSIGN_OR_RETURN(const Payload whole,
                        memory->TakeMemory(own.bytes * give.size()));
    operation->issue = [give, own, whole](const PwNccl& nccl,
                                          PwNcclComm* comm) {
      for (size_t member = 0; member < give.size(); ++member) {
        if (nccl.copy(comm, At(whole, member * own.bytes), At(give[member]),
                      own.bytes) < 0) {
          return -1;
        }
      }
      return nccl.reduce_scatter(comm, At(whole), At(own),
                                 own.bytes / kFloatBytes);
    };
    return absl::OkStatus();
  }
  operation->issue = [give](const PwNccl& nccl, PwNcclComm* comm) {
    return Grouped(nccl, [&] {
      for (size_t root = 0; root < give.size(); ++root) {
        if (give[root].bytes == 0) continue;
        if (nccl.reduce(comm, At(give[root]), At(give[root]),
                        give[root].bytes / kFloatBytes,
                        static_cast<int>(root)) < 0) {
          return -1;
        }
      }
      return 0;
    });
  };
  return absl::OkStatus();
}

absl::Status AllGather(Collective& collective, DeviceMemory* memory,
                       NcclComm::Operation* operation) {
  const Payload own = collective.give[0];
  const std::vector<size_t>& sizes = collective.bytes;
  if (AllEqual(sizes)) {
    PW_ASSIGN_OR_RETURN(const Payload whole,
                        memory->TakeMemory(own.bytes * sizes.size()));
    for (size_t member = 0; member < sizes.size(); ++member) {
      collective.parts.push_back(
          {.data =
               std::shared_ptr<void>(whole.data, At(whole, member * own.bytes)),
           .bytes = own.bytes,
           .on_device = true});
    }
    operation->issue = [own, whole](const PwNccl& nccl, PwNcclComm* comm) {
      return nccl.all_gather(comm, At(own), At(whole), own.bytes / kFloatBytes);
    };
    return absl::OkStatus();
  }
  for (size_t member = 0; member < sizes.size(); ++member) {
    if (static_cast<int>(member) == collective.self) {
      collective.parts.push_back(own);
      continue;
    }
    PW_ASSIGN_OR_RETURN(Payload part, memory->TakeMemory(sizes[member]));
    collective.parts.push_back(std::move(part));
  }
  operation->issue = [parts = collective.parts](const PwNccl& nccl,
                                                PwNcclComm* comm) {
    return Grouped(nccl, [&] {
      for (size_t root = 0; root < parts.size(); ++root) {
        if (parts[root].bytes == 0) continue;
        if (nccl.broadcast(comm, At(parts[root]), At(parts[root]),
                           parts[root].bytes / kFloatBytes,
                           static_cast<int>(root)) < 0) {
          return -1;
        }
      }
      return 0;
    });
  };
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NcclComm::Operation> CombineOperation(
    const std::shared_ptr<Collective>& collective, DeviceMemory* memory) {
  NcclComm::Operation operation;
  const char* name = "";
  size_t bytes = 0;
  for (const Payload& each : collective->give) bytes += each.bytes;
  switch (collective->kind) {
    case OpKind::kAllReduce:
      name = "all-reduce";
      AllReduce(*collective, &operation);
      break;
    case OpKind::kReduceScatter:
      name = "reduce-scatter";
      PW_RETURN_IF_ERROR(ReduceScatter(*collective, memory, &operation));
      break;
    case OpKind::kAllGather:
      name = "all-gather";
      PW_RETURN_IF_ERROR(AllGather(*collective, memory, &operation));
      break;
    default:
      return absl::InternalError("a collective that is none");
  }
  operation.what =
      absl::StrCat(name, " number ", collective->meeting, " of group ",
                   collective->group, ", ", bytes, " bytes");
  return operation;
}

}  // namespace pipewright
