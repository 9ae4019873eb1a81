// How far a numbered work has come, as it is told.
#pragma once

#include "proto/weir/v1/command.pb.h"
#include "server/services/service_context.h"
#include "server/spaces/kept_work.h"

namespace weir {

// `full`: with the details of its report, once it is done. Any thread.
v1::WorkStatus StatusOf(const ServiceContext& context, const KeptWork& work,
                        bool full);

}  // namespace weir
