// Stands in front of the CUDA driver: in a folder that the loader searches
// first it is called libcuda.so.1, and has the driver itself beside it as
// libcuda_real.so (run.sh makes that folder). It hands out the driver's
// functions as they are, but for those that may wait, which say so first
// (ExpectMayWait). So a wait is seen on whichever thread, whoever makes it, and
// whether or not the code around it says that it may wait.
//
// Every CUDA runtime, those inside NVIDIA's libraries too, asks
// cuGetProcAddress for all that it calls.
#include <cuda.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "kernels/base/thread_role.h"

#undef cuGetProcAddress

namespace {

// The driver's function, with a word before each call.
template <typename F, int kId>
struct Watched;

template <typename... Args, int kId>
struct Watched<CUresult (*)(Args...), kId> {
  using Function = CUresult (*)(Args...);
  static inline std::atomic<Function> real = nullptr;
  static inline std::atomic<const char*> name = nullptr;

  static CUresult Call(Args... args) {
    weir::ExpectMayWait(name);
    return real.load()(args...);
  }
};

template <typename F, int kId>
void* Watch(const char* name, void* real) {
  using W = Watched<F, kId>;
  W::name = name;
  W::real = reinterpret_cast<F>(real);
  return reinterpret_cast<void*>(&W::Call);
}

struct Waiting {
  const char* name;
  void* (*watch)(const char* name, void* real);
};

template <typename F, int kId>
constexpr Waiting MayWait(const char* name) {
  return {name, &Watch<F, kId>};
}

// The header's macros choose the function's newest signature, which is what
// every runtime of today asks for.
#define WATCHED(function) MayWait<decltype(&function), __COUNTER__>(#function),

constexpr Waiting kWaiting[] = {
#include "tests/gpu/watched_functions.def"
};
#undef WATCHED

template <typename F>
F Real(const char* name) {
  void* const driver = dlopen("libcuda_real.so", RTLD_NOW | RTLD_NOLOAD);
  void* const found = driver == nullptr ? nullptr : dlsym(driver, name);
  if (found == nullptr) std::abort();  // run.sh has made no such folder
  return reinterpret_cast<F>(found);
}

void WatchIfItWaits(const char* symbol, void** function) {
  for (const Waiting& one : kWaiting) {
    if (std::strcmp(symbol, one.name) == 0) {
      *function = one.watch(one.name, *function);
    }
  }
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) CUresult cuGetProcAddress(
    const char* symbol, void** function, int version, cuuint64_t flags);

__attribute__((visibility("default"))) CUresult cuGetProcAddress_v2(
    const char* symbol, void** function, int version, cuuint64_t flags,
    CUdriverProcAddressQueryResult* found) {
  static const auto real =
      Real<decltype(&cuGetProcAddress_v2)>("cuGetProcAddress_v2");
  const CUresult result = real(symbol, function, version, flags, found);
  if (result != CUDA_SUCCESS || *function == nullptr) return result;
  if (std::strcmp(symbol, "cuGetProcAddress") == 0) {
    // From 12.0 on it has five parameters.
    *function = version >= 12000 ? reinterpret_cast<void*>(&cuGetProcAddress_v2)
                                 : reinterpret_cast<void*>(&cuGetProcAddress);
  } else {
    WatchIfItWaits(symbol, function);
  }
  return result;
}

CUresult cuGetProcAddress(const char* symbol, void** function, int version,
                          cuuint64_t flags) {
  CUdriverProcAddressQueryResult found;
  return cuGetProcAddress_v2(symbol, function, version, flags, &found);
}

}  // extern "C"
