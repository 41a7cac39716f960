// Memory of a rank's device that a transport fills with what others send.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "execute/transport/message.h"

namespace pipewright {

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // From any thread. Error: kUnimplemented where there is no device.
  virtual absl::StatusOr<Payload> TakeMemory(size_t) {
    return absl::UnimplementedError("a worker without memory of a device");
  }
  // Makes room for so many inputs of passes, so that nothing is allocated in
  // the middle of a run.
  virtual absl::Status ReserveMemory(int) { return absl::OkStatus(); }
};

}  // namespace pipewright
