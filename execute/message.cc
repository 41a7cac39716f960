#include "execute/message.h"

#include <utility>

namespace pipewright {

Payload TextPayload(absl::string_view text) {
  auto owner = std::make_shared<std::string>(text);
  const size_t bytes = owner->size();
  char* const data = owner->data();
  return {.data = std::shared_ptr<void>(std::move(owner), data),
          .bytes = bytes};
}

std::string TextOf(const Payload& payload) {
  return std::string(static_cast<const char*>(payload.data.get()),
                     payload.bytes);
}

}  // namespace pipewright
