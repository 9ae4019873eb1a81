// The methods that a transport serves. Services fill it before the transport
// starts; afterwards it does not change and any thread may read it.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/rpc/server_call.h"
#include "server/rpc/server_stream.h"

namespace weir {

class Admission;

// Called on an I/O thread for each call; must not wait. See ServerCall for who
// owns the call. Any number of I/O threads call it at once.
using MethodHandler = std::function<void(ServerCall& call)>;
// The same for each call whose caller streams its messages.
using StreamHandler = std::function<void(ServerStream& call)>;

// kHeavy: what the server is for. Its calls take places in the queue and are
// refused when that is full, and each I/O thread is ready to take many at once.
// kRare: what tells about the server and operates it. Its calls are answered
// while the queue is full too, and their messages are small.
enum class Traffic { kRare, kHeavy };

struct Method {
  std::string service;  // "weir.v1.Evaluator"
  std::string name;     // "Evaluate"
  Traffic traffic = Traffic::kRare;
  MethodHandler handler;
  size_t number = 0;     // its place in the table
  bool streams = false;  // its replies, see ServerCall::Write
  // Not null: its callers stream their messages, too; there is no `handler`.
  StreamHandler reads = nullptr;
  // Not OK: each call ends with it at its headers, in whatever way it streams;
  // there is no handler.
  absl::Status refusal = absl::OkStatus();
};

// What became of an answer.
enum class Delivery : uint8_t {
  kSent,        // gRPC has written all of it
  kCallerGone,  // the caller left, or its connection broke, before that
  kCut,         // the caller stopped reading and was cut (--send-timeout)
};

// Told about every call, once, on its I/O thread, when its answer was sent or
// can no longer be sent.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // `status` is what the call ended with: CANCELLED for a reply that was not
  // delivered, whatever it was.
  virtual void OnEnded(const ServerCall& call, const Method& method,
                       const absl::Status& status, Delivery delivery) = 0;
};

// What bounds a table's calls, in place of what the transport's CallPolicy
// says.
struct TableBounds {
  Admission* admission;  // outlives the transport
  size_t max_message_bytes;
};

class MethodTable {
 public:
  // Each (service, name) once.
  void Add(std::string_view service, std::string_view name, Traffic traffic,
           MethodHandler handler) {
    methods_.push_back(Method{std::string(service), std::string(name), traffic,
                              std::move(handler), methods_.size()});
  }

  // The same for a method with one request and a stream of replies.
  void AddStream(std::string_view service, std::string_view name,
                 Traffic traffic, MethodHandler handler) {
    Add(service, name, traffic, std::move(handler));
    methods_.back().streams = true;
  }

  // The same for one with a stream of messages each way. Its calls take no
  // place in the queue, but their messages count with its bytes, however large
  // they are.
  void AddBidi(std::string_view service, std::string_view name,
               StreamHandler handler) {
    AddStream(service, name, Traffic::kRare, nullptr);
    methods_.back().reads = std::move(handler);
  }

  // `observer` outlives the transport; null (as without this call) for none.
  void set_observer(CallObserver* observer) { observer_ = observer; }
  CallObserver* observer() const { return observer_; }
  void set_bounds(const TableBounds& bounds) { bounds_ = bounds; }
  const std::optional<TableBounds>& bounds() const { return bounds_; }
  // A method that is known and not offered: UNIMPLEMENTED, and `why`.
  void Refuse(std::string_view service, std::string_view name,
              std::string_view why) {
    Add(service, name, Traffic::kRare, nullptr);
    methods_.back().refusal = absl::UnimplementedError(std::string(why));
  }

  const std::vector<Method>& methods() const { return methods_; }
  // What stands, with the number after theirs, for all methods that are not
  // here: their calls are refused, and observed as its.
  Method unknown() const {
    Method method;
    method.name = "unknown";
    method.number = methods_.size();
    return method;
  }

 private:
  std::vector<Method> methods_;
  CallObserver* observer_ = nullptr;
  std::optional<TableBounds> bounds_;
};

}  // namespace weir
