// Calls that hold nobody up: in steady state the threads that answer calls take
// no mutex of ours that another one of them takes. Every mutex of the process
// that is locked passes through here; those that gRPC locks are its own affair.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/thread_role.h"
#include "tests/server/model_folder.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

// What one thread has locked while that was noted.
struct Locked {
  static constexpr size_t kMost = 256;
  struct Lock {
    const void* mutex;
    const void* caller;
    uint64_t count;
  };
  std::array<Lock, kMost> locks;
  std::atomic<size_t> size{0};
};

constexpr size_t kMostThreads = 64;
std::array<Locked, kMostThreads> all_locked;
std::atomic<size_t> threads_seen{0};
std::atomic<bool> noting{false};

// Where gRPC's code and the C library's lie is none of our business; nor is
// what FrameGuard does while gRPC reads from a connection: the connection's
// lock, which whoever polls it takes.
bool IsOurs(const void* caller) {
  static const void* const here = [] {
    Dl_info info;
    return dladdr(reinterpret_cast<void*>(&IsOurs), &info) != 0 ? info.dli_fbase
                                                                : nullptr;
  }();
  static const void* const library = [] {
    Dl_info info;
    return dladdr(reinterpret_cast<void*>(&CurrentThreadRole), &info) != 0
               ? info.dli_fbase
               : nullptr;
  }();
  Dl_info info;
  if (dladdr(caller, &info) == 0) return false;
  if (info.dli_sname != nullptr &&
      std::string_view(info.dli_sname) == "recvmsg") {
    return false;
  }
  return info.dli_fbase == here || info.dli_fbase == library;
}

void Note(const void* mutex, const void* caller) {
  thread_local Locked* const mine = [] {
    const size_t number = threads_seen.fetch_add(1);
    return number < kMostThreads ? &all_locked[number] : nullptr;
  }();
  if (mine == nullptr) return;
  const size_t size = mine->size.load(std::memory_order_relaxed);
  for (size_t i = 0; i < size; ++i) {
    if (mine->locks[i].mutex == mutex && mine->locks[i].caller == caller) {
      ++mine->locks[i].count;
      return;
    }
  }
  if (size == Locked::kMost || !IsOurs(caller)) return;
  mine->locks[size] = {mutex, caller, 1};
  mine->size.store(size + 1, std::memory_order_release);
}

std::string Place(const void* caller) {
  Dl_info info;
  if (dladdr(caller, &info) == 0) return absl::StrCat(absl::Hex(caller));
  return absl::StrCat(info.dli_fname, "+0x",
                      absl::Hex(reinterpret_cast<uintptr_t>(caller) -
                                reinterpret_cast<uintptr_t>(info.dli_fbase)));
}

}  // namespace
}  // namespace weir::testing

// Before the C library's.
extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) {
  using LockFn = int(pthread_mutex_t*);
  static LockFn* const lock =
      reinterpret_cast<LockFn*>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  using weir::ThreadRole;
  if (weir::testing::noting.load(std::memory_order_relaxed) &&
      !weir::MayWait(weir::CurrentThreadRole())) {
    weir::testing::Note(mutex, __builtin_return_address(0));
  }
  return lock(mutex);
}

namespace weir::testing {
namespace {

constexpr size_t kCallers = 16;
constexpr int kCalls = 200;  // of each

class LocksTest : public ::testing::Test {
 protected:
  LocksTest() {
    models_.Write("floats", IdentityModel(onnx::TensorProto::FLOAT));
    server_.emplace([&](ServerOptions& o) {
      o.model_repository = models_.path();
      o.io_threads = 4;
      o.streams = 16;
    });
  }

  // call(stub), when all have called before.
  template <typename Service, typename Call>
  void ExpectNoneShared(const Call& call) {
    CallFromAll<Service>(call);
    // Another server's may have lain where this one's are.
    for (Locked& locked : all_locked) locked.size = 0;
    noting = true;
    CallFromAll<Service>(call);
    noting = false;
    ExpectNoneShared();
  }

 private:
  // Each caller over a connection of its own, so that all I/O threads have
  // some.
  template <typename Service, typename Call>
  void CallFromAll(const Call& call) {
    while (channels_.size() < kCallers) channels_.push_back(server_->Connect());
    std::vector<std::thread> callers;
    for (const auto& channel : channels_) {
      callers.emplace_back([&] {
        const auto stub = Service::NewStub(channel);
        for (int n = 0; n < kCalls; ++n) call(*stub);
      });
    }
    for (std::thread& caller : callers) caller.join();
  }

  static void ExpectNoneShared();

  ModelFolder models_;
  std::optional<TestServer> server_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
};

void LocksTest::ExpectNoneShared() {
  std::map<const void*, std::map<size_t, uint64_t>> times_of;  // by thread
  std::map<const void*, std::map<std::string, uint64_t>> places_of;
  size_t threads = 0;
  for (size_t t = 0; t < std::min(threads_seen.load(), kMostThreads); ++t) {
    const size_t size = all_locked[t].size.load(std::memory_order_acquire);
    EXPECT_LT(size, Locked::kMost) << "not all were noted";
    threads += size > 0 ? 1 : 0;
    for (size_t i = 0; i < size; ++i) {
      const Locked::Lock& lock = all_locked[t].locks[i];
      times_of[lock.mutex][t] += lock.count;
      places_of[lock.mutex][Place(lock.caller)] += lock.count;
    }
  }
  EXPECT_GT(threads, 1u) << "one thread alone answered all calls";
  for (const auto& [mutex, times] : times_of) {
    // An evaluation's own are taken by its I/O thread alone, but when the
    // machine has interrupted a run: it counts as long, and the next ones of
    // the model go to a worker, which takes them for the same call.
    uint64_t most = 0;
    uint64_t all = 0;
    for (const auto& [thread, count] : times) {
      most = std::max(most, count);
      all += count;
    }
    if (all == most) continue;
    std::string places;
    for (const auto& [place, count] : places_of[mutex]) {
      absl::StrAppend(&places, "\n  ", place, " x ", count);
    }
    std::cout << "locked " << all << " times, " << all - most
              << " of them not by the thread that locks it most:" << places
              << "\n";
    EXPECT_LT(all - most, static_cast<uint64_t>(kCallers * kCalls / 20))
        << places;
  }
}

TEST_F(LocksTest, ModelInferTakesNoneThatAnotherCallTakes) {
  inference::ModelInferRequest request;
  request.set_model_name("floats");
  AddInput(&request, "x", "FP32", {4}, Bytes<float>({1, 2, 3, 4}));
  ExpectNoneShared<inference::GRPCInferenceService>(
      [&](inference::GRPCInferenceService::Stub& stub) {
        grpc::ClientContext context;
        SetPatience(&context);
        inference::ModelInferResponse response;
        const grpc::Status status =
            stub.ModelInfer(&context, request, &response);
        EXPECT_TRUE(status.ok()) << status.error_message();
      });
}

// Its program and its plan are found where other calls look too.
TEST_F(LocksTest, EvaluateTakesNoneThatAnotherCallTakes) {
  const v1::EvaluateRequest request = IdentityRequest();
  ExpectNoneShared<v1::Evaluator>([&](v1::Evaluator::Stub& stub) {
    grpc::ClientContext context;
    SetPatience(&context);
    v1::EvaluateResponse response;
    const grpc::Status status = stub.Evaluate(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  });
}

}  // namespace
}  // namespace weir::testing
