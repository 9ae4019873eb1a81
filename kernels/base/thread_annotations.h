// Clang's thread-safety annotations; nothing for other compilers.
#pragma once

#if defined(__clang__)
#define WEIR_TSA(x) __attribute__((x))
#else
#define WEIR_TSA(x)
#endif

#define WEIR_CAPABILITY(x) WEIR_TSA(capability(x))
#define WEIR_SCOPED_CAPABILITY WEIR_TSA(scoped_lockable)
#define WEIR_GUARDED_BY(x) WEIR_TSA(guarded_by(x))
#define WEIR_REQUIRES(...) WEIR_TSA(requires_capability(__VA_ARGS__))
#define WEIR_EXCLUDES(...) WEIR_TSA(locks_excluded(__VA_ARGS__))
#define WEIR_ACQUIRE(...) WEIR_TSA(acquire_capability(__VA_ARGS__))
#define WEIR_RELEASE(...) WEIR_TSA(release_capability(__VA_ARGS__))
#define WEIR_NO_THREAD_SAFETY_ANALYSIS WEIR_TSA(no_thread_safety_analysis)
