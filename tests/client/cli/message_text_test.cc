#include "client/cli/message_text.h"

#include <gmock/gmock.h>

#include "proto/weir/v1/evaluator.pb.h"
#include "proto/weir/v1/operator.pb.h"

namespace weir::client {
namespace {

TEST(MessageTextTest, ValuesStandWithoutTheirPrefix) {
  EXPECT_EQ(EnumText(v1::WORK_STATE_COMPLETED), "COMPLETED");
  EXPECT_EQ(EnumText(v1::DATA_TYPE_FLOAT), "FLOAT");
  EXPECT_EQ(EnumText(v1::OperatorArgument::PRESENCE_VARIADIC), "VARIADIC");
  EXPECT_EQ(EnumText(static_cast<v1::DataType>(99)), "99");
}

TEST(MessageTextTest, AtEveryDepthAndInLists) {
  v1::EvaluateResponse response;
  response.mutable_report()->set_state(v1::WORK_STATE_ERROR);
  response.mutable_report()->mutable_details()->add_waits()->set_kind(
      v1::InsertedWait::KIND_HOST_SIDE);
  response.mutable_settings()->set_mode(static_cast<v1::EvalMode>(77));
  EXPECT_EQ(MessageText(response),
            "settings {\n"
            "  mode: 77\n"
            "}\n"
            "report {\n"
            "  state: ERROR\n"
            "  details {\n"
            "    waits {\n"
            "      kind: HOST_SIDE\n"
            "    }\n"
            "  }\n"
            "}\n");
  v1::OperatorArgument argument;
  argument.add_types(v1::DATA_TYPE_FLOAT);
  argument.add_types(v1::DATA_TYPE_BFLOAT16);
  EXPECT_EQ(MessageText(argument), "types: FLOAT\ntypes: BFLOAT16\n");
}

TEST(MessageTextTest, TimesAndBytesHaveTheirUnits) {
  v1::SyncReport report;
  report.set_queue_ns(7'976'836);
  report.set_stream_sequence(5);
  report.mutable_details()->mutable_times()->set_ready_ns(
      1'795'788'841'500'089'000);
  report.mutable_details()->mutable_transfers()->set_device_to_host_bytes(
      1 << 20);
  EXPECT_EQ(MessageText(report),
            "stream_sequence: 5\n"
            "queue: 7.98 ms\n"
            "details {\n"
            "  times {\n"
            "    ready: 2026-11-27T14:14:01.500089Z\n"
            "  }\n"
            "  transfers {\n"
            "    device_to_host: 1 MiB\n"
            "  }\n"
            "}\n");
}

}  // namespace
}  // namespace weir::client
