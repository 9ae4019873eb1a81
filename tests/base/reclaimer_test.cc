#include "kernels/base/reclaimer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "kernels/base/stop_token.h"
#include "tests/base/event.h"

namespace weir {
namespace {

// Where and how many ended. As what they wait for, it is there before the
// reclaimer, which ends what is left as it goes.
struct Ends {
  std::atomic<int> count{0};
  std::atomic<std::thread::id> thread;
};

class Object {
 public:
  explicit Object(Ends* ends, std::shared_ptr<const Object> part = nullptr,
                  Event* wait_for = nullptr)
      : ends_(ends), part_(std::move(part)), wait_for_(wait_for) {}
  ~Object() {
    if (wait_for_ != nullptr) wait_for_->Wait();
    part_ = nullptr;
    ends_->thread = std::this_thread::get_id();
    ++ends_->count;
  }

 private:
  Ends* const ends_;
  std::shared_ptr<const Object> part_;
  Event* const wait_for_;
};

template <typename... Args>
std::shared_ptr<const Object> Make(const std::shared_ptr<ReclaimQueue>& queue,
                                   Args... args) {
  return ReclaimQueue::Share(std::make_unique<const Object>(args...), queue);
}

TEST(ReclaimerTest, TheLastHolderNeverWaits) {
  Event open;
  Ends ends;
  Reclaimer reclaimer;
  auto object = Make(reclaimer.queue(), &ends, nullptr, &open);
  auto other = object;
  object = nullptr;
  other = nullptr;  // its end waits
  EXPECT_EQ(ends.count, 0);
  open.Set();
  reclaimer.queue()->Flush();
  EXPECT_EQ(ends.count, 1);
  EXPECT_NE(ends.thread.load(), std::this_thread::get_id());
}

// So that who waits for the whole has waited for its parts.
TEST(ReclaimerTest, PartsEndWithTheWhole) {
  Ends parts, wholes;
  Event open;
  Reclaimer reclaimer;
  Make(reclaimer.queue(), &wholes,
       Make(reclaimer.queue(), &parts, nullptr, &open));
  open.Set();
  reclaimer.queue()->Flush();
  EXPECT_EQ(parts.count, 1);
  EXPECT_EQ(wholes.count, 1);
  EXPECT_EQ(parts.thread.load(), wholes.thread.load());
}

TEST(ReclaimerTest, EndsEverythingBeforeItStops) {
  Ends ends;
  {
    Reclaimer reclaimer;
    for (int i = 0; i < 100; ++i) Make(reclaimer.queue(), &ends);
  }
  EXPECT_EQ(ends.count, 100);
}

TEST(ReclaimerTest, ObjectsMayOutliveIt) {
  Ends ends;
  std::optional<Reclaimer> reclaimer(std::in_place);
  auto object = Make(reclaimer->queue(), &ends);
  reclaimer.reset();
  EXPECT_EQ(ends.count, 0);
  object = nullptr;
  EXPECT_EQ(ends.count, 1);
  EXPECT_EQ(ends.thread.load(), std::this_thread::get_id());
  Make(nullptr, &ends);
  EXPECT_EQ(ends.count, 2);
}

TEST(ReclaimerTest, MakersWaitForRoom) {
  Event open;
  Ends ends;
  Reclaimer reclaimer;
  Make(reclaimer.queue(), &ends, nullptr, &open);
  for (size_t i = 0; i <= 2 * ReclaimQueue::kMaxWaiting; ++i) {
    Make(reclaimer.queue(), &ends);
  }
  std::atomic<int> ended{0};
  std::thread maker([&] {
    reclaimer.queue()->AwaitRoom();
    ended = ends.count.load();
  });
  open.Set();
  maker.join();
  EXPECT_GE(ended, static_cast<int>(ReclaimQueue::kMaxWaiting));
}

// Whatever the reclaimer waits for itself.
TEST(ReclaimerTest, WaitsEndOnceStopIsRequested) {
  Event open;
  Ends ends;
  Reclaimer reclaimer;
  Make(reclaimer.queue(), &ends, nullptr, &open);
  for (size_t i = 0; i <= ReclaimQueue::kMaxWaiting; ++i) {
    Make(reclaimer.queue(), &ends);
  }
  StopSource stop;
  std::thread flush(
      [&] { EXPECT_FALSE(reclaimer.queue()->Flush(stop.get_token())); });
  std::thread maker(
      [&] { EXPECT_FALSE(reclaimer.queue()->AwaitRoom(stop.get_token())); });
  stop.request_stop();
  flush.join();
  maker.join();
  EXPECT_EQ(ends.count, 0);
  open.Set();
  EXPECT_TRUE(reclaimer.queue()->Flush());
  // There is nothing left to wait for.
  EXPECT_TRUE(reclaimer.queue()->Flush(stop.get_token()));
  EXPECT_TRUE(reclaimer.queue()->AwaitRoom(stop.get_token()));
}

TEST(ReclaimerTest, RunsWhatIsPostedInItsTurn) {
  Ends ends;
  std::shared_ptr<ReclaimQueue> queue;
  {
    Event open;
    Reclaimer reclaimer;
    queue = reclaimer.queue();
    Make(queue, &ends, nullptr, &open);
    int ended = 0;
    std::thread::id thread;
    queue->Post([&] {
      ended = ends.count;
      thread = std::this_thread::get_id();
    });
    open.Set();
    queue->Flush();
    EXPECT_EQ(ended, 1);
    EXPECT_EQ(thread, ends.thread.load());
  }
  bool ran = false;
  queue->Post([&] { ran = true; });
  EXPECT_TRUE(ran);
}

TEST(ReclaimerTest, ManyThreadsDrop) {
  Ends ends;
  {
    Reclaimer reclaimer;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 1000; ++i) Make(reclaimer.queue(), &ends);
        reclaimer.queue()->Flush();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(ends.count, 4000);
}

}  // namespace
}  // namespace weir
