#include "server/rpc/unary_call.h"

#include <grpc/support/time.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <memory_resource>
#include <utility>
#include <vector>

#include "server/rpc/raw_service.h"
#include "server/rpc/status_mapping.h"

namespace weir {
namespace {

// Deadlines further away than this are none: gRPC's "infinite" and what would
// overflow.
constexpr int64_t kFarSeconds = int64_t{1} << 32;

Nanos ToNanos(gpr_timespec deadline, Nanos now) {
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) {
    return kNoDeadline;
  }
  const gpr_timespec left =
      gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  if (left.tv_sec > kFarSeconds) return kNoDeadline;
  if (left.tv_sec < -kFarSeconds) return 0;
  return now + left.tv_sec * 1'000'000'000 + left.tv_nsec;
}

}  // namespace

UnaryCall::UnaryCall(IoThread* io) : io_(io) {
  arrived_event_ = {
      [](void* self, bool ok) { static_cast<UnaryCall*>(self)->OnArrived(ok); },
      this};
  done_event_ = {
      [](void* self, bool) { static_cast<UnaryCall*>(self)->OnDone(); }, this};
  finished_event_ = {
      [](void* self, bool) { static_cast<UnaryCall*>(self)->OnFinished(); },
      this};
  resume_.call = this;
  resume_.run = [](InboxNode* node) {
    static_cast<ResumeNode*>(node)->call->OnResume();
  };
}

void UnaryCall::Request(RawService* service, int index) {
  service_ = service;
  index_ = index;
  ++io_->owed_;
  exchange_.emplace();
  exchange_->context.AsyncNotifyWhenDone(&done_event_);
  service->RequestCall(index, &exchange_->context, &exchange_->request,
                       &exchange_->writer, io_->queue_.get(), &arrived_event_);
}

void UnaryCall::OnArrived(bool ok) {
  if (!ok) {  // The server shuts down; no other event follows.
    --io_->owed_;
    io_->Recycle(this);
    return;
  }
  received_ = NowNanos();
  io_->RequestCall(service_, index_);
  io_->taken_calls_.store(io_->taken_calls() + 1, std::memory_order_relaxed);
  io_->open_calls_.fetch_add(1, std::memory_order_relaxed);
  deadline_ = ToNanos(exchange_->context.raw_deadline(), received_);
  const Entry entry(this);
  ViewRequest();
  method().handler(*this);
}

void UnaryCall::OnDone() {
  const Entry entry(this);
  --io_->owed_;
  done_ = true;
  if (!answered_ && exchange_->context.IsCancelled()) SetCancelled();
}

void UnaryCall::OnFinished() {
  const Entry entry(this);
  finished_ = true;
}

void UnaryCall::OnResume() {
  const Entry entry(this);
  resume_.fn(*this, resume_.arg);
}

void UnaryCall::Leave() {
  if (--depth_ == 0 && finished_ && done_) io_->Recycle(this);
}

void UnaryCall::Clear() {
  answered_ = finished_ = done_ = false;
  deadline_ = kNoDeadline;
  on_cancel_ = nullptr;
  cancelled_.store(false, std::memory_order_relaxed);
  request_ = ByteView();
  request_id_ = {};
  exchange_.reset();
  arena_.Reset();
}

void UnaryCall::ViewRequest() {
  std::pmr::vector<BytePiece> pieces(&arena_);
  size_t total = 0;
  grpc::ProtoBufferReader reader(&exchange_->request);
  const void* data = nullptr;
  int size = 0;
  while (reader.Next(&data, &size)) {
    if (size == 0) continue;
    pieces.push_back(
        {static_cast<const std::byte*>(data), static_cast<size_t>(size)});
    total += static_cast<size_t>(size);
  }
  // The vector's memory is the arena's and outlives the vector.
  request_ = ByteView({pieces.data(), pieces.size()}, total);
}

void UnaryCall::Resume(ResumeFn fn, void* arg) {
  resume_.fn = fn;
  resume_.arg = arg;
  io_->Post(&resume_);
}

std::string UnaryCall::Peer() const { return exchange_->context.peer(); }

std::optional<std::string_view> UnaryCall::Header(std::string_view name) const {
  const auto& headers = exchange_->context.client_metadata();
  const auto found = headers.find(grpc::string_ref(name.data(), name.size()));
  if (found == headers.end()) return std::nullopt;
  return std::string_view(found->second.data(), found->second.size());
}

const Method& UnaryCall::method() const {
  return service_->methods()[static_cast<size_t>(index_)];
}

bool UnaryCall::BeginAnswer(const absl::Status& status) {
  if (CallObserver* observer = service_->observer()) {
    observer->OnAnswered(*this, method(), status);
  }
  answered_ = true;
  on_cancel_ = nullptr;
  io_->open_calls_.fetch_sub(1, std::memory_order_relaxed);
  if (!done_) return true;
  finished_ = true;
  return false;
}

void UnaryCall::Reply(ReplyBuffer reply) {
  const Entry entry(this);
  if (!BeginAnswer(absl::OkStatus())) return;
  // grpc::Slice has the representation of grpc_slice; gRPC asserts it.
  const grpc::ByteBuffer buffer(
      reinterpret_cast<const grpc::Slice*>(reply.slices()),
      reply.slice_count());
  exchange_->writer.Finish(buffer, grpc::Status::OK, &finished_event_);
}

void UnaryCall::Fail(const absl::Status& error) {
  const Entry entry(this);
  if (!BeginAnswer(error)) return;
  exchange_->writer.FinishWithError(ToGrpcStatus(error), &finished_event_);
}

}  // namespace weir
