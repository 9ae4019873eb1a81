#include "server/rpc/received_message.h"

#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <grpc/slice_buffer.h>
#include <gtest/gtest.h>

namespace weir {
namespace {

class ReceivedMessageTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { grpc_init(); }
  static void TearDownTestSuite() { grpc_shutdown(); }

  // What gRPC does, in its two steps.
  void Make(grpc_byte_buffer** at) {
    *at = grpc_raw_byte_buffer_create(nullptr, 0);
  }
  void Fill(grpc_byte_buffer* made) {
    grpc_slice_buffer_add(
        &made->data.raw.slice_buffer,
        grpc_slice_new_with_user_data(
            bytes_, sizeof(bytes_),
            [](void* freed) { ++*static_cast<int*>(freed); }, &freed_));
  }

  char bytes_[4096] = {};
  int freed_ = 0;
};

TEST_F(ReceivedMessageTest, GoesWhenNobodyReadsIt) {
  ReceivedMessage message;
  grpc_byte_buffer** const at = message.Await();
  Make(at);
  Fill(*at);
  message.Arrived();
  ASSERT_NE(message.get(), nullptr);
  EXPECT_EQ(freed_, 0);
  message.Drop();
  EXPECT_EQ(message.get(), nullptr);
  EXPECT_EQ(freed_, 1);
}

TEST_F(ReceivedMessageTest, StaysWhileGrpcWritesIt) {
  ReceivedMessage message;
  grpc_byte_buffer** const at = message.Await();
  message.Drop();
  Make(at);
  grpc_byte_buffer* const made = *at;
  message.Drop();
  ASSERT_EQ(*at, made) << "it went under gRPC's hands";
  Fill(*at);
  message.Drop();
  EXPECT_EQ(freed_, 0);
  message.Arrived();
  EXPECT_EQ(freed_, 1);
  EXPECT_EQ(message.get(), nullptr);
}

TEST_F(ReceivedMessageTest, IsNoneWhereNoneCame) {
  ReceivedMessage message;
  message.Await();
  message.Drop();
  message.Arrived();
  EXPECT_EQ(message.get(), nullptr);
}

// The object serves one call after another.
TEST_F(ReceivedMessageTest, ADropIsOfOneMessage) {
  ReceivedMessage message;
  message.Await();
  message.Drop();
  message.Arrived();
  grpc_byte_buffer** const at = message.Await();
  Make(at);
  Fill(*at);
  message.Arrived();
  EXPECT_NE(message.get(), nullptr);
  EXPECT_EQ(freed_, 0);
}

}  // namespace
}  // namespace weir
