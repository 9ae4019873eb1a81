#include "server/rpc/reply_buffer.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/rpc/reply_bytes.h"

namespace weir {
namespace {

void Count(void* count) { ++*static_cast<int*>(count); }

TEST(ReplyBufferTest, JoinsCopiedAndForeignBytes) {
  int released = 0;
  const std::string foreign(100, 'f');
  {
    ReplyBuffer reply;
    reply.AppendCopy("head");
    reply.AppendCopy("");
    reply.AppendForeign(foreign.data(), foreign.size(), Count, &released);
    reply.AppendCopy("tail");
    EXPECT_EQ(reply.size(), 108u);
    EXPECT_EQ(ReplyBytes(reply), "head" + foreign + "tail");
    EXPECT_EQ(GRPC_SLICE_START_PTR(reply.slices()[1]),
              reinterpret_cast<const uint8_t*>(foreign.data()));
    ReplyBuffer moved = std::move(reply);
    EXPECT_EQ(moved.size(), 108u);
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
}

// So that one sees whether a reader goes on.
TEST(ReplyBufferTest, LargeForeignBytesLeaveInParts) {
  constexpr size_t kPart = ReplyBuffer::kPartBytes;
  int released = 0;
  const std::string foreign(3 * kPart + 1, 'f');
  ReplyBuffer reply;
  reply.AppendForeign(foreign.data(), kPart, Count, &released);
  EXPECT_EQ(reply.slice_count(), 1u);
  reply.AppendForeign(foreign.data(), foreign.size(), Count, &released);
  ASSERT_EQ(reply.slice_count(), 5u);
  EXPECT_EQ(reply.size(), foreign.size() + kPart);
  EXPECT_EQ(ReplyBytes(reply), std::string(4 * kPart + 1, 'f'));
  const ReplyProgress progress = reply.TakeProgress();
  std::vector<grpc_slice> parts;
  reply.TakeSlices([&](const grpc_slice& part) { parts.push_back(part); });
  EXPECT_EQ(reply.size(), 0u);
  grpc_slice_unref(parts[0]);
  EXPECT_EQ(released, 1);
  EXPECT_EQ(progress.parts_sent(), 0u);
  for (size_t i = 1; i < parts.size(); ++i) {
    EXPECT_EQ(released, 1);
    EXPECT_EQ(progress.parts_sent(), i - 1);
    grpc_slice_unref(parts[i]);
  }
  EXPECT_EQ(released, 2);
  EXPECT_EQ(progress.parts_sent(), 4u);
}

TEST(ReplyBufferTest, ReleasesEmptyForeignBytesAtOnce) {
  int released = 0;
  ReplyBuffer reply;
  reply.AppendForeign(nullptr, 0, Count, &released);
  EXPECT_EQ(released, 1);
  EXPECT_EQ(reply.slice_count(), 0u);
}

TEST(ReplyBufferTest, GrowsPastItsInlineSlices) {
  ReplyBuffer reply;
  std::string expected;
  for (int i = 0; i < 50; ++i) {
    const std::string part(static_cast<size_t>(i),
                           static_cast<char>('a' + i % 26));
    reply.AppendCopy(part);
    expected += part;
  }
  EXPECT_EQ(ReplyBytes(reply), expected);
}

}  // namespace
}  // namespace weir
