// An insert against a sweep, into an entry that no timer had before, or whose last timer's reference
// lies about. Afterwards the timer fires at its deadline.
//
// run:
// run: -DTO=3
// run: -DSTALE=3
// rc11: -DSTALE=2 -DTO=3
// seen: NO_FENCE_AFTER_FILING
// seen: NO_FENCE_AFTER_PUBLISHING
// seen: NO_RECHECK_AFTER_FILING
#include "wheel.h"
#ifndef DELAY
#define DELAY 1
#endif
#ifndef TO
#define TO 2
#endif
#ifndef STALE
#define STALE 0
#endif

static void *sweeper(void *unused) { sweep(TO); return unused; }
static void *inserter(void *unused) {
  u32 spare = 4;
  insert(STALE ? 3 : DELAY, &spare);
  return unused;
}

int main(void) {
  u32 spare = 0;
  if (STALE) cancel(insert(STALE, &spare));
  run(inserter, sweeper, 0);
  fires_in_time();
}
