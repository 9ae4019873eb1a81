// One unary call as a service sees it, without the transport's types.
//
// The handler of its method owns the call from when it is called until it calls
// Reply or Fail, exactly one of them and exactly once; afterwards the call and
// everything in its arena may be gone. Handlers, callbacks and all functions
// below run on the call's own I/O thread, which must never wait; only Resume,
// StillWanted, cancelled() and peer() may be used from any thread. Another to
// which the handler hands a step of its work may use the request, the arena,
// CheckReplySize and the functions that charge until it resumes the call.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/base/clock.h"
#include "server/bytes/byte_view.h"
#include "server/bytes/call_arena.h"
#include "server/rpc/reply_buffer.h"
#include "server/scheduling/admission.h"

namespace weir {

class ServerCall {
 public:
  using ResumeFn = void (*)(ServerCall& call, void* arg);

  ServerCall(const ServerCall&) = delete;
  ServerCall& operator=(const ServerCall&) = delete;

  // The request message where it was received; valid until Reply or Fail. Of a
  // method that streams its replies it goes, with the arena, when the handler
  // has returned.
  const ByteView& request() const { return request_; }
  // It came compressed: it may be a thousand times what its caller sent.
  bool inflated() const { return inflated_; }

  // When the whole request was there; of a call that was refused before, when
  // its headers were.
  Nanos received() const { return received_; }
  // Whether it ever was.
  bool whole() const { return whole_; }
  // The caller's deadline, or kNoDeadline.
  Nanos deadline() const { return deadline_; }

  // CANCELLED once the caller has gone, DEADLINE_EXCEEDED if its deadline had
  // passed at `now`: nothing more is done for it. Any thread.
  absl::Status StillWanted(Nanos now) const;

  // The caller has gone: as a rule it does when its deadline has passed, but
  // nobody here makes it. Any thread.
  bool cancelled() const { return gone_.load(std::memory_order_acquire); }

  // Calls fn(call, arg) once if the call is cancelled before Reply or Fail;
  // at once if it already is. The call must still be answered.
  void OnCancel(ResumeFn fn, void* arg);
  // Whoever asked to be told is not told any more.
  void ForgetCancel() { on_cancel_ = nullptr; }

  // Memory that lives as long as the request.
  CallArena& arena() { return arena_; }

  // Memory that the handler takes beside the arena, in proportion to what the
  // caller sent or asked for: RESOURCE_EXHAUSTED where the server has no room
  // for it. It counts until Reply or Fail, and the reply's bytes from then on.
  absl::Status Charge(size_t bytes) { return payer_->Charge(bytes); }
  // The same for what a reply will have copied, shortly before it is handed
  // over. A little is never refused here, nor counted before the reply is: it
  // does not matter beside what its request holds. What the arena takes to make
  // the reply may be refused nevertheless.
  static constexpr size_t kLittleReplyBytes = size_t{64} << 10;
  absl::Status ChargeReply(size_t bytes) {
    return bytes <= kLittleReplyBytes ? absl::OkStatus() : Charge(bytes);
  }
  // The request's work is launched, or waits where it has a place: nobody need
  // wait for it, nor does the server's queue.
  virtual void Launched() { payer_->Launched(); }
  // Before Launched: the work's number in its space.
  void set_work_number(uint64_t number) { work_number_ = number; }
  uint64_t work_number() const { return work_number_; }

  // As whom it enters contexts, with others of the same handler; 0: as itself
  // alone.
  virtual uint64_t handler() const { return 0; }
  // Whether it has a place in the server's queue until it is answered.
  virtual bool has_place() const { return true; }

  // RESOURCE_EXHAUSTED, reason REPLY_TOO_LARGE, for more bytes than a message
  // may have. Reply fails a call with it.
  absl::Status CheckReplySize(
      size_t bytes,
      std::string_view remedy = "ask for fewer or smaller outputs") const;

  size_t max_reply_bytes() const { return max_reply_bytes_; }

  // Runs fn(call, arg) on the call's I/O thread. Any thread; at most one may be
  // outstanding, and the call must not be answered before it ran.
  virtual void Resume(ResumeFn fn, void* arg) = 0;

  // What the caller calls this request, if its message says so; for logs. Cut
  // at kMaxRequestIdBytes.
  static constexpr size_t kMaxRequestIdBytes = 128;
  std::string_view request_id() const {
    return {request_id_.data(), request_id_size_};
  }
  void set_request_id(std::string_view id);

  // What the caller says that it is for; for logs. Cut at kMaxLabelBytes.
  static constexpr size_t kMaxLabelBytes = 256;
  std::string_view label() const { return {label_.data(), label_size_}; }
  void set_label(std::string_view label);

  // When the handler answered; 0 before.
  Nanos answered() const { return answered_at_; }

  // Its connection by gRPC's name, e.g. "ipv4:127.0.0.1:55123". A peer, for
  // which bounds hold (PeerKey), may have several.
  virtual std::string Connection() const = 0;
  // The same for all calls of one peer, and of nobody else, for what peers
  // share; never empty. Any thread; valid until Reply or Fail.
  const std::string& peer() const { return peer_; }
  // Who calls, as what it leaves here belongs to it: "CN=client", the subject
  // of its certificate (RFC 2253), where the server asks for one;
  // "SAN=weir.test", another name of it, if it has no subject; else kAnonymous.
  // Found when it is first asked for; valid until Reply or Fail.
  const std::string& identity();
  // The first value of a request header.
  virtual std::optional<std::string_view> Header(
      std::string_view name) const = 0;

  // Answers the call. `error` must not be OK, but of a method that streams its
  // replies, once it has sent one: so its stream ends well.
  virtual void Reply(ReplyBuffer reply) = 0;
  virtual void Fail(const absl::Status& error) = 0;

  // Sends the next message of a method that streams its replies, whose end is
  // Fail. written(call, arg) runs when gRPC has written it, unless the call was
  // ended before; then the next one may be sent.
  virtual void Write(ReplyBuffer message, ResumeFn written, void* arg) = 0;

 protected:
  ServerCall() : arena_(&ChargeArena, this) {}
  virtual ~ServerCall() = default;

  void SetCancelled();
  // The same by its connection; empty: kAnonymous.
  virtual std::string FindIdentity() const { return ""; }
  void ForgetIdentity() { identity_.clear(); }

  std::string peer_;  // PeerKey of its connection, or kUnixPeer
  ByteView request_;
  bool inflated_ = false;
  bool whole_ = false;
  std::array<char, kMaxRequestIdBytes> request_id_;
  size_t request_id_size_ = 0;
  std::array<char, kMaxLabelBytes> label_;
  size_t label_size_ = 0;
  size_t max_reply_bytes_ = SIZE_MAX;
  uint64_t work_number_ = 0;
  Nanos received_ = 0;
  Nanos answered_at_ = 0;
  Nanos deadline_ = kNoDeadline;
  ResumeFn on_cancel_ = nullptr;
  void* on_cancel_arg_ = nullptr;
  std::atomic<bool> gone_{false};
  Admission::Ticket ticket_;
  Admission::Ticket* payer_ = &ticket_;  // of what the handler takes
  CallArena arena_;

 private:
  friend class SubCall;

  static absl::Status ChargeArena(void* call, size_t bytes) {
    return static_cast<ServerCall*>(call)->payer_->Charge(bytes);
  }

  std::string identity_;  // empty: nobody has asked
};

}  // namespace weir
