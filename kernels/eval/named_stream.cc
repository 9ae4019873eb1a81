#include "kernels/eval/named_stream.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/error_info.h"
#include "kernels/base/holders.h"
#include "kernels/eval/engine.h"
#include "kernels/eval/work_queue.h"

namespace weir {
namespace {

constexpr absl::Duration kRetryFull = absl::Milliseconds(10);

// Reports name the stream.
std::shared_ptr<Timeline> OrderOf(const Stream& stream) {
  return std::make_shared<Timeline>(
      absl::StrCat("the order of stream ", stream.id()), /*device=*/nullptr,
      TimelineOwner{TimelineOwner::Kind::kStream, stream.id()});
}

bool IsReached(const Point& point) { return point.Outcome().has_value(); }

}  // namespace

// -- StreamPlace --------------------------------------------------------------

StreamPlace& StreamPlace::operator=(StreamPlace&& other) noexcept {
  if (this != &other) {
    End();
    stream_ = std::move(other.stream_);
    number_ = other.number_;
    has_turn_ = other.has_turn_;
    joins_ = std::move(other.joins_);
  }
  return *this;
}

Point StreamPlace::turn() const {
  return {stream_->passed_.timeline(), number_ - 1};
}

bool StreamPlace::is_due() const {
  return stream_->passed_.timeline()->value() == number_ - 1;
}

StreamTurn StreamPlace::TakeTurn() {
  has_turn_ = false;
  return StreamTurn(stream_, number_);
}

StreamTurn::~StreamTurn() {
  if (stream_ != nullptr) stream_->passed_.End(number_, absl::OkStatus());
}

void StreamPlace::End() {
  if (stream_ != nullptr && has_turn_) (void)TakeTurn();
  joins_.clear();
  // What runs when it is over may be the last that holds the stream, but for
  // this.
  if (const std::shared_ptr<NamedStream> stream = std::move(stream_)) {
    stream->ended_.End(number_, absl::OkStatus());
  }
}

// -- NamedStream --------------------------------------------------------------

std::shared_ptr<NamedStream> NamedStream::Create(
    Engine* engine, StreamLease lease, const NamedStreamOptions& options,
    std::shared_ptr<const void> beside) {
  return std::shared_ptr<NamedStream>(
      new NamedStream(engine, std::move(lease), options, std::move(beside)));
}

NamedStream::NamedStream(Engine* engine, StreamLease lease,
                         const NamedStreamOptions& options,
                         std::shared_ptr<const void> beside)
    : engine_(engine),
      lane_(lease.lane()),
      pool_(lease.pool()),
      options_(options),
      beside_(std::move(beside)),
      lane_hold_(
          engine->max_lane_launches(),
          std::min<size_t>(options.max_in_flight, Stream::kMaxUnfinished)),
      passed_(OrderOf(lane_->stream())),
      ended_(OrderOf(lane_->stream())) {
  lane_hold_.Keep(std::move(lease));
}

absl::StatusOr<StreamPlace> NamedStream::Take(bool reserved) {
  const size_t limit =
      options_.refuses || reserved ? options_.max_in_flight : SIZE_MAX;
  MutexLock lock(&mu_);
  const uint64_t number = ended_.Take(1, limit);
  if (number == 0) {
    return WithRetryAfter(
        WithReason(absl::ResourceExhaustedError(absl::StrCat(
                       "the stream has ", ended_.unfinished(), " of at most ",
                       options_.max_in_flight,
                       " works that are not done; wait for some of them")),
                   "STREAM_FULL"),
        kRetryFull);
  }
  passed_.Take(1, SIZE_MAX);
  joins_.erase(std::remove_if(joins_.begin(), joins_.end(), IsReached),
               joins_.end());
  return StreamPlace(shared_from_this(), number, joins_);
}

Point NamedStream::Now() const {
  const uint64_t last = ended_.last();
  if (last == 0) return {};
  return {ended_.timeline(), last};
}

void NamedStream::ComeAfter(Point point) {
  if (point.is_null() || IsReached(point)) return;
  MutexLock lock(&mu_);
  for (Point& join : joins_) {
    if (join.timeline != point.timeline) continue;
    join.value = std::max(join.value, point.value);
    return;
  }
  joins_.erase(std::remove_if(joins_.begin(), joins_.end(), IsReached),
               joins_.end());
  joins_.push_back(std::move(point));
}

bool NamedStream::Begin(LaneClaim& claim, size_t launches,
                        const std::shared_ptr<WorkQueue>& queue) {
  if (lane_hold_.Begin(claim, launches)) return true;
  {
    MutexLock lock(&mu_);
    blocked_ = queue;
  }
  // There may have been room before that was known.
  return lane_hold_.Begin(claim, launches);
}

void NamedStream::End(size_t launches, bool suspect) {
  if (!lane_hold_.End(launches, suspect)) return;
  std::weak_ptr<WorkQueue> blocked;
  {
    MutexLock lock(&mu_);
    blocked.swap(blocked_);
  }
  if (const auto queue = HoldIfThere(blocked)) queue->Wake();
}

void NamedStream::Back(const StreamPlace& place, const Point& at) {
  ended_.timeline()->Back(place.number(), at);
}

}  // namespace weir
