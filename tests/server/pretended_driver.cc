// Stands in for the CUDA driver of a machine whose GPUs do not start: in a
// folder that the loader searches first it is called libcuda.so.1. cuInit
// answers PRETENDED_CUINIT; after a 0 there are PRETENDED_GPUS, of which
// nothing but the number is known, and whoever asks for that is answered
// PRETENDED_COUNT.
#include <cuda.h>

#include <cstdlib>

namespace {

int Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? 0 : std::atoi(value);
}

}  // namespace

#pragma GCC visibility push(default)

CUresult cuInit(unsigned) {
  return static_cast<CUresult>(Variable("PRETENDED_CUINIT"));
}

CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = Variable("PRETENDED_GPUS");
  return static_cast<CUresult>(Variable("PRETENDED_COUNT"));
}

#pragma GCC visibility pop
