// Whether the driver is watched (watched_driver.cc) where run.sh says so.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/base/thread_role.h"
#include "kernels/ops/registry.h"

namespace weir {
namespace {

// What the library hands out under that name, as runtimes ask for it.
void* Ask(void* library, const char* name) {
  using GetProcAddress =
      int (*)(const char*, void**, int version, uint64_t flags, void* found);
  const auto get = reinterpret_cast<GetProcAddress>(
      library == nullptr ? nullptr : dlsym(library, "cuGetProcAddress_v2"));
  void* function = nullptr;
  return get != nullptr && get(name, &function, 12000, 0, nullptr) == 0
             ? function
             : nullptr;
}

TEST(WatchedDriverTest, EveryFunctionOfCudaThatMayWaitIsWatched) {
  if (std::getenv("WEIR_WATCHED_DRIVER") == nullptr) {
    GTEST_SKIP() << "the driver is watched in tests/gpu/run.sh alone";
  }
  void* const watched = dlopen("libcuda.so.1", RTLD_NOW);
  void* const real = dlopen("libcuda_real.so", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(Ask(real, "cuInit"), nullptr);
  EXPECT_EQ(Ask(watched, "cuInit"), Ask(real, "cuInit")) << "it is not listed";
#define WATCHED(name)                               \
  EXPECT_NE(Ask(watched, #name), nullptr) << #name; \
  EXPECT_NE(Ask(watched, #name), Ask(real, #name)) << #name;
#include "tests/gpu/watched_functions.def"
#undef WATCHED
}

TEST(WatchedDriverTest, AWaitOfTheCudaDriverIsSeenBesideThatOfTheDevice) {
  if (std::getenv("WEIR_WATCHED_DRIVER") == nullptr) {
    GTEST_SKIP() << "the driver is watched in tests/gpu/run.sh alone";
  }
  const auto registry = MakeOpRegistry();
  const auto device = MakeDevice("cuda:0", DeviceOptions(), *registry);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(CountMisplacedWaits().count, 0u);
  {
    const ScopedThreadRole role(ThreadRole::kIo);
    // Device::Synchronize says that it may wait, and then the driver does.
    EXPECT_TRUE((*device)->Synchronize().ok());
  }
  EXPECT_EQ(CountMisplacedWaits().count, 2u);
}

}  // namespace
}  // namespace weir
