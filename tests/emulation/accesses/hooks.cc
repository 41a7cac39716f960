// The functions that -fsanitize=thread calls (GCC's tsan.def), with which the
// kernels of the backend are compiled for counting.
#include <cstddef>
#include <cstdint>

#include "tests/emulation/accesses/recorder.h"
#include "tests/emulation/device/emulated_cuda.h"

#define ACCESS(name, bytes, is_write)                              \
  void name(void* address) {                                       \
    if (!emulated::inside) return;                                 \
    emulated::Record(                                              \
        reinterpret_cast<uintptr_t>(address), bytes, is_write,     \
        reinterpret_cast<uintptr_t>(__builtin_return_address(0))); \
  }
#define ACCESSES(bytes)                              \
  ACCESS(__tsan_read##bytes, bytes, false)           \
  ACCESS(__tsan_write##bytes, bytes, true)           \
  ACCESS(__tsan_unaligned_read##bytes, bytes, false) \
  ACCESS(__tsan_unaligned_write##bytes, bytes, true) \
  ACCESS(__tsan_volatile_read##bytes, bytes, false)  \
  ACCESS(__tsan_volatile_write##bytes, bytes, true)

extern "C" {

ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

void __tsan_read_range(void* address, size_t bytes) {
  if (!emulated::inside) return;
  emulated::Record(reinterpret_cast<uintptr_t>(address),
                   static_cast<uint32_t>(bytes), false,
                   reinterpret_cast<uintptr_t>(__builtin_return_address(0)));
}
void __tsan_write_range(void* address, size_t bytes) {
  if (!emulated::inside) return;
  emulated::Record(reinterpret_cast<uintptr_t>(address),
                   static_cast<uint32_t>(bytes), true,
                   reinterpret_cast<uintptr_t>(__builtin_return_address(0)));
}
void __tsan_func_entry(void* from) {
  if (emulated::inside) {
    emulated::EnterFunction(reinterpret_cast<uintptr_t>(from));
  }
}
void __tsan_func_exit(void*) {
  if (emulated::inside) emulated::LeaveFunction();
}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_init() {}

}  // extern "C"
