// Invariant checks for our own bugs. A user's mistake is an absl::Status
// instead (status.h). Aborts with file, line and the failed expression.
#pragma once

#include <cstdio>
#include <cstdlib>

#define PW_CHECK(condition)                                                 \
  do {                                                                      \
    if (!(condition)) [[unlikely]] {                                        \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, \
                   #condition);                                             \
      std::abort();                                                         \
    }                                                                       \
  } while (false)
