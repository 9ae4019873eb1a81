// Marks what libweir.so offers to the server, the tests and the CUDA backend.
// Everything else is hidden.
#pragma once

#define WEIR_EXPORT __attribute__((visibility("default")))
