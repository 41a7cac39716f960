// A communicator of the emulated libnccl.so.2. For its files only.
#ifndef PIPEWRIGHT_TESTS_EMULATION_LIBRARIES_NCCL_COMM_H_
#define PIPEWRIGHT_TESTS_EMULATION_LIBRARIES_NCCL_COMM_H_

#include <nccl.h>

#include <memory>
#include <string>

#include "tests/emulation/nccl/member.h"

struct ncclComm {
  std::shared_ptr<emulated_nccl::Member> member;
  int device = 0;
  bool blocking = true;
  bool finalized = false;
  std::string error;
  // State of a split that goes on.
  ncclComm_t* split_into = nullptr;
  int split_colour = 0;
  int split_key = 0;
};

namespace emulated {

// Keeps it for ncclGetLastError.
ncclResult_t GiveNccl(emulated_nccl::Result result, ncclComm_t comm);
// Goes on with a split, and says how the communicator is.
emulated_nccl::Result StateOf(ncclComm_t comm);

}  // namespace emulated

#endif  // PIPEWRIGHT_TESTS_EMULATION_LIBRARIES_NCCL_COMM_H_
