// A libcuda.so.1 for machines without one, so that cuDNN finishes its plans:
// what loads a module and asks about a kernel answers with success and does
// nothing. Every other entry point of the driver is in fake_driver_rest.cc,
// made from the toolkit's stub, and answers that it is a stub.
#include <cstddef>

// Signatures as in cuda.h, with integers and untyped pointers for its types.
extern "C" {

int cuLibraryLoadData(void** library, const void*, void*, void**, unsigned,
                      void*, void**, unsigned) {
  static int loaded;
  *library = &loaded;
  return 0;
}

int cuLibraryUnload(void*) { return 0; }

int cuLibraryGetKernel(void** kernel, void* library, const char*) {
  *kernel = library;
  return 0;
}

int cuLibraryGetModule(void** module, void* library) {
  *module = library;
  return 0;
}

int cuLibraryGetGlobal(unsigned long long* address, size_t* bytes, void*,
                       const char*) {
  *address = 0;
  *bytes = 0;
  return 0;
}

int cuKernelGetFunction(void** function, void* kernel) {
  *function = kernel;
  return 0;
}

int cuKernelSetAttribute(int, int, void*, int) { return 0; }

int cuKernelGetAttribute(int* value, int, void*, int) {
  *value = 0;
  return 0;
}

int cuFuncSetAttribute(void*, int, int) { return 0; }

int cuFuncGetAttribute(int* value, int, void*) {
  *value = 0;
  return 0;
}

int cuModuleLoadData(void** module, const void*) {
  static int loaded;
  *module = &loaded;
  return 0;
}

int cuModuleLoadDataEx(void** module, const void* image, unsigned, void*,
                       void**) {
  return cuModuleLoadData(module, image);
}

int cuModuleGetFunction(void** function, void* module, const char*) {
  *function = module;
  return 0;
}

int cuModuleUnload(void*) { return 0; }

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int,
                                                size_t) {
  *blocks = 1;
  return 0;
}

}  // extern "C"
