// A call whose caller sends any number of messages and gets any number of
// replies, as its handler sees it: a ServerCall whose handler is called with
// its headers, before any message is read. It owns the call until it calls
// Finish or Fail. Nothing is read ahead of Read: a caller whose messages are
// not asked for can send what fits HTTP/2's window, and no more.
//
// Used on the call's I/O thread, but for what ServerCall allows others.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/rpc/server_call.h"
#include "server/rpc/stream_message.h"

namespace weir {

class IoThread;

class ServerStream : public ServerCall {
 public:
  // Asks for the next message: fn(call, message, arg) runs once, with null when
  // the caller will send no more, and with an error, with which the handler is
  // to fail the call: of a message that is too large, finds no room or cannot
  // be undone, and of a first one that does not come for as long as a call's
  // may take. Perhaps inside. Not once the call was answered, or its caller has
  // gone, of which OnCancel tells. At most one may be outstanding.
  using MessageOr = absl::StatusOr<std::shared_ptr<StreamMessage>>;
  using ReadFn = void (*)(ServerStream& call, MessageOr message, void* arg);
  virtual void Read(ReadFn fn, void* arg) = 0;

  // Runs fn(call, arg) once the thread has done what is at hand; never once the
  // call was answered. At most one may be outstanding.
  virtual void Defer(ResumeFn fn, void* arg) = 0;

  // Ends the call with OK, once the message that is being written is. Instead
  // of Reply, which it has none of.
  virtual void Finish() = 0;

  // On which it is, and stays; outlives the call.
  virtual IoThread& thread() const = 0;
};

}  // namespace weir
