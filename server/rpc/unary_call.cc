#include "server/rpc/unary_call.h"

#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "server/rpc/frame_guard.h"
#include "server/rpc/peer.h"
#include "server/rpc/raw_service.h"
#include "server/rpc/socket_cork.h"
#include "server/rpc/status_mapping.h"

namespace weir {
namespace {

// Deadlines further away than this are none: gRPC's "infinite" and what would
// overflow.
constexpr int64_t kFarSeconds = int64_t{1} << 32;

// Up to here a reply goes to the socket at once, its status with it. Of a
// larger one gRPC would say the same if the connection broke while it was
// written: its status follows when it was, and tells.
constexpr size_t kSmallReplyBytes = size_t{256} << 10;

// Of a path that nobody registered, in the error that names it.
constexpr size_t kMaxPathBytes = 128;

constexpr char kStatusDetails[] = "grpc-status-details-bin";

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

std::string_view View(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)),
          GRPC_SLICE_LENGTH(slice)};
}

grpc_slice StaticSlice(std::string_view text) {
  return grpc_slice_from_static_buffer(text.data(), text.size());
}

absl::Status UploadTimeout(Nanos timeout) {
  return WithReason(absl::DeadlineExceededError(absl::StrCat(
                        "the message was not whole ",
                        absl::FormatDuration(absl::Nanoseconds(timeout)),
                        " after the call began (--receive-timeout)")),
                    "RECEIVE_TIMEOUT");
}

absl::Status UploadLate() {
  return absl::DeadlineExceededError(
      "the deadline passed before the message was whole");
}

absl::Status UploadDisplaced() {
  return WithRetryAfter(
      WithReason(absl::ResourceExhaustedError(
                     "too many calls wait for the rest of their messages; this "
                     "peer has most of them, and this one has waited longest"),
                 "TOO_MANY_UPLOADS"),
      absl::Milliseconds(100));
}

absl::Status HeadersTooLarge(size_t bytes, size_t limit) {
  return WithReason(
      absl::ResourceExhaustedError(
          absl::StrCat("the headers have ", bytes, " bytes; they may have ",
                       limit, ", 32 for each header among them")),
      "HEADERS_TOO_LARGE",
      {{"bytes", absl::StrCat(bytes)}, {"limit", absl::StrCat(limit)}});
}

absl::Status UnknownMethod(std::string_view path) {
  const bool fits = path.size() <= kMaxPathBytes;
  return absl::UnimplementedError(absl::StrCat(
      "the server has no method \"",
      absl::CHexEscape(AbslView(path.substr(0, kMaxPathBytes))), "\"",
      fits ? "" : absl::StrCat(", the beginning of ", path.size(), " bytes")));
}

absl::Status TooManyCalls(size_t limit) {
  return WithRetryAfter(
      WithReason(
          absl::ResourceExhaustedError(absl::StrCat(
              "the connection has more than ", limit,
              " calls open, against the server's HTTP/2 settings: wait for "
              "some to end, or open another connection")),
          "TOO_MANY_CALLS", {{"limit", absl::StrCat(limit)}}),
      absl::Milliseconds(100));
}

}  // namespace

UnaryCall::UnaryCall(IoThread* io)
    : io_(io),
      arrived_event_(
          [](void* self, bool ok) {
            static_cast<UnaryCall*>(self)->OnArrived(ok);
          },
          this),
      message_event_(
          [](void* self, bool ok) {
            static_cast<UnaryCall*>(self)->OnMessage(ok);
          },
          this),
      written_event_(
          [](void* self, bool ok) {
            static_cast<UnaryCall*>(self)->OnWritten(ok);
          },
          this),
      finished_event_(
          [](void* self, bool ok) {
            static_cast<UnaryCall*>(self)->OnFinished(ok);
          },
          this),
      closed_event_(
          [](void* self, bool) { static_cast<UnaryCall*>(self)->OnClosed(); },
          this) {
  grpc_metadata_array_init(&headers_);
  reply_.type = GRPC_BB_RAW;
  reply_.data.raw.compression = GRPC_COMPRESS_NONE;
  grpc_slice_buffer_init(&reply_.data.raw.slice_buffer);
  details_ = grpc_empty_slice();
  max_reply_bytes_ = io->policy_.max_message_bytes;
  resume_.call = inflate_.call = deferred_.call = this;
  resume_.run = [](InboxNode* node) {
    static_cast<Node*>(node)->call->OnResume();
  };
  inflate_.run = [](InboxNode* node) {
    static_cast<Node*>(node)->call->OnInflateTurn();
  };
  deferred_.run = [](InboxNode* node) {
    static_cast<Node*>(node)->call->OnDeferred();
  };
}

UnaryCall::~UnaryCall() {
  grpc_slice_buffer_destroy(&reply_.data.raw.slice_buffer);
  grpc_metadata_array_destroy(&headers_);
}

bool UnaryCall::Request(RawService* service, int index) {
  service_ = service;
  index_ = index;
  headers_.count = 0;
  owed_ = true;
  ++io_->owed_;
  grpc_completion_queue* const queue = io_->queue_->cq();
  void* const handle = service->handle(index);
  const grpc_call_error error =
      handle != nullptr
          ? grpc_server_request_registered_call(
                io_->server_, handle, &call_, &raw_deadline_, &headers_,
                nullptr, queue, queue, &arrived_event_)
          : grpc_server_request_call(io_->server_, &call_, &wanted_, &headers_,
                                     queue, queue, &arrived_event_);
  if (error == GRPC_CALL_OK) return true;
  Over();
  return false;
}

void UnaryCall::Clear() {
  if (call_ != nullptr) grpc_call_unref(std::exchange(call_, nullptr));
  grpc_slice_unref(details_);
  details_ = grpc_empty_slice();
  answer_ = absl::OkStatus();
  watched_ = closed_ = answered_ = sent_ = cut_ = begun_ = writes_ = false;
  opened_ = false;
  cancelled_ = 0;
  reply_bytes_ = 0;
  deadline_ = kNoDeadline;
  answered_at_ = 0;
  inflated_ = whole_ = false;
  request_id_size_ = label_size_ = 0;
  ForgetIdentity();
  gone_.store(false, std::memory_order_relaxed);
}

// -- The request --------------------------------------------------------------

void UnaryCall::OnArrived(bool ok) {
  if (!ok) {  // The server shuts down; no other event follows.
    call_ = nullptr;
    Over();
    io_->Recycle(this);
    return;
  }
  const Entry entry(this);
  received_ = io_->policy_.now();
  io_->RequestCall(service_, index_);
  io_->taken_calls_.store(io_->taken_calls() + 1, std::memory_order_relaxed);
  io_->open_calls_.fetch_add(1, std::memory_order_relaxed);
  open_ = true;
  Recognize();
  absl::Status may = CheckCaller();
  if (may.ok()) may = CheckMethod();
  if (unknown()) raw_deadline_ = ForgetWanted();
  deadline_ = ToNanos(raw_deadline_, received_);
  if (!may.ok()) return Fail(may);
  if (Admission* admission = this->admission()) {
    // What is refused now was never read.
    absl::Status expected = admission->Expect(kind(), deadline_, received_);
    if (!expected.ok()) return Fail(expected);
  }
  if (method().reads != nullptr) return BeginStream();
  ReadMessage();
}

void UnaryCall::Recognize() {
  char* const peer = grpc_call_get_peer(call_);
  connection_ = peer;
  gpr_free(peer);
  peer_ = PeerKey(connection_);
  if (peer_.empty()) peer_ = kUnixPeer;
  io_->calls_of_.Add(connection_);
}

std::string UnaryCall::FindIdentity() const {
  const std::unique_ptr<grpc_auth_context, decltype(&grpc_auth_context_release)>
      caller(grpc_call_auth_context(call_), grpc_auth_context_release);
  if (caller == nullptr) return "";
  grpc_auth_property_iterator subjects =
      grpc_auth_context_find_properties_by_name(
          caller.get(), GRPC_X509_SUBJECT_PROPERTY_NAME);
  const grpc_auth_property* subject =
      grpc_auth_property_iterator_next(&subjects);
  if (subject != nullptr && subject->value_length > 0) {
    return std::string(subject->value, subject->value_length);
  }
  grpc_auth_property_iterator names =
      grpc_auth_context_peer_identity(caller.get());
  const grpc_auth_property* name = grpc_auth_property_iterator_next(&names);
  if (name == nullptr || name->value_length == 0) return "";
  return absl::StrCat("SAN=",
                      absl::string_view(name->value, name->value_length));
}

// HTTP/2's settings bind those who have read them; these bounds, everybody.
absl::Status UnaryCall::CheckCaller() const {
  constexpr size_t kHeaderBytes = 32;
  size_t bytes = 0;
  if (unknown()) bytes += View(wanted_.method).size() + kHeaderBytes;
  for (size_t i = 0; i < headers_.count; ++i) {
    const grpc_metadata& header = headers_.metadata[i];
    bytes += GRPC_SLICE_LENGTH(header.key) + GRPC_SLICE_LENGTH(header.value) +
             kHeaderBytes;
  }
  const size_t max_bytes = io_->policy_.max_header_bytes;
  if (bytes > max_bytes) return HeadersTooLarge(bytes, max_bytes);
  // The clients of a unix socket have one name.
  const size_t limit = io_->policy_.max_connection_calls;
  if (peer_ != kUnixPeer && io_->calls_of_.Of(connection_) > limit) {
    return TooManyCalls(limit);
  }
  return absl::OkStatus();
}

absl::Status UnaryCall::CheckMethod() const {
  return unknown() ? UnknownMethod(View(wanted_.method)) : method().refusal;
}

// Returns the deadline that came with it.
gpr_timespec UnaryCall::ForgetWanted() {
  const gpr_timespec deadline = wanted_.deadline;
  grpc_call_details_destroy(&wanted_);
  grpc_call_details_init(&wanted_);
  return deadline;
}

void UnaryCall::BeginUpload() {
  uploads_ = true;
  io_->receiving_.Enter(this, received_);
  io_->uploads_of_.Add(peer_);
}

void UnaryCall::EndUpload() {
  if (!std::exchange(uploads_, false)) return;
  CallList::Leave(this);
  io_->uploads_of_.Remove(peer_);
}

// The oldest upload of those who have most.
UnaryCall* UnaryCall::ToDisplace(const IoThread& io) {
  const size_t most = io.uploads_of_.Most();
  CallLink* link = io.receiving_.oldest();
  for (;; link = link->after()) {
    auto* const call = static_cast<UnaryCall*>(link);
    if (io.uploads_of_.Of(call->peer_) == most) return call;
  }
}

bool UnaryCall::MayAwait() {
  if (io_->receiving_.size() <= io_->policy_.max_receiving) return true;
  UnaryCall* const displaced = ToDisplace(*io_);
  io_->counts_.uploads_displaced.fetch_add(1, std::memory_order_relaxed);
  displaced->CutUpload(UploadDisplaced());
  return displaced != this;
}

void UnaryCall::CutUpload(const absl::Status& error) {
  if (method().reads == nullptr) return Fail(error);
  const Entry entry(this);
  EndUpload();
  Deliver(error);
}

void UnaryCall::ReadMessage() {
  BeginUpload();
  if (MayAwait()) AwaitMessage();
}

void UnaryCall::AwaitMessage() {
  grpc_op read = {};
  read.op = GRPC_OP_RECV_MESSAGE;
  read.data.recv_message.recv_message = message_.Await();
  Start(&read, 1, &message_event_);
}

void UnaryCall::OnMessage(bool ok) {
  const Entry entry(this);
  --events_;
  message_.Arrived();
  EndUpload();
  if (answered_) return;  // it was cut
  if (method().reads != nullptr) return OnStreamMessage();
  if (!ok || (message_.get() == nullptr &&
              grpc_call_failed_before_recv_message(call_))) {
    // There is nobody to answer.
    closed_ = true;
    Over();
    return Fail(io_->policy_.now() < deadline_
                    ? absl::CancelledError(
                          "the caller left before its message was whole")
                    : UploadLate());
  }
  received_ = io_->policy_.now();
  whole_ = true;
  if (absl::Status status = TakeMessage(); !status.ok()) return Fail(status);
  if (inflater_ != nullptr) {
    WatchForClose();
    return Inflate();
  }
  RunHandler();
}

absl::Status UnaryCall::TakeMessage() {
  if (message_.get() == nullptr) {
    return absl::InvalidArgumentError(
        "the call has no message, or not all of one: one that comes in too "
        "many pieces ends before it is whole (send larger HTTP/2 frames)");
  }
  const auto& received = message_.get()->data.raw;
  const size_t size = received.slice_buffer.length;
  const size_t limit = max_message_bytes();
  WEIR_RETURN_IF_ERROR(CheckMessageSize(size, limit, message_bound()));
  if (Admission* admission = this->admission()) {
    WEIR_ASSIGN_OR_RETURN(
        ticket_,
        admission->Admit(size + kCallBytes, deadline_, received_, kind()));
    WEIR_RETURN_IF_ERROR(
        ticket_.Charge(received.slice_buffer.count * kSliceBytes));
  }
  if (received.compression == GRPC_COMPRESS_NONE) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(
      inflater_,
      MessageInflater::Create(received.compression, &received.slice_buffer,
                              limit, message_bound()));
  return absl::OkStatus();
}

// It is not over before its turn has come.
void UnaryCall::GoOnInflating() {
  ++events_;
  io_->AwaitTurn(&inflate_);
}

void UnaryCall::OnInflateTurn() {
  const Entry entry(this);
  --events_;
  if (answered_) return;  // a stream's
  if (stream_message_ != nullptr) return InflateStreamMessage();
  Inflate();
}

// One step; then others have their turn.
void UnaryCall::Inflate() {
  absl::Status wanted = StillWanted(io_->policy_.now());
  if (!wanted.ok()) return Fail(wanted);
  const absl::StatusOr<bool> whole =
      inflater_->Step([this](size_t bytes) { return ticket_.Charge(bytes); });
  if (!whole.ok()) return Fail(whole.status());
  if (!*whole) return GoOnInflating();
  ticket_.Refund(MessageInflater::kStateBytes);  // gone with the last step
  RunHandler();
}

absl::Status UnaryCall::ViewMessage() {
  if (inflater_ != nullptr) {
    WEIR_ASSIGN_OR_RETURN(request_, ViewInflated(*inflater_, &arena_));
    inflated_ = true;
    message_.Drop();
    return absl::OkStatus();
  }
  WEIR_ASSIGN_OR_RETURN(
      const MessageView view,
      ViewReceived(&message_.get()->data.raw.slice_buffer, &arena_, &copies_));
  if (view.copied) message_.Drop();
  request_ = view.bytes;
  return absl::OkStatus();
}

void UnaryCall::RunHandler() {
  const int64_t message_bytes =  // what is charged for it
      ticket_.bytes() - int64_t{kCallBytes};
  if (absl::Status seen = ViewMessage(); !seen.ok()) return Fail(seen);
  method().handler(*this);
  if (answered_) return;
  if (method().streams) {
    ForgetRequest();
    if (message_bytes > 0) {
      ticket_.Refund(static_cast<size_t>(message_bytes));
    }
  }
  WatchForClose();
}

void UnaryCall::WatchForClose() {
  if (std::exchange(watched_, true)) return;
  grpc_op close = {};
  close.op = GRPC_OP_RECV_CLOSE_ON_SERVER;
  close.data.recv_close_on_server.cancelled = &cancelled_;
  Start(&close, 1, &closed_event_);
}

void UnaryCall::OnClosed() {
  const Entry entry(this);
  --events_;
  closed_ = true;
  Over();
  if (!answered_ && cancelled_ != 0) SetCancelled();
}

void UnaryCall::OnResume() {
  const Entry entry(this);
  resume_.fn(*this, resume_.arg);
}

void UnaryCall::Resume(ResumeFn fn, void* arg) {
  resume_.fn = fn;
  resume_.arg = arg;
  io_->Post(&resume_);
}

// -- The answer ---------------------------------------------------------------

void UnaryCall::Reply(ReplyBuffer reply) {
  if (absl::Status fits = CheckReplySize(reply.size()); !fits.ok()) {
    return Fail(fits);
  }
  const Entry entry(this);
  const size_t bytes = reply.size();
  const size_t held = reply.held();
  if (!BeginAnswer(absl::OkStatus())) return;
  TakeReply(&reply);
  ticket_.Answered(held + call_bytes());
  EnterSending(answered_at_);
  if (bytes <= kSmallReplyBytes) return Send(absl::OkStatus(), true);
  WatchForClose();
  grpc_op ops[2] = {};
  ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
  ops[1].op = GRPC_OP_SEND_MESSAGE;
  ops[1].flags = GRPC_WRITE_THROUGH;
  ops[1].data.send_message.send_message = &reply_;
  Start(ops, 2, &written_event_);
}

void UnaryCall::Fail(const absl::Status& error) {
  const Entry entry(this);
  if (!BeginAnswer(error)) return;
  ticket_.Answered(call_bytes() + UnwrittenBytes());
  LeaveSending();  // a stream's message may still be on its way
  if (!ticket_.held() && !BeginRefusal()) return Cut();
  EnterSending(answered_at_);
  Send(answer_, !begun_);
}

// An answer that its caller does not read stays, and this one is in nobody's
// bytes. Cut, it would stay too, until gRPC has written to the socket what
// waits before it: so nobody's answer makes room for another's, and no peer
// takes more of the room than it leaves.
bool UnaryCall::BeginRefusal() {
  const size_t left = io_->policy_.max_refusals - io_->refusals_;
  if (io_->refusals_of_.Of(peer_) >= left) return false;
  ++io_->refusals_;
  io_->refusals_of_.Add(peer_);
  refused_ = true;
  return true;
}

void UnaryCall::TakeReply(ReplyBuffer* reply) {
  reply_bytes_ = reply->size();
  reply->TakeSlices([this](const grpc_slice& slice) {
    grpc_slice_buffer_add(&reply_.data.raw.slice_buffer, slice);
  });
}

void UnaryCall::Write(ReplyBuffer message, ResumeFn written, void* arg) {
  const Entry entry(this);
  // One that is read has more to do than to tell.
  if (method().reads == nullptr) CountNoMore();
  if (closed_) return;
  written_ = written;
  written_arg_ = arg;
  writes_ = true;
  writing_bytes_ = message.held();
  TakeReply(&message);
  EnterSending(io_->policy_.now());
  grpc_op ops[2] = {};
  size_t count = 0;
  if (!std::exchange(begun_, true)) {
    ops[count++].op = GRPC_OP_SEND_INITIAL_METADATA;
  }
  ops[count].op = GRPC_OP_SEND_MESSAGE;
  ops[count].flags = GRPC_WRITE_THROUGH;  // so that one alone is on its way
  ops[count++].data.send_message.send_message = &reply_;
  Start(ops, count, &written_event_);
}

void UnaryCall::CountNoMore() {
  if (!std::exchange(open_, false)) return;
  io_->open_calls_.fetch_sub(1, std::memory_order_relaxed);
}

// False if the caller has gone already and nothing is to be sent.
bool UnaryCall::BeginAnswer(const absl::Status& status) {
  EndUpload();
  answered_ = true;
  answered_at_ = io_->policy_.now();
  answer_ = CutStatus(status);
  ForgetCancel();
  CountNoMore();
  if (!closed_) return true;
  LeaveSending();  // a stream's message may still be on its way
  ticket_.Answered(0);
  return false;
}

// The end of the answer; with `begins`, all of it.
void UnaryCall::Send(const absl::Status& error, bool begins) {
  grpc_op ops[4] = {};
  size_t count = 0;
  if (begins) ops[count++].op = GRPC_OP_SEND_INITIAL_METADATA;
  if (begins && error.ok() && !method().streams) {
    ops[count].op = GRPC_OP_SEND_MESSAGE;
    ops[count++].data.send_message.send_message = &reply_;
  }
  grpc::Status status;
  grpc_slice text = {};
  grpc_metadata details = {};
  grpc_op& end = ops[count++];
  end.op = GRPC_OP_SEND_STATUS_FROM_SERVER;
  auto& trailer = end.data.send_status_from_server;
  trailer.status = GRPC_STATUS_OK;
  if (!error.ok()) {
    status = ToGrpcStatus(error);
    trailer.status = static_cast<grpc_status_code>(status.error_code());
    const std::string message = status.error_message();
    text = grpc_slice_from_copied_buffer(message.data(), message.size());
    trailer.status_details = &text;
    if (const std::string rich = status.error_details(); !rich.empty()) {
      details_ = grpc_slice_from_copied_buffer(rich.data(), rich.size());
      details.key = StaticSlice(kStatusDetails);
      details.value = details_;
      trailer.trailing_metadata_count = 1;
      trailer.trailing_metadata = &details;
    }
  }
  if (!std::exchange(watched_, true)) {
    ops[count].op = GRPC_OP_RECV_CLOSE_ON_SERVER;
    ops[count++].data.recv_close_on_server.cancelled = &cancelled_;
  }
  {
    const SocketCork::Scope together(io_->ExpectsReplies(answered_at_));
    Start(ops, count, &finished_event_);
  }
  if (!error.ok()) grpc_slice_unref(text);
}

void UnaryCall::OnWritten(bool ok) {
  const Entry entry(this);
  --events_;
  if (std::exchange(writes_, false)) {
    if (answered_) return;
    LeaveSending();
    if (ok && !closed_) written_(*this, written_arg_);
    return;
  }
  if (ok && !closed_) {
    Send(absl::OkStatus(), false);
  } else {
    LeaveSending();
  }
}

void UnaryCall::OnFinished(bool ok) {
  const Entry entry(this);
  --events_;
  LeaveSending();
  sent_ = ok;
}

void UnaryCall::Start(const grpc_op* ops, size_t count, IoEvent* event) {
  ++events_;
  if (grpc_call_start_batch(call_, ops, count, event, nullptr) !=
      GRPC_CALL_OK) {
    std::abort();  // only for batches that nobody may start
  }
}

void UnaryCall::Leave() {
  if (--depth_ > 0 || !answered_) return;
  ForgetRequest();
  if (events_ == 0) End();
}

// Nobody reads it any more, while the reply, or a stream, may stay for long.
void UnaryCall::ForgetRequest() {
  request_ = ByteView();
  message_.Drop();
  copies_.reset();
  inflater_.reset();
  stream_message_.reset();
  arena_.Reset();
}

// Nothing is sent from now on, and so nobody needs the queue for it.
void UnaryCall::Over() {
  if (std::exchange(owed_, false)) --io_->owed_;
}

void UnaryCall::End() {
  Over();
  CallList::Leave(this);
  Delivery delivery = Delivery::kSent;
  if (!sent_ || cut_ || cancelled_ != 0) {
    delivery = cut_ ? Delivery::kCut : Delivery::kCallerGone;
    auto& count =
        cut_ ? io_->counts_.replies_cut : io_->counts_.replies_abandoned;
    // A stream has no last reply: its caller leaves when it has heard enough.
    if (cut_ || !method().streams) {
      count.fetch_add(1, std::memory_order_relaxed);
    }
    if (answer_.ok()) {
      answer_ = absl::CancelledError(
          cut_ ? "the caller did not take its reply in time (--send-timeout)"
               : "the caller left before its reply was sent");
    }
  }
  if (CallObserver* observer = service_->observer()) {
    observer->OnEnded(*this, method(), answer_, delivery);
  }
  ticket_.Reset();
  if (std::exchange(refused_, false)) {
    --io_->refusals_;
    io_->refusals_of_.Remove(peer_);
  }
  io_->calls_of_.Remove(connection_);
  io_->Recycle(this);
}

// -- Clients that keep us waiting ---------------------------------------------

// Of a deadline gRPC tells nobody (see Transport); clients leave at theirs, as
// a rule.
void UnaryCall::CutUploads(IoThread& io, Nanos now) {
  const Nanos timeout = io.policy_.receive_timeout;
  CallLink* link = io.receiving_.oldest();
  while (link != nullptr) {
    auto* const call = static_cast<UnaryCall*>(link);
    link = link->after();
    if (timeout != kNoDeadline && now - call->since() >= timeout) {
      io.counts_.uploads_timed_out.fetch_add(1, std::memory_order_relaxed);
      call->CutUpload(UploadTimeout(timeout));
    } else if (now >= call->deadline_) {
      call->CutUpload(UploadLate());
    }
  }
}

void UnaryCall::CutReplies(IoThread& io, Nanos now) {
  const CallPolicy& policy = io.policy_;
  if (policy.send_timeout == kNoDeadline) return;
  const Nanos hurried =
      std::min(policy.send_timeout, kSendTimeoutUnderPressure);
  CallLink* link = io.sending_.oldest();
  while (link != nullptr && now - link->since() >= hurried) {
    auto* const call = static_cast<UnaryCall*>(link);
    link = link->after();
    const auto mebibytes = static_cast<Nanos>(call->reply_bytes_ >> 20);
    const Nanos time =
        call->OthersNeedTheRoom()
            ? hurried + mebibytes * kSendTimePerMebibyteUnderPressure
            : policy.send_timeout + mebibytes * kSendTimePerMebibyte;
    if (now - call->since() < time) continue;
    call->Cut();
  }
}

void UnaryCall::EndStuck(const IoThread& io, Nanos now) {
  if (io.policy_.guard == nullptr) return;
  std::set<std::string> stuck;
  for (CallLink* link = io.cut_.oldest();
       link != nullptr && now - link->since() >= kCutReplyGoesWithin;
       link = link->after()) {
    stuck.insert(ConnectionKey(static_cast<UnaryCall*>(link)->connection_));
  }
  if (!stuck.empty()) io.policy_.guard->End(stuck);
}

// One that was cut stays among those until it ends.
void UnaryCall::EnterSending(Nanos now) {
  if (!cut_) io_->sending_.Enter(this, now);
}

void UnaryCall::LeaveSending() {
  if (!cut_) CallList::Leave(this);
}

// More than half of the bytes in flight are taken, beside this call's own.
bool UnaryCall::OthersNeedTheRoom() const {
  const Admission* const admission = this->admission();
  return admission != nullptr &&
         admission->bytes() - ticket_.bytes() > admission->max_bytes() / 2;
}

// gRPC resets the stream and lets go of what it has not begun to write; the
// event that ends the call follows.
void UnaryCall::Cut() {
  CallList::Leave(this);
  cut_ = true;
  io_->cut_.Enter(this, io_->policy_.now());
  grpc_call_cancel_with_status(call_, GRPC_STATUS_CANCELLED,
                               "the answer is not read", nullptr);
}

// -- What the call is ---------------------------------------------------------

std::string UnaryCall::Connection() const { return connection_; }

std::optional<std::string_view> UnaryCall::Header(std::string_view name) const {
  for (size_t i = 0; i < headers_.count; ++i) {
    const grpc_metadata& header = headers_.metadata[i];
    if (View(header.key) == name) return View(header.value);
  }
  return std::nullopt;
}

const Method& UnaryCall::method() const {
  return service_->methods()[static_cast<size_t>(index_)];
}

bool UnaryCall::unknown() const { return service_->handle(index_) == nullptr; }

Admission::Kind UnaryCall::kind() const {
  if (method().reads != nullptr) return Admission::Kind::kStream;
  return method().traffic == Traffic::kHeavy ? Admission::Kind::kQueued
                                             : Admission::Kind::kSmall;
}

Admission* UnaryCall::admission() const {
  const auto& own = service_->bounds();
  return own.has_value() ? own->admission : io_->policy_.admission;
}

const char* UnaryCall::message_bound() const {
  return max_message_bytes() == io_->policy_.max_message_bytes &&
                 !service_->bounds().has_value()
             ? "of a message (--max-message-bytes)"
             : "of a message of this method";
}

size_t UnaryCall::max_message_bytes() const {
  if (const auto& own = service_->bounds()) return own->max_message_bytes;
  const size_t limit = io_->policy_.max_message_bytes;
  return kind() == Admission::Kind::kSmall
             ? std::min(limit, kMaxSmallMessageBytes)
             : limit;
}

}  // namespace weir
