#include "server/services/report_proto.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace weir {
namespace {

int64_t Unix(Nanos steady, int64_t offset) {
  return steady == 0 ? 0 : steady + offset;
}

int64_t Since(Nanos from, Nanos to) {
  return to > from && from > 0 ? to - from : 0;
}

v1::InsertedWait::Kind Kind(InsertedWait::Kind kind) {
  switch (kind) {
    case InsertedWait::Kind::kNone:
      return v1::InsertedWait::KIND_ALREADY_REACHED;
    case InsertedWait::Kind::kDevice:
      return v1::InsertedWait::KIND_DEVICE_SIDE;
    case InsertedWait::Kind::kHost:
      return v1::InsertedWait::KIND_HOST_SIDE;
  }
  return v1::InsertedWait::KIND_UNSPECIFIED;
}

// The wire's numbers are one higher: 0 is UNSPECIFIED there.
v1::WorkState ToProto(WorkState state) {
  static_assert(static_cast<int>(WorkState::kNotEnqueued) + 1 ==
                    v1::WORK_STATE_NOT_ENQUEUED &&
                static_cast<int>(WorkState::kError) + 1 ==
                    v1::WORK_STATE_ERROR &&
                v1::WorkState_MAX == v1::WORK_STATE_ERROR);
  return static_cast<v1::WorkState>(static_cast<int>(state) + 1);
}

v1::WaitPerformed ToProto(WaitKind wait) {
  static_assert(
      static_cast<int>(WaitKind::kNone) + 1 == v1::WAIT_PERFORMED_NONE &&
      static_cast<int>(WaitKind::kDevice) + 1 == v1::WAIT_PERFORMED_DEVICE &&
      v1::WaitPerformed_MAX == v1::WAIT_PERFORMED_DEVICE);
  return static_cast<v1::WaitPerformed>(static_cast<int>(wait) + 1);
}

}  // namespace

void FillReport(const Work& work, const DeviceInfo& device, bool full,
                int64_t offset, v1::SyncReport* message) {
  const SyncReport& report = work.report();
  message->set_state(ToProto(report.state));
  message->set_wait(ToProto(report.wait));
  message->set_stream_id(report.stream_id);
  message->set_stream_sequence(report.sequence);
  message->set_queue_ns(Since(report.accepted_at, report.launched_at));
  message->set_execution_ns(Since(report.launched_at, report.completed_at));
  message->set_total_ns(Since(report.accepted_at, report.completed_at));
  const auto& wishes = work.request.outputs;
  message->set_inline_reads(static_cast<uint32_t>(
      std::count(wishes.begin(), wishes.end(), OutputWish::kInline)));
  if (!full && report.state != WorkState::kError) return;

  v1::SyncDetails* details = message->mutable_details();
  v1::StreamInfo* stream = details->mutable_stream();
  stream->set_id(report.stream_id);
  stream->set_pool(
      absl::StrCat(DeviceName(device), "/priority ", report.stream_priority));
  stream->set_priority(report.stream_priority);
  stream->set_lease_generation(report.lease_generation);
  stream->set_device_uuid(device.uuid);
  const int waits = static_cast<int>(report.waits.size());
  for (int i = 0; i < std::min(waits, kMaxReportedWaits); ++i) {
    const InsertedWait& from = report.waits[static_cast<size_t>(i)];
    v1::InsertedWait* wait = details->add_waits();
    uint64_t id = 0;
    const size_t space = from.from.rfind(' ');
    if (space != std::string::npos &&
        absl::SimpleAtoi(from.from.substr(space + 1), &id)) {
      wait->set_from(id);
    }
    wait->set_value(from.from_value);
    wait->set_to(report.stream_id);
    wait->set_kind(Kind(from.kind));
  }
  details->set_waits_omitted(
      static_cast<uint32_t>(std::max(0, waits - kMaxReportedWaits)));
  for (const DeviceError& from : report.device_errors) {
    v1::DeviceError* error = details->mutable_device_error();
    error->set_code(static_cast<int32_t>(from.code));
    error->set_name(from.name);
    error->set_text(from.text);
    error->set_sticky(from.sticky);
    error->set_node(from.node);
  }
  v1::WorkTimes* times = details->mutable_times();
  times->set_received_ns(Unix(report.accepted_at, offset));
  times->set_enqueued_ns(Unix(report.planned_at, offset));
  times->set_leased_ns(Unix(report.leased_at, offset));
  times->set_scheduled_ns(Unix(report.launched_at, offset));
  times->set_completed_ns(Unix(report.completed_at, offset));
  v1::Transfers* transfers = details->mutable_transfers();
  transfers->set_host_to_device_bytes(report.bytes_in);
  transfers->set_device_to_host_bytes(report.bytes_out);
  transfers->set_transport(v1::Transfers::TRANSPORT_INLINE);
}

std::string ReportJson(const Work& work, const DeviceInfo& device, bool full,
                       int64_t unix_minus_steady_ns) {
  v1::SyncReport message;
  FillReport(work, device, full, unix_minus_steady_ns, &message);
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto status =
      google::protobuf::util::MessageToJsonString(message, &json, options);
  return status.ok() ? json : status.ToString();
}

}  // namespace weir
