// Methods whose messages are small and go through protobuf: the bridge between
// ServerCall and generated messages.
#pragma once

#include <google/protobuf/message_lite.h>

#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/rpc/method_table.h"
#include "server/rpc/reply_buffer.h"
#include "server/rpc/server_call.h"

namespace weir {

// INVALID_ARGUMENT if the bytes are no such message.
absl::Status ParseMessage(const ByteView& bytes,
                          google::protobuf::MessageLite* message);

// The bytes of a reply, charged to the call before they are taken. Where a step
// of the call may run. RESOURCE_EXHAUSTED, with the remedy, if it is too large,
// and where there is no room.
absl::StatusOr<ReplyBuffer> WriteMessage(
    ServerCall& call, const google::protobuf::MessageLite& message,
    std::string_view remedy);

// Answers the call with `message`, or with the error of WriteMessage.
void ReplyMessage(ServerCall& call,
                  const google::protobuf::MessageLite& message,
                  std::string_view remedy);

// What can be done about a reply that is too large.
template <typename Request>
constexpr std::string_view ReplyRemedy() {
  if constexpr (requires(const Request& request) { request.page_size(); }) {
    return "ask for a smaller page_size";
  }
  return "raise it";
}

// A handler that answers at once:
//   absl::Status handler(ServerCall&, const Request&, Response*),
// or the same without the call.
template <typename Request, typename Response, typename Handler>
MethodHandler UnaryHandler(Handler handler) {
  return [handler = std::move(handler)](ServerCall& call) {
    Request request;
    absl::Status status = ParseMessage(call.request(), &request);
    Response response;
    if (!status.ok()) {
      call.Fail(status);
      return;
    }
    if constexpr (std::is_invocable_v<Handler, ServerCall&, const Request&,
                                      Response*>) {
      status = handler(call, request, &response);
    } else {
      status = handler(request, &response);
    }
    if (status.ok()) {
      ReplyMessage(call, response, ReplyRemedy<Request>());
    } else {
      call.Fail(status);
    }
  };
}

// Adds a method with such a handler.
template <typename Request, typename Response, typename Handler>
void AddUnary(MethodTable* table, std::string_view service,
              std::string_view name, Handler handler) {
  table->Add(service, name, Traffic::kRare,
             UnaryHandler<Request, Response>(std::move(handler)));
}

}  // namespace weir
