#include "server/rpc/reply_buffer.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

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

TEST(ReplyBufferTest, HoldsWhatLiesBesideItsBytes) {
  int released = 0;
  const std::string foreign(100, 'f');
  ReplyBuffer reply;
  reply.AppendCopy("head");
  reply.AppendForeign(foreign.data(), 60, Count, &released, 40);
  reply.AppendForeign(foreign.data(), 10, Count, &released);
  EXPECT_EQ(reply.size(), 74u);
  EXPECT_EQ(reply.held(), 114u);
  const ReplyBuffer moved = std::move(reply);
  EXPECT_EQ(moved.held(), 114u);
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
