// CHECK: an impossible state ends the process, in release builds too. A dead enforcer means no
// access. Never used on hostile input or on likely failures of the environment.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                                    \
  do {                                                                                      \
    if (!(condition)) {                                                                     \
      std::fprintf(stderr, "cofferdam: internal error: %s (%s:%d)\n", #condition, __FILE__, \
                   __LINE__);                                                               \
      std::abort();                                                                         \
    }                                                                                       \
  } while (false)
