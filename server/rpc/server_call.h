// One unary call as a service sees it, without the transport's types.
//
// The handler of its method owns the call from when it is called until it calls
// Reply or Fail, exactly one of them and exactly once; afterwards the call and
// everything in its arena may be gone. Handlers, callbacks and all functions
// below run on the call's own I/O thread, which must never wait; only Resume
// and cancelled() may be used from any thread.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/base/clock.h"
#include "server/rpc/byte_view.h"
#include "server/rpc/call_arena.h"
#include "server/rpc/reply_buffer.h"

namespace weir {

class ServerCall {
 public:
  using ResumeFn = void (*)(ServerCall& call, void* arg);

  ServerCall(const ServerCall&) = delete;
  ServerCall& operator=(const ServerCall&) = delete;

  // The request message where it was received; valid until Reply or Fail.
  const ByteView& request() const { return request_; }

  // When the transport handed the call over.
  Nanos received() const { return received_; }
  // The caller's deadline, or kNoDeadline.
  Nanos deadline() const { return deadline_; }

  // The caller has gone, or its deadline has passed. Any thread.
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

  // Calls fn(call, arg) once if the call is cancelled before Reply or Fail;
  // at once if it already is. The call must still be answered.
  void OnCancel(ResumeFn fn, void* arg);

  // Memory that lives until Reply or Fail.
  CallArena& arena() { return arena_; }

  // Runs fn(call, arg) on the call's I/O thread. Any thread; at most one may be
  // outstanding, and the call must not be answered before it ran.
  virtual void Resume(ResumeFn fn, void* arg) = 0;

  // What the caller calls this request, if its message says so; for logs. The
  // text stays until Reply or Fail.
  std::string_view request_id() const { return request_id_; }
  void set_request_id(std::string_view id) { request_id_ = id; }

  // Address of the caller, e.g. "ipv4:127.0.0.1:55123".
  virtual std::string Peer() const = 0;
  // The first value of a request header.
  virtual std::optional<std::string_view> Header(
      std::string_view name) const = 0;

  // Answers the call. `error` must not be OK.
  virtual void Reply(ReplyBuffer reply) = 0;
  virtual void Fail(const absl::Status& error) = 0;

 protected:
  ServerCall() = default;
  virtual ~ServerCall() = default;

  void SetCancelled();

  ByteView request_;
  std::string_view request_id_;
  Nanos received_ = 0;
  Nanos deadline_ = kNoDeadline;
  ResumeFn on_cancel_ = nullptr;
  void* on_cancel_arg_ = nullptr;
  std::atomic<bool> cancelled_{false};
  CallArena arena_;
};

}  // namespace weir
