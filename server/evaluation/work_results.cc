#include "server/evaluation/work_results.h"

#include <atomic>

namespace weir {
namespace {

struct SharedBlock {
  std::atomic<int> references;
  PinnedBuffer::Block* block;
};

}  // namespace

void WorkResults::Take() {
  if (buffer_.empty()) buffer_ = work_->TakeOutputBuffer();
}

size_t WorkResults::bytes() {
  Take();
  return buffer_.capacity();
}

WorkResults::Shared WorkResults::Share(int count) {
  Take();
  if (count == 1) {
    return {[](void* block) {
              PinnedBuffer::Return(static_cast<PinnedBuffer::Block*>(block));
            },
            buffer_.Release()};
  }
  auto* shared = new SharedBlock{{count}, buffer_.Release()};
  return {[](void* arg) {
            auto* results = static_cast<SharedBlock*>(arg);
            if (results->references.fetch_sub(1) > 1) return;
            PinnedBuffer::Return(results->block);
            delete results;
          },
          shared};
}

void WorkResults::Clear() {
  buffer_.Reset();
  work_->TakeOutputBuffer().Reset();
}

}  // namespace weir
