#include "execute/transport/message.h"

#include <utility>

namespace pipewright {

Payload HostPayload(absl::string_view bytes) {
  auto owner = std::make_shared<std::string>(bytes);
  char* const data = owner->data();
  return {.data = std::shared_ptr<void>(std::move(owner), data),
          .bytes = bytes.size()};
}

std::string TextOf(const Payload& payload) {
  return std::string(static_cast<const char*>(payload.data.get()),
                     payload.bytes);
}

}  // namespace pipewright
