// The file of a shared library, looked at without loading it: libraries of
// NVIDIA's take up to 150 MiB of memory the moment they are loaded, most of it
// in relocations that no lazy binding puts off. Tells whether the file is
// there, whole and what it says it is. Pure functions; any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace weir {

struct LibraryFile {
  std::string path;
  // Names this very build; empty if the file carries no id.
  std::string build_id;
};

// FAILED_PRECONDITION unless `path` is a shared library for this machine whose
// soname is `soname`, with nothing cut off; NOT_FOUND if there is no file.
absl::StatusOr<LibraryFile> InspectLibrary(const std::string& path,
                                           const std::string& soname);

}  // namespace weir
