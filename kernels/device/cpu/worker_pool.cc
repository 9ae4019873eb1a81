#include "kernels/device/cpu/worker_pool.h"

#include <algorithm>

#include "kernels/base/atomic.h"
#include "kernels/base/clock.h"

namespace weir {
namespace {

constexpr int64_t kChunksPerThread = 4;  // evens out uneven iterations

// A sleeping thread needs some 50 us until it runs; steps of small models take
// less.
constexpr Nanos kLookFor = 50'000;

// The pool whose thread this is, or null.
WorkerPool*& CurrentPool() { return ThreadOwn<WorkerPool, WorkerPool*>(); }

// Until `done` or the moment has passed.
template <typename Done>
void Spin(const Done& done) {
  const Nanos end = NowNanos() + kLookFor;
  for (int i = 0; !done(); ++i) {
    if (i % 64 == 63 && NowNanos() >= end) return;
    Relax();
  }
}

}  // namespace

// Lives on the stack of the thread that called Run; it waits for the helpers.
struct WorkerPool::WideLoop {
  WideLoop(int64_t n, int64_t chunk, size_t places,
           absl::FunctionRef<void(int64_t, int64_t)> fn)
      : n(n), chunk(chunk), fn(fn), places(places) {}

  const int64_t n;
  const int64_t chunk;
  const absl::FunctionRef<void(int64_t, int64_t)> fn;
  Atomic<int64_t> next{0};
  size_t places;              // for helpers; guarded by mu_
  Atomic<size_t> helpers{0};  // changes under mu_
  CondVar done;

  bool open() const { return next.load(std::memory_order_relaxed) < n; }
  void Work() {
    for (;;) {
      const int64_t begin = next.fetch_add(chunk, std::memory_order_relaxed);
      if (begin >= n) return;
      fn(begin, std::min(n, begin + chunk));
    }
  }
};

WorkerPool::WorkerPool(int size)
    : size_(static_cast<size_t>(std::max(1, size))) {
  MutexLock lock(&mu_);
  for (size_t i = 0; i < size_; ++i) {
    threads_.emplace_back("weir-cpu", [this] { Work(); });
  }
}

WorkerPool::~WorkerPool() {
  std::vector<Thread> threads;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    work_.NotifyAll();
    threads.swap(threads_);
  }
  for (Thread& thread : threads) thread.Join();
}

void WorkerPool::Schedule(Job* job, size_t level) {
  MutexLock lock(&mu_);
  ready_[std::min(level, kLevels - 1)].push_back(job);
  offers_.fetch_add(1, std::memory_order_relaxed);
  if (idle_ > 0 && running_ < size_) work_.NotifyOne();
}

WorkerPool::WideLoop* WorkerPool::OpenLoop() {
  for (WideLoop* loop : loops_) {
    if (loop->places > 0 && loop->open()) return loop;
  }
  return nullptr;
}

WorkerPool::Job* WorkerPool::NextJob() {
  for (std::deque<Job*>& level : ready_) {
    if (level.empty()) continue;
    Job* job = level.front();
    level.pop_front();
    return job;
  }
  return nullptr;
}

void WorkerPool::Look() {
  const uint64_t seen = offers_.load(std::memory_order_relaxed);
  ++looking_;
  mu_.Unlock();
  Spin([&] { return offers_.load(std::memory_order_relaxed) != seen; });
  mu_.Lock();
  --looking_;
}

void WorkerPool::Work() {
  CurrentPool() = this;
  bool helped = false;
  mu_.Lock();
  while (!stopping_) {
    if (running_ < size_) {
      // Loops first: their callers are waiting.
      if (WideLoop* loop = OpenLoop()) {
        --loop->places;
        ++loop->helpers;
        ++running_;
        mu_.Unlock();
        loop->Work();
        mu_.Lock();
        --running_;
        if (--loop->helpers == 0) loop->done.NotifyOne();
        helped = true;
        continue;
      }
      if (Job* job = NextJob()) {
        ++running_;
        mu_.Unlock();
        job->Run();
        mu_.Lock();
        --running_;
        helped = false;
        continue;
      }
    }
    if (helped) {
      helped = false;
      Look();
      continue;
    }
    ++idle_;
    work_.Wait(&mu_);
    --idle_;
  }
  mu_.Unlock();
}

void WorkerPool::WakeOrAdd() {
  offers_.fetch_add(1, std::memory_order_relaxed);
  if (idle_ > 0) {
    work_.NotifyOne();
  } else if (running_ + looking_ < size_ && !stopping_) {
    threads_.emplace_back("weir-cpu", [this] { Work(); });
  }
}

WorkerPool::BlockingScope::BlockingScope(WorkerPool* pool)
    : pool_(CurrentPool() == pool ? pool : nullptr) {
  if (pool_ == nullptr) return;
  MutexLock lock(&pool_->mu_);
  --pool_->running_;
  pool_->WakeOrAdd();
}

WorkerPool::BlockingScope::~BlockingScope() {
  if (pool_ == nullptr) return;
  // For a moment one more than `size` may run, until the next job ends.
  MutexLock lock(&pool_->mu_);
  ++pool_->running_;
}

void WorkerPool::Run(int64_t n, int64_t grain,
                     absl::FunctionRef<void(int64_t, int64_t)> fn) {
  if (n <= 0) return;
  grain = std::max<int64_t>(1, grain);
  const int64_t team = std::min<int64_t>(size(), n / grain);
  if (team <= 1) {
    fn(0, n);
    return;
  }
  const int64_t parts = team * kChunksPerThread;
  WideLoop loop(n, std::max(grain, (n + parts - 1) / parts),
                static_cast<size_t>(team - 1), fn);
  {
    MutexLock lock(&mu_);
    loops_.push_back(&loop);
    offers_.fetch_add(1, std::memory_order_relaxed);
    const size_t asleep = loop.places - std::min(loop.places, looking_);
    for (size_t i = std::min(asleep, idle_); i > 0; --i) work_.NotifyOne();
  }
  loop.Work();
  // The last pieces of the helpers end about now.
  Spin([&] { return loop.helpers.load(std::memory_order_relaxed) == 0; });
  MutexLock lock(&mu_);
  loops_.erase(std::find(loops_.begin(), loops_.end(), &loop));
  while (loop.helpers > 0) loop.done.Wait(&mu_);
}

}  // namespace weir
