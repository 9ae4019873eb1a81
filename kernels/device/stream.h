// A stream: an in-order queue of device work, and a timeline. It has no error
// state of its own: an error belongs to a work (its point fails, the stream
// goes on) or to the device (poisoned; the process ends).
//
// One owner at a time calls Enqueue (see StreamPool); the getters are
// thread-safe. The copies and waits are called only inside StreamTask::Launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/atomic.h"
#include "kernels/base/clock.h"
#include "kernels/base/export.h"
#include "kernels/device/point.h"

namespace weir {

class Device;
class Stream;

// What a kernel may find wrong in the data it was given. The same code gives
// the same status on every device.
enum class FaultCode : uint32_t {
  kNone = 0,
  kIndexOutOfRange = 1,  // INVALID_ARGUMENT
  kDivisionByZero = 2,   // INVALID_ARGUMENT (integers)
  kCorruptData = 3,      // INVALID_ARGUMENT, for example a truncated picture
  kInjected = 4,         // INTERNAL, weir.Fault
};

// The status of a work whose kernel reported `code` (no node name yet).
WEIR_EXPORT absl::Status FaultStatus(FaultCode code);

// Where a kernel that runs on the device reports the first fault of its work.
// Lives in device memory; the stream resets it before each work.
struct FaultSlot {
  uint64_t word;  // 0, or (node + 1) << 32 | FaultCode; first writer wins
};

struct Completion {
  absl::Status status;    // of this work alone
  absl::Status outcome;   // what StreamTask::Settle made of it
  uint64_t sequence = 0;  // the value on the stream's timeline
  uint32_t fault_node = 0;
  FaultCode fault = FaultCode::kNone;  // set if a kernel reported one
  Nanos enqueued_at = 0;
  Nanos launched_at = 0;
  // Or the work before it on the stream completed. Of a work whose launch
  // waited for the device (Stream::Await), when its launch began.
  Nanos started_at = 0;
  Nanos completed_at = 0;  // when the completion was seen
  // Of the time in between, its part of the device: half of what two streams
  // shared.
  Nanos device_time = 0;
  // The device was lost while this work, not one before it on the stream, was
  // running: it may be what lost it.
  bool suspect = false;
};

// One work on one stream. The owner keeps the object alive until Complete has
// returned; nobody touches it after that. It may then be used again.
class WEIR_EXPORT StreamTask {
 public:
  virtual ~StreamTask() = default;

  // Issues the work. On CUDA it runs inside Enqueue, in the caller's thread,
  // and returns when everything is in the native queue; on the CPU it runs on
  // the stream's strand and returns when the work is done. A failed Launch
  // fails the work alone.
  virtual absl::Status Launch(Stream& stream) = 0;

  // The outcome of the task's point: the error of something it depends on, at
  // any distance, else its own, if there is one. It is settled before the
  // stream's timeline reaches the sequence, where Complete runs later; of
  // `completion` there are the status and the fault by then. Empty while a work
  // that it waited for on the device, though done, is not settled itself: it is
  // asked again. Never empty if the status is an error that is no kernel's
  // fault.
  virtual std::optional<absl::Status> Settle(const Completion& completion) {
    return completion.status;
  }

  // Exactly once, after the stream's timeline has reached the sequence. Runs on
  // the device's completion thread (CUDA), on a worker, or inside Enqueue. It
  // must be short: it posts what is to be done. The lease of the stream may be
  // dropped here.
  virtual void Complete(const Completion& completion) = 0;

  // What it is, in a few words, for the log: asked of a work in flight when the
  // device is lost.
  virtual std::string Describe() const { return "a work"; }

 private:
  friend class StreamTaskQueue;
  StreamTask* next_ = nullptr;

 public:
  // How long it runs at most, from its start to its end and in time of the
  // device, going by what is known of it. Set before Enqueue; 0: no time worth
  // mentioning.
  Nanos expected = 0;
  Nanos expected_device_time = 0;
  // Filled by the stream between Enqueue and Complete.
  Completion completion;
};

// What holds a launch up that waits, as a look tells.
enum class Awaited : uint8_t {
  kNothing,  // it waits no more
  kDevice,   // work that was issued, on whichever stream
  kHost,     // other threads
};

class WEIR_EXPORT Stream {
 public:
  virtual ~Stream() = default;  // REQUIRES: idle(), or the device is poisoned
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  virtual Device& device() const = 0;
  // cudaStreamGetId on CUDA; unique in the process and never reused.
  virtual uint64_t id() const = 0;
  virtual int priority() const = 0;
  // The backend's own handle: cudaStream_t on CUDA, null on the CPU.
  virtual void* native_handle() const { return nullptr; }
  const std::shared_ptr<Timeline>& timeline() const { return timeline_; }

  // Sequence of the last work enqueued; 0 before the first.
  uint64_t last_sequence() const {
    return last_sequence_.load(std::memory_order_acquire);
  }
  bool idle() const { return timeline_->value() == last_sequence(); }

  enum class Inline { kNever, kIfIdle };

  // More unfinished works are refused: they complete in their turn with
  // RESOURCE_EXHAUSTED, reason STREAM_FULL, and are not launched.
  static constexpr uint64_t kMaxUnfinished = 64;

  // Takes the next sequence number and runs `task` in order. On the CPU,
  // kIfIdle runs it in the calling thread if the strand is empty, Complete
  // included; a caller that must not wait has seen to it that every point the
  // task waits for is reached. On a poisoned device the task completes at once
  // with the root cause. Else never blocks on device work.
  virtual uint64_t Enqueue(StreamTask* task, Inline inline_run) = 0;
  uint64_t Enqueue(StreamTask* task) { return Enqueue(task, Inline::kNever); }

  // Whether a stream that came to rest after a failed work is fit for another
  // owner.
  virtual absl::Status Check();

  // -- Only inside Launch, on the launching thread. None but WaitForRoom and
  // Await synchronizes; host memory must be pinned (AllocatePinned) and stay
  // until completion.
  virtual absl::Status CopyToDevice(void* dst, const void* src,
                                    size_t bytes) = 0;
  virtual absl::Status CopyToHost(void* dst, const void* src, size_t bytes) = 0;
  virtual absl::Status CopyOnDevice(void* dst, const void* src,
                                    size_t bytes) = 0;
  virtual absl::Status Fill(void* dst, uint8_t value, size_t bytes) = 0;
  // Later work of this stream runs after `point`, which must be reached, or
  // launched on the same device (else FAILED_PRECONDITION).
  virtual absl::Status WaitOnDevice(const Point& point) = 0;
  // Whether a launch that waits is to go on: an error ends it. Asked again and
  // again, every few milliseconds at least.
  using GoOn = absl::FunctionRef<absl::Status()>;
  using Look = absl::FunctionRef<absl::StatusOr<Awaited>()>;
  // Waits until what was issued before the call before this one is done, so
  // that a work of any number of launches never fills the native queue: no more
  // is in it than was issued between two calls, twice. On a thread that may
  // wait.
  virtual absl::Status WaitForRoom(GoOn) { return absl::OkStatus(); }
  // Waits, on a thread that may, until `look` says kNothing, which OK means. An
  // error of `look` or `go_on`, or the loss of the device, ends it before.
  // While it is kDevice that is waited for, the work counts among those that
  // run: if nothing completes meanwhile the device is asked, and stalls.
  absl::Status Await(Look look, GoOn go_on);
  // Device address of the current work's fault slot. A CPU kernel returns
  // FaultStatus from its Run instead.
  virtual FaultSlot* fault_slot() = 0;

 protected:
  explicit Stream(std::shared_ptr<Timeline> timeline)
      : timeline_(std::move(timeline)) {}

  // Whether Await is held up by the device, each time that it changes; false at
  // its end.
  virtual void SetAwaitsDevice(bool) {}

  const std::shared_ptr<Timeline> timeline_;
  Atomic<uint64_t> last_sequence_{0};
};

// Intrusive first-in-first-out list of tasks; not thread-safe.
class StreamTaskQueue {
 public:
  bool empty() const { return head_ == nullptr; }
  void Push(StreamTask* task) {
    task->next_ = nullptr;
    (tail_ == nullptr ? head_ : tail_->next_) = task;
    tail_ = task;
  }
  StreamTask* Pop() {
    StreamTask* task = head_;
    if (task != nullptr && (head_ = task->next_) == nullptr) tail_ = nullptr;
    return task;
  }
  StreamTask* front() const { return head_; }

 private:
  StreamTask* head_ = nullptr;
  StreamTask* tail_ = nullptr;
};

}  // namespace weir
