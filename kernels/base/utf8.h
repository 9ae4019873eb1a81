// UTF-8, which names must be: protobuf's strings, Prometheus and JSON take
// nothing else, and one bad name would spoil a list for every reader. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "kernels/base/export.h"

namespace weir {

// Shortest forms up to U+10FFFF, no surrogates: what protobuf takes.
WEIR_EXPORT bool IsUtf8(std::string_view text);

// The same text, with \xNN for every byte that belongs to no such form.
WEIR_EXPORT std::string EscapeNonUtf8(std::string_view text);

// How a text begins, in at most so many bytes: a character that they would cut
// through is left out.
WEIR_EXPORT std::string_view CutText(std::string_view text, size_t bytes);

// How a text begins, escaped and in quotes, for an error that repeats what
// somebody wrote: whole up to 64 bytes, else with "..." where it is cut.
WEIR_EXPORT std::string QuoteStart(std::string_view text);

}  // namespace weir
