#include "server/services/commands/flush_command.h"

#include "server/services/commands/in_context.h"
#include "server/services/failure_proto.h"

namespace weir {
namespace {

void FillWork(const FlushedWork& from, v1::FlushedWork* work) {
  work->set_work(from.tag);
  work->set_label(from.label);
  work->set_position(from.position);
}

absl::Status FlushContext(const InsideContext& inside, const v1::ContextFlush&,
                          v1::ContextFlushed* response) {
  FillFlushed(inside.activation.Flush(), response);
  return absl::OkStatus();
}

}  // namespace

void FillFlushed(const FlushResult& result, v1::ContextFlushed* flushed) {
  for (const FlushedWork& work : result.executed) {
    FillWork(work, flushed->add_executed());
  }
  for (const FlushedWork& work : result.dropped) {
    FillWork(work, flushed->add_skipped());
  }
  for (const FailedWork& work : result.failed) {
    v1::FailedWork* const failed = flushed->add_failed();
    failed->set_work(work.tag);
    failed->set_label(work.label);
    *failed->mutable_failure() = ToFailure(work.status);
  }
  flushed->set_failed_total(result.failed_total);
}

void AddFlushCommand(ServiceContext* context, CommandHandlers* handlers) {
  handlers->Add(
      v1::Command::kContextFlush,
      InContext<v1::ContextFlush, v1::ContextFlushed>(context, FlushContext));
}

}  // namespace weir
