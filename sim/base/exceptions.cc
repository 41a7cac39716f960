#include "sim/base/exceptions.h"

#include <exception>
#include <new>
#include <stdexcept>

namespace pipewright {

absl::Status WithoutExceptions(const std::function<absl::Status()>& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return absl::InternalError("out of memory");
  } catch (const std::length_error&) {
    // What a container says to a size that no memory could hold.
    return absl::InternalError("out of memory");
  } catch (const std::exception& exception) {
    return absl::InternalError(exception.what());
  } catch (...) {
    return absl::InternalError("an exception of an unknown type");
  }
}

}  // namespace pipewright
