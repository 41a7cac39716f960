#include "absl/strings/str_cat.h"
#include "sim/base/load_module.h"
#include "execute/transport/nccl_transport.h"
#include "sim/base/status.h"

namespace pipewright {

absl::StatusOr<const PwNccl*> LoadNccl() {
  PW_ASSIGN_OR_RETURN(
      void* const function,
      LoadModule({.library = "libpipewright_nccl.so",
                  .variable = "PIPEWRIGHT_NCCL_LIBRARY",
                  .function = "pw_nccl"},
                 "the NCCL transport is built where a CUDA toolkit and nccl.h "
                 "are found"));
  const PwNccl* const nccl =
      reinterpret_cast<const PwNccl* (*)(void)>(function)();
  if (nccl->abi != PW_NCCL_ABI) {
    return absl::UnavailableError(
        "libpipewright_nccl.so is of another version: build both from the "
        "same sources");
  }
  if (nccl->version() < 0) {
    return absl::UnavailableError(
        absl::StrCat(nccl->error(),
                     "; NCCL (libnccl.so.2) must be where the dynamic linker "
                     "looks, LD_LIBRARY_PATH may say where"));
  }
  return nccl;
}

}  // namespace pipewright
