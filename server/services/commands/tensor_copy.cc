#include "server/services/commands/tensor_copy.h"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/clock.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/command.pb.h"
#include "server/bytes/arena_ptr.h"
#include "server/rpc/sub_call.h"
#include "server/rpc/typed_method.h"
#include "server/rpc/wire/wire_reader.h"
#include "server/rpc/wire/wire_writer.h"
#include "server/services/evaluate_calls.h"
#include "server/services/space_header.h"
#include "server/spaces/space.h"

namespace weir {
namespace {

// Fields of the messages.
constexpr uint32_t kResponseOutputs = 2;
constexpr uint32_t kOutputValue = 2;
constexpr uint32_t kPutValue = 2;

// The value of the one output of an EvaluateResponse.
absl::StatusOr<ByteView> ReadValue(const ByteView& response, CallArena* arena) {
  WireReader reader(response, arena);
  ByteView value;
  while (reader.NextField()) {
    if (reader.number() != kResponseOutputs) {
      reader.Skip();
      continue;
    }
    reader.Nested([&](WireReader&) {
      while (reader.NextField()) {
        if (reader.number() == kOutputValue) {
          value = reader.Bytes();
        } else {
          reader.Skip();
        }
      }
    });
  }
  WEIR_RETURN_IF_ERROR(reader.status("EvaluateResponse"));
  return value;
}

// From one device to another. Lives in the call's arena until the answer.
class StagedCopy {
 public:
  StagedCopy(const MethodHandler* get, const MethodHandler* put,
             ServerCall& call, const v1::TensorCopy& request)
      : get_(*get), put_(*put), call_(call), request_(request), step_(&call) {}

  static void Begin(ArenaPtr<StagedCopy> self) {
    StagedCopy* const copy = self.get();
    copy->self_ = std::move(self);
    v1::TensorGet get;
    get.set_tensor(copy->request_.source());
    copy->message_ = get.SerializeAsString();
    copy->pieces_ = {std::as_bytes(std::span(copy->message_))};
    copy->Run<&StagedCopy::WasRead>(copy->get_);
  }

 private:
  // Runs `handler` for the message that lies in pieces_.
  template <void (StagedCopy::*kThen)()>
  void Run(const MethodHandler& handler) {
    size_t size = 0;
    for (const BytePiece& piece : pieces_) size += piece.size();
    step_.Run(
        handler, ByteView(pieces_, size), call_.max_reply_bytes(),
        [](void* self) { (static_cast<StagedCopy*>(self)->*kThen)(); }, this);
  }

  void WasRead() {
    absl::Status status = step_.status();
    if (!status.ok()) {
      return Fail(Field(status) == "tensor"
                      ? WithField(std::move(status), "source")
                      : status);
    }
    read_ = step_.TakeReply();
    read_pieces_ = read_.Pieces();
    const absl::StatusOr<ByteView> value =
        ReadValue(ByteView(read_pieces_, read_.size()), &call_.arena());
    if (!value.ok()) return Fail(value.status());
    v1::TensorPut put;
    put.set_tensor(request_.tensor());
    put.set_into_existing(request_.into_existing());
    put.set_device(request_.device());
    put.set_context(request_.context());
    put.set_mode(request_.mode());
    put.set_report(request_.report());
    put.set_work(request_.work());
    message_ = put.SerializeAsString();
    const size_t fields = message_.size();
    message_.resize(fields + BytesFieldSize(kPutValue, value->size()) -
                    value->size());
    WireWriter(message_.data() + fields).BeginBytes(kPutValue, value->size());
    pieces_ = {std::as_bytes(std::span(message_))};
    pieces_.insert(pieces_.end(), value->pieces().begin(),
                   value->pieces().end());
    // Its arena, where the value's pieces are listed, is the call's own.
    Run<&StagedCopy::WasPut>(put_);
  }

  void WasPut() {
    const absl::Status status = step_.status();
    if (!status.ok()) return Fail(status);
    ServerCall& call = call_;
    ReplyBuffer reply = step_.TakeReply();
    { const ArenaPtr<StagedCopy> self = std::move(self_); }
    call.Reply(std::move(reply));
  }

  void Fail(const absl::Status& error) {
    ServerCall& call = call_;
    const absl::Status kept = error;
    { const ArenaPtr<StagedCopy> self = std::move(self_); }
    call.Fail(kept);
  }

  const MethodHandler& get_;
  const MethodHandler& put_;
  ServerCall& call_;
  const v1::TensorCopy request_;
  ArenaPtr<StagedCopy> self_;
  std::string message_;
  std::vector<BytePiece> pieces_;
  ReplyBuffer read_;  // stays until what was read is put
  std::vector<BytePiece> read_pieces_;
  SubCall step_;
};

// Whether the copy is to be on another device than its source; and where, for
// one that names a context or a tensor there instead.
absl::StatusOr<bool> ReadTargets(const ServiceContext& context,
                                 ServerCall& call, v1::TensorCopy* request) {
  WEIR_RETURN_IF_ERROR(CheckSmallCommand(call));
  WEIR_RETURN_IF_ERROR(ParseMessage(call.request(), request));
  WEIR_ASSIGN_OR_RETURN(const SpaceUse space, RequireSpace(context, call));
  const auto source = space->tensors().Find(request->source());
  if (!source.ok()) return WithField(source.status(), "source");
  const Engine* target = nullptr;
  if (!request->device().empty()) {
    WEIR_ASSIGN_OR_RETURN(target, context.engines.Find(request->device()));
  } else if (request->context() != 0) {
    const auto kept = space->FindContext(request->context(), NowNanos());
    if (!kept.ok()) return WithField(kept.status(), "context");
    target = &(*kept)->engine();
  } else if (request->into_existing()) {
    const auto kept = space->tensors().Find(request->tensor());
    if (!kept.ok()) return WithField(kept.status(), "tensor");
    target = &(*kept)->engine();
  }
  return target != nullptr && target != &(*source)->engine();
}

}  // namespace

MethodHandler TensorCopyCommandHandler(ServiceContext* context) {
  struct Handlers {
    MethodHandler within, get, put;
  };
  const auto handlers = std::make_shared<const Handlers>(
      Handlers{TensorCopyHandler(context), TensorGetHandler(context),
               StagedPutHandler(context)});
  return [context, handlers](ServerCall& call) {
    v1::TensorCopy request;
    const absl::StatusOr<bool> staged = ReadTargets(*context, call, &request);
    if (!staged.ok()) return call.Fail(staged.status());
    if (!*staged) return handlers->within(call);
    StagedCopy::Begin(MakeInArena<StagedCopy>(&call.arena(), &handlers->get,
                                              &handlers->put, call, request));
  };
}

}  // namespace weir
