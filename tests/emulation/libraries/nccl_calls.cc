// libnccl: what members call (NCCL user guide, "Collective Communication
// Functions", "Point To Point Communication Functions", "Group Calls").
#include "tests/emulation/libraries/nccl_comm.h"
#include "tests/emulation/runtime/queue.h"

using emulated::GiveNccl;
using emulated_nccl::Call;
using emulated_nccl::Group;
using emulated_nccl::Kind;
using emulated_nccl::Result;

namespace {

// 0: not a type.
size_t BytesOf(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

// NCCL finds it out with NCCL_CHECK_POINTERS=1, and fails later without.
bool IsOfDevice(const ncclComm_t comm, const char* what, const void* memory,
                size_t bytes) {
  if (memory == nullptr || bytes == 0) return true;
  size_t left = 0;
  int device = -1;
  if (emulated::KindOf(memory, &left, &device) == emulated::Kind::kDevice &&
      device == comm->device && left >= bytes) {
    return true;
  }
  emulated::Violation(
      "NCCL: %s of %zu bytes on device %d: %zu are there, of device %d", what,
      bytes, comm->device, left, device);
  return false;
}

ncclResult_t Add(Kind kind, const void* from, void* into, size_t count,
                 ncclDataType_t type, int peer, ncclComm_t comm,
                 cudaStream_t stream) {
  const Call call = {.kind = kind,
                     .from = from,
                     .into = into,
                     .count = count,
                     .value_bytes = BytesOf(type),
                     .type = type,
                     .peer = peer};
  if (comm == nullptr || call.value_bytes == 0) return ncclInvalidArgument;
  const char* const name = NameOf(kind);
  if (comm->finalized || comm->split_into != nullptr) {
    emulated::Violation("NCCL: %s while a call goes on", name);
    return ncclInvalidArgument;
  }
  if (emulated::DeviceOf(stream) != comm->device) {
    emulated::Violation("NCCL: %s of device %d on a stream of device %d", name,
                        comm->device, emulated::DeviceOf(stream));
    return ncclInvalidUsage;
  }
  if (emulated::Capturing(stream)) {
    emulated::Violation("NCCL: %s in a capture is not emulated", name);
    return ncclInvalidUsage;
  }
  const auto members = static_cast<size_t>(comm->member->members());
  const size_t bytes = count * call.value_bytes;
  const bool is_root = comm->member->self() == peer;
  const bool reads =
      kind != Kind::kReceive && (kind != Kind::kBroadcast || is_root);
  const bool writes = kind != Kind::kSend && (kind != Kind::kReduce || is_root);
  if ((reads &&
       !IsOfDevice(comm, name, from,
                   kind == Kind::kReduceScatter ? bytes * members : bytes)) ||
      (writes &&
       !IsOfDevice(comm, name, into,
                   kind == Kind::kAllGather ? bytes * members : bytes))) {
    return ncclInvalidArgument;
  }
  const Result added = comm->member->Add(call, stream);
  // Calls of a group are under way after its end.
  return GiveNccl(added, comm);
}

ncclResult_t AddSum(Kind kind, const void* from, void* into, size_t count,
                    ncclDataType_t type, ncclRedOp_t sum, int root,
                    ncclComm_t comm, cudaStream_t stream) {
  if (sum < 0 || sum >= ncclNumOps || BytesOf(type) == 0) {
    return ncclInvalidArgument;
  }
  if (type != ncclFloat32 || sum != ncclSum) {
    emulated::Violation("NCCL: %s of type %d with operation %d is not emulated",
                        NameOf(kind), type, sum);
    return ncclInvalidArgument;
  }
  return Add(kind, from, into, count, type, root, comm, stream);
}

}  // namespace

extern "C" {

ncclResult_t ncclGroupStart() {
  Group::Start();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() { return static_cast<ncclResult_t>(Group::End()); }

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
  return Add(Kind::kSend, from, nullptr, count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void* into, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return Add(Kind::kReceive, nullptr, into, count, type, peer, comm, stream);
}

ncclResult_t ncclAllReduce(const void* from, void* into, size_t count,
                           ncclDataType_t type, ncclRedOp_t sum,
                           ncclComm_t comm, cudaStream_t stream) {
  return AddSum(Kind::kAllReduce, from, into, count, type, sum, 0, comm,
                stream);
}

ncclResult_t ncclReduce(const void* from, void* into, size_t count,
                        ncclDataType_t type, ncclRedOp_t sum, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return AddSum(Kind::kReduce, from, into, count, type, sum, root, comm,
                stream);
}

ncclResult_t ncclReduceScatter(const void* from, void* into, size_t count,
                               ncclDataType_t type, ncclRedOp_t sum,
                               ncclComm_t comm, cudaStream_t stream) {
  return AddSum(Kind::kReduceScatter, from, into, count, type, sum, 0, comm,
                stream);
}

ncclResult_t ncclAllGather(const void* from, void* into, size_t count,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return Add(Kind::kAllGather, from, into, count, type, 0, comm, stream);
}

ncclResult_t ncclBroadcast(const void* from, void* into, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return Add(Kind::kBroadcast, from, into, count, type, root, comm, stream);
}

}  // extern "C"
