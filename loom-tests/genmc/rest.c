// A filer beside a sweeper that goes to rest. The sweeper finds the reference, or the filer wakes
// it. With EXPECTED the sweeper first makes a step to an earlier tick, at which it scans the shard
// by itself. The filer is an insert or, with RESET, a reset.
//
// run:
// run: -DEXPECTED
// run: -DRESET
// run: -DRESET -DEXPECTED
// seen: NO_FENCE_AFTER_FILING
// seen: NO_FENCE_AFTER_REPORTING
// seen: NO_FENCE_AFTER_PUBLISHING
// seen: NO_FENCE_AFTER_ACCEPTING
// seen: NO_FENCE_BEFORE_RESTING
// seen: NOT_REPORTED
// seen: NOT_WOKEN
// seen: NOT_ACCEPTED
// seen: DUE_NOT_SUSPENDED
#define DUE 4
#include "filer.h"

static Tick rests;

static void *sweeper(void *unused) {
#ifdef EXPECTED
  sweep(3);
#endif
  rests = rest();
  return unused;
}

int main(void) {
  begin(2);
#ifdef RESET
  armed_in(3, 9);
#endif
#ifdef EXPECTED
  put(OTHER, 1);
#endif
  run(sweeper, filer, 0);
  assert(LOAD(woken, RELAXED) || rests <= DUE);
  must_fire(DUE);
}
