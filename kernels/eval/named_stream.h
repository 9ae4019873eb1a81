// A stream that its owner has for longer than a work: a lane that was leased
// once, for works of any contexts of its engine, which run on it in the order
// of their places. Who takes a place is before all who take one later, and has
// to be launched, or to end without that, before they are; so a place may be
// taken long before its work is there. A stream has no error state: a work that
// fails says nothing of those behind it.
//
// Thread-safe. Ends with the last who holds it, works among them; the engine
// outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/device/point.h"
#include "kernels/device/stream_pool.h"
#include "kernels/eval/in_order_end.h"
#include "kernels/eval/lane_hold.h"

namespace weir {

class Engine;
class NamedStream;
class WorkQueue;

// The right to hand a work to a stream before all that have later places; ends
// with this. Moved from, it is none.
class WEIR_EXPORT StreamTurn {
 public:
  StreamTurn() = default;
  StreamTurn(StreamTurn&& other) noexcept
      : stream_(std::move(other.stream_)), number_(other.number_) {}
  StreamTurn& operator=(StreamTurn&& other) noexcept {
    std::swap(stream_, other.stream_);
    std::swap(number_, other.number_);
    return *this;
  }
  ~StreamTurn();

 private:
  friend class StreamPlace;
  StreamTurn(std::shared_ptr<NamedStream> stream, uint64_t number)
      : stream_(std::move(stream)), number_(number) {}

  std::shared_ptr<NamedStream> stream_;
  uint64_t number_ = 0;
};

// A place in the order of a stream, which it keeps. Moved from, it is none.
class WEIR_EXPORT StreamPlace {
 public:
  // What the stream was made to come after before the place was taken.
  using Joins = absl::InlinedVector<Point, 2>;

  StreamPlace() = default;
  StreamPlace(StreamPlace&& other) noexcept
      : stream_(std::move(other.stream_)),
        number_(other.number_),
        has_turn_(other.has_turn_),
        joins_(std::move(other.joins_)) {}
  StreamPlace& operator=(StreamPlace&& other) noexcept;
  ~StreamPlace() { End(); }

  explicit operator bool() const { return stream_ != nullptr; }
  NamedStream& stream() const { return *stream_; }
  uint64_t number() const { return number_; }
  const Joins& joins() const { return joins_; }

  // Reached when it is its turn to be launched; never fails.
  Point turn() const;
  bool is_due() const;

  // Whoever hands its work to the stream has the turn, and passes it on when
  // that is done, by when the work may be over, and the place with it.
  StreamTurn TakeTurn();
  // Its work is over, or there never will be one.
  void End();

 private:
  friend class NamedStream;
  StreamPlace(std::shared_ptr<NamedStream> stream, uint64_t number, Joins joins)
      : stream_(std::move(stream)), number_(number), joins_(std::move(joins)) {}

  std::shared_ptr<NamedStream> stream_;
  uint64_t number_ = 0;
  bool has_turn_ = true;
  Joins joins_;
};

struct NamedStreamOptions {
  // Works on the stream, or with a place there, that are not over.
  size_t max_in_flight = Stream::kMaxUnfinished;
  // Whether more are refused. Otherwise they are accepted, and launched when
  // there is room.
  bool refuses = false;

  friend bool operator==(const NamedStreamOptions&,
                         const NamedStreamOptions&) = default;
};

class WEIR_EXPORT NamedStream
    : public std::enable_shared_from_this<NamedStream> {
 public:
  // `lease` of a pool of the engine's. `beside` goes when the lane has been
  // given back.
  static std::shared_ptr<NamedStream> Create(
      Engine* engine, StreamLease lease, const NamedStreamOptions& options,
      std::shared_ptr<const void> beside = nullptr);
  NamedStream(const NamedStream&) = delete;
  NamedStream& operator=(const NamedStream&) = delete;

  Engine& engine() const { return *engine_; }
  const Stream& stream() const { return lane_->stream(); }
  const Lane& lane() const { return *lane_; }
  const StreamPool& pool() const { return pool_; }

  // The last place. RESOURCE_EXHAUSTED, reason STREAM_FULL, with a time to try
  // again, where the stream refuses more than it may have; `reserved`: for a
  // work that is not there yet, which no stream has more of than that.
  absl::StatusOr<StreamPlace> Take(bool reserved = false);

  // Reached when all that has a place by now is over; never fails. Null if
  // nobody has had one.
  Point Now() const;
  // Works that take their places from now on start after `point`, whatever
  // becomes of what is there.
  void ComeAfter(Point point);

  // -- Of a place that is due.

  LaneHold& lane_hold() { return lane_hold_; }
  // As LaneHold::Begin: if there is no room, `queue` is woken when there is.
  bool Begin(LaneClaim& claim, size_t launches,
             const std::shared_ptr<WorkQueue>& queue);
  // As LaneHold::End.
  void End(size_t launches, bool suspect);
  // What waits for it may wait for `at`, where its work is launched.
  void Back(const StreamPlace& place, const Point& at);

 private:
  friend class StreamPlace;
  friend class StreamTurn;

  NamedStream(Engine* engine, StreamLease lease,
              const NamedStreamOptions& options,
              std::shared_ptr<const void> beside);

  Engine* const engine_;
  const Lane* const lane_;
  const StreamPool& pool_;
  const NamedStreamOptions options_;
  const std::shared_ptr<const void> beside_;
  LaneHold lane_hold_;
  // Of the same places: those that are launched or over, and those that are
  // over.
  InOrderEnd passed_;
  InOrderEnd ended_;

  Mutex mu_;
  std::weak_ptr<WorkQueue> blocked_ WEIR_GUARDED_BY(mu_);  // for want of room
  StreamPlace::Joins joins_ WEIR_GUARDED_BY(mu_);  // that were not reached
};

}  // namespace weir
