// A filer beside a step of the sweep that passes its slot. The step finds the reference, or the
// filer finds the step. With EXPECTED the sweeper scans the shard at that tick by itself, because it
// knows of another reference there. The filer is an insert or, with RESET, a reset.
//
// run:
// run: -DEXPECTED
// run: -DRESET
// run: -DRESET -DEXPECTED
// seen: NO_FENCE_AFTER_FILING
// seen: NO_FENCE_AFTER_REPORTING
// seen: NO_FENCE_AFTER_PUBLISHING
// seen: NO_FENCE_AFTER_ACCEPTING
// seen: NOT_REPORTED
// seen: NOT_RECHECKED
// seen: NOT_ACCEPTED
// seen: DUE_NOT_SUSPENDED
#define DUE 3
#include "filer.h"

static void *sweeper(void *unused) {
  sweep(3);
  return unused;
}

int main(void) {
  begin(2);
#ifdef RESET
  armed_in(2, 9);
#endif
#ifdef EXPECTED
  put(OTHER, 1);
#endif
  run(sweeper, filer, 0);
  must_fire(DUE);
}
