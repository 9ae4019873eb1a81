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
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "kernels/base/thread_role.h"

#undef cuGetProcAddress

namespace {

// A function of the driver's takes integers and pointers, at most so many, and
// which there are depends on the version that the caller asks for: all are
// handed on, whether or not the caller gave them.
using Word = uintptr_t;
using Function = CUresult (*)(Word, Word, Word, Word, Word, Word, Word, Word);

// One version of one of them, with a word before each call.
template <int kNumber, int kVersion>
struct Watched {
  static inline std::atomic<Function> real = nullptr;
  static inline std::atomic<const char*> name = nullptr;

  static CUresult Call(Word a, Word b, Word c, Word d, Word e, Word f, Word g,
                       Word h) {
    weir::ExpectMayWait(name);
    return real.load()(a, b, c, d, e, f, g, h);
  }
};

// Callers of several years ask for a version each.
constexpr int kVersions = 4;

template <int kNumber, int kVersion = 0>
void* Watch(const char* name, void* real) {
  if constexpr (kVersion == kVersions) {
    std::abort();
  } else {
    using W = Watched<kNumber, kVersion>;
    const auto function = reinterpret_cast<Function>(real);
    Function known = nullptr;
    W::name = name;
    if (W::real.compare_exchange_strong(known, function) || known == function) {
      return reinterpret_cast<void*>(&W::Call);
    }
    return Watch<kNumber, kVersion + 1>(name, real);
  }
}

struct Waiting {
  const char* name;
  void* (*watch)(const char* name, void* real);
};

#define WATCHED(function) {#function, &Watch<__COUNTER__>},

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
