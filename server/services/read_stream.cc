#include "server/services/read_stream.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/dispatcher.h"
#include "kernels/graph/graph.h"
#include "kernels/tensor/shape.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "server/evaluation/evaluation.h"
#include "server/evaluation/evaluation_pool.h"
#include "server/rpc/typed_method.h"
#include "server/rpc/wire/wire_writer.h"
#include "server/services/space_header.h"
#include "server/spaces/kept_tensor.h"
#include "server/spaces/space.h"

namespace weir {
namespace {

constexpr uint32_t kUsualPiece = 1 << 20;
constexpr uint32_t kLeastPiece = 4 << 10;
constexpr uint32_t kLargestPiece = 4 << 20;
// Kernels read whole vectors: a piece begins where one may.
constexpr int64_t kAlignment = 256;

int64_t Aligned(int64_t bytes) { return bytes / kAlignment * kAlignment; }

// Fields of the message.
constexpr uint32_t kSpec = 1;
constexpr uint32_t kOffset = 2;
constexpr uint32_t kData = 3;

// y = x, of bytes.
absl::StatusOr<Graph> BytesGraph() {
  Graph graph;
  graph.opsets = {{"", 17}};
  graph.inputs.push_back({"x", DType::kUint8, SymbolicDims{Dim()}});
  GraphNode node;
  node.op = "Identity";
  node.inputs = {"x"};
  node.outputs = {"y"};
  graph.nodes.push_back(std::move(node));
  graph.outputs = {"y"};
  return graph;
}

// One stream, from its beginning to its end, with which it deletes itself. On
// the call's I/O thread. At any time somebody comes back to it, once: a wait, a
// compilation, an evaluation or a write, each of which the caller's leaving
// ends, or passes by.
class ReadStream final : private EvaluationClient {
 public:
  static void Begin(ServiceContext* context, ServerCall& call) {
    auto self = std::make_unique<ReadStream>(context, call);
    const absl::Status status = self->Read();
    if (!status.ok()) return call.Fail(status);
    // It is read: what it takes from here on is bounded otherwise.
    call.Launched();
    self.release()->AwaitTensor();
  }

  ReadStream(ServiceContext* context, ServerCall& call)
      : context_(*context), call_(call), peer_(call.peer()) {}

 private:
  absl::Status Read() {
    v1::ReadRequest request;
    WEIR_RETURN_IF_ERROR(CheckSmallCommand(call_));
    WEIR_RETURN_IF_ERROR(ParseMessage(call_.request(), &request));
    const uint32_t piece =
        request.piece_bytes() == 0 ? kUsualPiece : request.piece_bytes();
    if (piece < kLeastPiece || piece > kLargestPiece) {
      return InvalidField("piece_bytes",
                          absl::StrCat(piece, " is not between ", kLeastPiece,
                                       " and ", kLargestPiece));
    }
    piece_ = Aligned(static_cast<int64_t>(piece));
    WEIR_ASSIGN_OR_RETURN(space_, RequireSpace(context_, call_));
    auto kept = space_->tensors().Find(request.tensor());
    if (!kept.ok()) return WithField(kept.status(), "tensor");
    kept_ = *std::move(kept);
    const absl::Status readable = kept_->CheckReadable();
    if (!readable.ok()) return WithField(readable, "tensor");
    WEIR_ASSIGN_OR_RETURN(share_, space_->account().Take(Holding::kWaits));
    // Where it is known by now; else once the tensor is there.
    if (request.offset() > static_cast<uint64_t>(kMaxTensorBytes)) {
      return BeyondEnd(request.offset());
    }
    at_ = static_cast<int64_t>(request.offset());
    return absl::OkStatus();
  }

  static absl::Status BeyondEnd(uint64_t offset) {
    return InvalidField(
        "offset", absl::StrCat(offset, " is beyond the end of the tensor"));
  }

  // -- The tensor is made.

  Dispatcher& dispatcher() const { return kept_->engine().dispatcher(); }

  Nanos Deadline() const {
    const absl::Duration longest = kept_->engine().options().max_wait;
    return std::min(call_.deadline(),
                    NowNanos() + absl::ToInt64Nanoseconds(longest));
  }

  void AwaitTensor() {
    wanted_ = kept_->Hold();
    const Point made = kept_->made();
    wait_ = dispatcher().WhenReady({&made, 1}, /*device=*/nullptr, Deadline(),
                                   [this](absl::Status status) {
                                     status_ = std::move(status);
                                     GoOn<&ReadStream::IsMade>();
                                   });
    call_.OnCancel(
        [](ServerCall&, void* self) {
          auto* const stream = static_cast<ReadStream*>(self);
          stream->dispatcher().CancelWait(stream->wait_);
        },
        this);
  }

  template <void (ReadStream::*kNext)()>
  void GoOn() {
    call_.Resume([](ServerCall&,
                    void* self) { (static_cast<ReadStream*>(self)->*kNext)(); },
                 this);
  }

  void IsMade() {
    call_.ForgetCancel();
    wanted_ = nullptr;
    if (const absl::Status failure = kept_->failure(); !failure.ok()) {
      return End(failure);
    }
    if (!status_.ok()) return End(status_);
    tensor_ = kept_->tensor();
    if (!tensor_.valid()) {
      return End(absl::InternalError("the tensor was not kept"));
    }
    const TensorSpec& spec = tensor_.spec();
    const absl::StatusOr<int64_t> bytes = ByteSize(spec.dtype, spec.dims);
    if (!bytes.ok()) return End(bytes.status());
    if (at_ > *bytes) return End(BeyondEnd(static_cast<uint64_t>(at_)));
    end_ = *bytes;
    if (at_ == end_) return Send(/*skipped=*/0, /*size=*/0);
    // However slowly its reader takes a piece: it is the space's own memory.
    auto held = space_->account().Take(
        Holding::kInputBytes,
        static_cast<uint64_t>(std::min(piece_, end_ - Aligned(at_))));
    if (!held.ok()) return End(held.status());
    piece_bytes_ = *std::move(held);
    FindProgram();
  }

  // -- What reads a piece of it is compiled.

  void FindProgram() {
    // While they compile it is theirs alone to wait.
    ProgramCache& programs = kept_->engine().programs();
    wait_ = programs.GetOrCompile(
        "pieces of bytes", [] { return BytesGraph(); }, Deadline(),
        [this](ProgramCache::ProgramOr program) {
          program_ = std::move(program);
          GoOn<&ReadStream::HasProgram>();
        },
        peer_);
    call_.OnCancel(
        [](ServerCall&, void* self) {
          auto* const stream = static_cast<ReadStream*>(self);
          stream->kept_->engine().programs().Cancel(stream->wait_);
        },
        this);
  }

  void HasProgram() {
    call_.ForgetCancel();
    if (!program_.ok()) return End(program_.status());
    ReadPiece();
  }

  // -- Pieces.

  void ReadPiece() {
    const absl::Status wanted = call_.StillWanted(NowNanos());
    if (!wanted.ok()) return End(wanted);
    const int64_t from = Aligned(at_);
    const int64_t size = std::min(piece_, end_ - from);
    evaluation_ = context_.evaluations.Lend(kept_->engine());
    WorkRequest& request = evaluation_->request();
    request.program = *program_;
    request.inputs.resize(1);
    request.inputs[0].tensor = tensor_.Bytes(from, size);
    request.outputs = {OutputWish::kInline};
    request.mode = EvalMode::kSyncFull;
    request.deadline = call_.deadline();
    request.owner = peer_;
    evaluation_->Start(*this);
  }

  // EvaluationClient.
  void Wake(Evaluation& evaluation) override {
    call_.Resume([](ServerCall&,
                    void* woken) { static_cast<Evaluation*>(woken)->GoOn(); },
                 &evaluation);
  }
  void Submitted() override {
    call_.OnCancel(
        [](ServerCall&, void* self) {
          static_cast<ReadStream*>(self)->evaluation_->Cancel();
        },
        this);
  }
  void Done() override {
    call_.ForgetCancel();
    const absl::Status status = evaluation_->work().status();
    if (!status.ok()) return End(status);
    const int64_t skipped = at_ % kAlignment;
    const auto size =
        static_cast<int64_t>(evaluation_->work().OutputMeta(0).bytes);
    Send(skipped, size - skipped);
  }

  // What the evaluation has read, without what it begins with.
  void Send(int64_t skipped, int64_t size) {
    ReplyBuffer message;
    AppendHead(static_cast<size_t>(size), &message);
    if (size > 0) {
      const std::byte* const data =
          evaluation_->work().OutputBytes(0).data() + skipped;
      const WorkResults::Shared shared = evaluation_->results().Share(1);
      message.AppendForeign(data, static_cast<size_t>(size), shared.release,
                            shared.arg, static_cast<size_t>(skipped));
      evaluation_.reset();
    }
    at_ += size;
    if (call_.cancelled()) return CallerLeft();
    call_.OnCancel(
        [](ServerCall&, void* self) {
          static_cast<ReadStream*>(self)->CallerLeft();
        },
        this);
    call_.Write(
        std::move(message),
        [](ServerCall&, void* self) {
          static_cast<ReadStream*>(self)->IsWritten();
        },
        this);
  }

  void AppendHead(size_t size, ReplyBuffer* message) {
    std::string spec;
    if (!std::exchange(begun_, true)) {
      v1::TensorSpec proto;
      proto.set_dtype(static_cast<v1::DataType>(tensor_.spec().dtype));
      for (const int64_t extent : tensor_.spec().dims) proto.add_shape(extent);
      spec = proto.SerializeAsString();
    }
    const auto offset = static_cast<uint64_t>(at_);
    const size_t head =
        (spec.empty() ? 0 : BytesFieldSize(kSpec, spec.size())) +
        VarintFieldSize(kOffset, offset) + BytesFieldSize(kData, size) - size;
    WireWriter writer(message->AppendUninitialized(head));
    if (!spec.empty()) writer.BytesField(kSpec, spec);
    writer.VarintField(kOffset, offset);
    writer.BeginBytes(kData, size);
  }

  void IsWritten() {
    call_.ForgetCancel();
    if (at_ == end_) return End(absl::OkStatus());
    ReadPiece();
  }

  // While a message is written: nobody comes back from there then.
  void CallerLeft() { End(absl::CancelledError("the caller has gone")); }

  void End(const absl::Status& status) {
    ServerCall& call = call_;
    const absl::Status kept = status;
    delete this;
    call.Fail(kept);
  }

  ServiceContext& context_;
  ServerCall& call_;
  const std::string peer_;
  SpaceUse space_;
  std::shared_ptr<KeptTensor> kept_;
  std::shared_ptr<const void> wanted_;  // while it is awaited
  Account::Share share_;                // of calls that wait
  Account::Share piece_bytes_;          // of one piece, from the first on
  uint64_t wait_ = 0;                   // in the dispatcher, or for the program
  absl::Status status_;
  ProgramCache::ProgramOr program_ = nullptr;
  Tensor tensor_;
  EvaluationPool::Lease evaluation_;
  int64_t piece_ = 0;
  int64_t at_ = 0;   // what is sent next, in bytes
  int64_t end_ = 0;  // of the tensor
  bool begun_ = false;
};

}  // namespace

MethodHandler ReadHandler(ServiceContext* context) {
  return [context](ServerCall& call) { ReadStream::Begin(context, call); };
}

}  // namespace weir
