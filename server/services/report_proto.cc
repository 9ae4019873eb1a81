#include "server/services/report_proto.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

int64_t Unix(Nanos steady, int64_t offset) {
  return steady == 0 ? 0 : steady + offset;
}

int64_t Since(Nanos from, Nanos to) {
  return to > from && from > 0 ? to - from : 0;
}

v1::InsertedWait::Kind ToProto(InsertedWait::Kind kind) {
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

v1::WaitPerformed ToProto(WaitKind wait) {
  static_assert(
      static_cast<int>(WaitKind::kNone) + 1 == v1::WAIT_PERFORMED_NONE &&
      static_cast<int>(WaitKind::kDevice) + 1 == v1::WAIT_PERFORMED_DEVICE &&
      v1::WaitPerformed_MAX == v1::WAIT_PERFORMED_DEVICE);
  return static_cast<v1::WaitPerformed>(static_cast<int>(wait) + 1);
}

void FillWait(const InsertedWait& from, uint64_t to, v1::InsertedWait* wait) {
  switch (from.from.kind) {
    case TimelineOwner::Kind::kStream:
      wait->set_stream(from.from.number);
      break;
    case TimelineOwner::Kind::kContext:
      wait->set_context(from.from.number);
      break;
    case TimelineOwner::Kind::kCaller:
      wait->set_timeline(from.from.number);
      break;
  }
  if (from.from_device != nullptr) {
    wait->set_from_device_uuid(from.from_device->info().uuid);
  }
  wait->set_value(from.from_value);
  wait->set_to(to);
  wait->set_kind(ToProto(from.kind));
}

void FillDetails(const SyncReport& report, const ReportFrame& frame,
                 v1::SyncDetails* details) {
  v1::StreamInfo* stream = details->mutable_stream();
  stream->set_id(report.stream_id);
  stream->set_pool(absl::StrCat(DeviceName(frame.device), "/priority ",
                                report.stream_priority));
  stream->set_priority(report.stream_priority);
  stream->set_lease_generation(report.lease_generation);
  stream->set_device_uuid(frame.device.uuid);
  for (const InsertedWait& wait : report.waits) {
    FillWait(wait, report.stream_id, details->add_waits());
  }
  details->set_waits_omitted(static_cast<uint32_t>(
      std::min<uint64_t>(report.waits_omitted, UINT32_MAX)));
  for (const DeviceError& from : report.device_errors) {
    v1::DeviceError* error = details->mutable_device_error();
    error->set_code(from.code);
    error->set_name(from.name);
    error->set_text(from.text);
    error->set_sticky(from.sticky);
    error->set_node(from.node);
  }
  const int64_t offset = frame.unix_minus_steady_ns;
  v1::WorkTimes* times = details->mutable_times();
  times->set_received_ns(Unix(frame.received, offset));
  times->set_enqueued_ns(Unix(report.accepted_at, offset));
  times->set_planned_ns(Unix(report.planned_at, offset));
  times->set_ready_ns(Unix(report.ready_at, offset));
  times->set_leased_ns(Unix(report.leased_at, offset));
  times->set_scheduled_ns(Unix(report.launched_at, offset));
  times->set_completed_ns(Unix(report.completed_at, offset));
  v1::Transfers* transfers = details->mutable_transfers();
  transfers->set_host_to_device_bytes(report.bytes_in);
  transfers->set_device_to_host_bytes(report.bytes_out);
  transfers->set_transport(frame.transport);
}

}  // namespace

// The wire's numbers are one higher: 0 is UNSPECIFIED there.
v1::WorkState StateToProto(WorkState state) {
  static_assert(static_cast<int>(WorkState::kNotEnqueued) + 1 ==
                    v1::WORK_STATE_NOT_ENQUEUED &&
                static_cast<int>(WorkState::kError) + 1 ==
                    v1::WORK_STATE_ERROR &&
                v1::WorkState_MAX == v1::WORK_STATE_ERROR);
  return static_cast<v1::WorkState>(static_cast<int>(state) + 1);
}

size_t InlineReads(const WorkRequest& request) {
  return static_cast<size_t>(std::count(
      request.outputs.begin(), request.outputs.end(), OutputWish::kInline));
}

void FillReport(const SyncReport& report, const ReportFrame& frame,
                v1::SyncReport* message) {
  message->set_state(StateToProto(report.state));
  message->set_wait(ToProto(report.wait));
  message->set_stream_id(report.stream_id);
  message->set_stream_sequence(report.sequence);
  message->set_queue_ns(Since(frame.received, report.launched_at));
  message->set_execution_ns(Since(report.launched_at, report.completed_at));
  message->set_total_ns(Since(frame.received, frame.replied));
  if (report.state == WorkState::kCompleted) {
    message->set_inline_reads(static_cast<uint32_t>(frame.inline_reads));
  }
  if (frame.full || report.state == WorkState::kError) {
    FillDetails(report, frame, message->mutable_details());
  }
}

std::string ReportJson(const SyncReport& report, const ReportFrame& frame) {
  v1::SyncReport message;
  FillReport(report, frame, &message);
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto status =
      google::protobuf::util::MessageToJsonString(message, &json, options);
  return status.ok() ? json : status.ToString();
}

}  // namespace weir
