#include "server/services/spaces_service.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/clock.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/spaces.pb.h"
#include "server/rpc/server_call.h"
#include "server/rpc/typed_method.h"
#include "server/services/page.h"
#include "server/services/space_header.h"

namespace weir {
namespace {

constexpr char kService[] = "weir.v1.Spaces";
constexpr size_t kMaxLabelBytes = 256;

Amounts FromProto(const v1::SpaceAmounts& from) {
  Amounts amounts;
  amounts[Holding::kTensorBytes] = from.tensor_bytes();
  amounts[Holding::kTensors] = from.tensors();
  amounts[Holding::kContexts] = from.contexts();
  amounts[Holding::kTimelines] = from.timelines();
  amounts[Holding::kWorks] = from.works();
  amounts[Holding::kInputBytes] = from.input_bytes();
  amounts[Holding::kProgramBytes] = from.program_bytes();
  amounts[Holding::kWaits] = from.waits();
  amounts[Holding::kSessions] = from.sessions();
  return amounts;
}

v1::SpaceAmounts ToProto(const Amounts& from) {
  v1::SpaceAmounts amounts;
  amounts.set_tensor_bytes(from[Holding::kTensorBytes]);
  amounts.set_tensors(from[Holding::kTensors]);
  amounts.set_contexts(from[Holding::kContexts]);
  amounts.set_timelines(from[Holding::kTimelines]);
  amounts.set_works(from[Holding::kWorks]);
  amounts.set_input_bytes(from[Holding::kInputBytes]);
  amounts.set_program_bytes(from[Holding::kProgramBytes]);
  amounts.set_waits(from[Holding::kWaits]);
  amounts.set_sessions(from[Holding::kSessions]);
  return amounts;
}

v1::Space Describe(const Space& from, Nanos now) {
  v1::Space space;
  space.set_id(from.id());
  space.set_label(from.label());
  space.set_identity(from.identity());
  space.set_opened_unix_ns(from.opened_unix_ns());
  space.set_idle_ns(from.idle(now));
  space.set_lease_ns(from.lease());
  *space.mutable_quota() = ToProto(from.account().limits());
  *space.mutable_held() = ToProto(from.account().held());
  return space;
}

absl::Status Open(const ServiceContext& context, SpaceRecorder& recorder,
                  ServerCall& call, const v1::OpenSpaceRequest& request,
                  v1::OpenSpaceResponse* response) {
  call.set_label(request.label());
  if (request.label().size() > kMaxLabelBytes) {
    return InvalidField(
        "label", absl::StrCat("a label has at most ", kMaxLabelBytes,
                              " bytes; this has ", request.label().size()));
  }
  const Nanos now = NowNanos();
  WEIR_ASSIGN_OR_RETURN(
      const SpaceUse space,
      context.spaces->Open({.label = request.label(),
                            .identity = call.identity(),
                            .lease = request.lease_ns(),
                            .quota = FromProto(request.quota())},
                           now, context.unix_minus_steady_ns + now));
  response->set_token(std::string(space->token().bytes()));
  response->set_id(space->id());
  *response->mutable_quota() = ToProto(space->account().limits());
  response->set_lease_ns(space->lease());
  recorder.Opened(*space, now);
  return absl::OkStatus();
}

absl::Status Get(const ServiceContext& context, ServerCall& call,
                 v1::GetSpaceResponse* response) {
  WEIR_ASSIGN_OR_RETURN(const SpaceUse space, RequireSpace(context, call));
  *response->mutable_space() = Describe(*space, NowNanos());
  return absl::OkStatus();
}

absl::Status List(const ServiceContext& context, ServerCall& call,
                  const v1::ListSpacesRequest& request,
                  v1::ListSpacesResponse* response) {
  const std::string& identity = call.identity();
  WEIR_ASSIGN_OR_RETURN(Page page,
                        Page::Read(request.page_size(), request.page_token(),
                                   absl::StrCat("spaces of ", identity)));
  const std::vector<std::shared_ptr<Space>> spaces =
      context.spaces->Of(identity);
  response->set_total(spaces.size());
  *response->mutable_held() = ToProto(context.spaces->HeldBy(identity));
  if (identity == kAnonymous) return absl::OkStatus();
  const Nanos now = NowNanos();
  for (const std::shared_ptr<Space>& space : spaces) {
    const std::string key = absl::StrFormat("%020d", space->id());
    if (page.Had(key)) continue;
    if (!AddToPage(key, Describe(*space, now), &page,
                   response->mutable_spaces())) {
      break;
    }
  }
  response->set_next_page_token(page.next_token());
  return absl::OkStatus();
}

absl::Status Close(const ServiceContext& context, SpaceRecorder& recorder,
                   ServerCall& call, v1::CloseSpaceResponse* response) {
  WEIR_ASSIGN_OR_RETURN(const SpaceUse space, RequireSpace(context, call));
  const Amounts held = space->account().held();
  if (!context.spaces->Close(*space)) return SpaceNotFound(space->id());
  *response->mutable_held() = ToProto(held);
  recorder.Closed(*space, SpaceRecorder::End::kClosed, held, NowNanos());
  return absl::OkStatus();
}

}  // namespace

void SpacesService::Register(MethodTable* table) {
  const ServiceContext* const context = context_;
  SpaceRecorder* const recorder = recorder_;
  AddUnary<v1::OpenSpaceRequest, v1::OpenSpaceResponse>(
      table, kService, "Open",
      [=](ServerCall& call, const auto& request, auto* response) {
        return Open(*context, *recorder, call, request, response);
      });
  AddUnary<v1::GetSpaceRequest, v1::GetSpaceResponse>(
      table, kService, "Get",
      [=](ServerCall& call, const auto&, v1::GetSpaceResponse* response) {
        return Get(*context, call, response);
      });
  AddUnary<v1::ListSpacesRequest, v1::ListSpacesResponse>(
      table, kService, "List",
      [=](ServerCall& call, const auto& request, auto* response) {
        return List(*context, call, request, response);
      });
  AddUnary<v1::CloseSpaceRequest, v1::CloseSpaceResponse>(
      table, kService, "Close",
      [=](ServerCall& call, const auto&, v1::CloseSpaceResponse* response) {
        return Close(*context, *recorder, call, response);
      });
}

}  // namespace weir
