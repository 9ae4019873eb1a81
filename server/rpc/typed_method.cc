#include "server/rpc/typed_method.h"

#include <google/protobuf/io/zero_copy_stream.h>

#include <algorithm>
#include <climits>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace weir {
namespace {

// Hands the pieces of a view to protobuf one after the other.
class ViewInputStream final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit ViewInputStream(const ByteView& view) : view_(view) {}

  bool Next(const void** data, int* size) override {
    while (index_ < view_.pieces().size()) {
      const BytePiece piece = view_.pieces()[index_].subspan(offset_);
      if (piece.empty()) {
        ++index_;
        offset_ = 0;
        continue;
      }
      const size_t taken = std::min<size_t>(piece.size(), INT_MAX);
      *data = piece.data();
      *size = static_cast<int>(taken);
      offset_ += taken;
      count_ += static_cast<int64_t>(taken);
      return true;
    }
    return false;
  }

  void BackUp(int count) override {
    offset_ -= static_cast<size_t>(count);
    count_ -= count;
  }

  bool Skip(int count) override {
    const void* data = nullptr;
    int size = 0;
    while (count > 0 && Next(&data, &size)) {
      if (size > count) BackUp(size - count);
      count -= std::min(size, count);
    }
    return count == 0;
  }

  int64_t ByteCount() const override { return count_; }

 private:
  const ByteView& view_;
  size_t index_ = 0;
  size_t offset_ = 0;
  int64_t count_ = 0;
};

}  // namespace

absl::Status ParseMessage(const ByteView& bytes,
                          google::protobuf::MessageLite* message) {
  ViewInputStream stream(bytes);
  if (message->ParseFromZeroCopyStream(&stream)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the bytes are not a message of type ", message->GetTypeName()));
}

absl::StatusOr<ReplyBuffer> WriteMessage(
    ServerCall& call, const google::protobuf::MessageLite& message,
    std::string_view remedy) {
  const size_t size = message.ByteSizeLong();
  WEIR_RETURN_IF_ERROR(call.CheckReplySize(size, remedy));
  WEIR_RETURN_IF_ERROR(call.ChargeReply(size));
  ReplyBuffer reply;
  if (size > 0) {
    message.SerializeWithCachedSizesToArray(
        reinterpret_cast<uint8_t*>(reply.AppendUninitialized(size)));
  }
  return reply;
}

void ReplyMessage(ServerCall& call,
                  const google::protobuf::MessageLite& message,
                  std::string_view remedy) {
  absl::StatusOr<ReplyBuffer> reply = WriteMessage(call, message, remedy);
  if (!reply.ok()) return call.Fail(reply.status());
  call.Reply(*std::move(reply));
}

}  // namespace weir
