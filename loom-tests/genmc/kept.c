// A filer reserves a position in a slot that upkeep takes early, and may not have written there yet.
// Upkeep keeps the block, and the shard's next scan moves to later. A filer that has loaded the next
// scan before is expected and does not report the shard. The sweeper finds the reference before it
// rests or, with SWEEP, in the step that passes the slot, unless its filer has found the step. With
// AGAIN, what keeps it from resting after that is visited by a sweep that makes no step. The filer is
// an insert or, with RESET, a reset.
//
// run:
// run: -DSWEEP
// run: -DSWEEP -DAGAIN
// run: -DRESET
// run: -DRESET -DSWEEP
// run: -DRESET -DSWEEP -DAGAIN
// seen: NO_FENCE_AFTER_FILING
// seen: NO_FENCE_AFTER_TIDYING
// seen: TIDIED_NOT_SUSPENDED
// seen: KEPT_NOT_CHECKED
// seen: KEPT_NOT_CHECKED_BY_A_STEP
// seen: KEPT_NOT_CHECKED_WHEN_A_SWEEP_BEGINS
#define DUE 3
#include "filer.h"

static Tick rests;

static void *sweeper(void *unused) {
  prune(1);
#ifdef SWEEP
  take_next(3);
#ifdef AGAIN
  if (has_news()) {
    sweep(3);
    assert(fired);
  }
#endif
#else
  rests = rest();
#endif
  return unused;
}

int main(void) {
  begin(2);
#ifdef RESET
  armed_in(2, 9);
#endif
  put(OTHER, 1);
  run(sweeper, filer, 0);
#ifdef SWEEP
  assert(fired || has_overdue() || LOAD(reports, RELAXED));
#else
  assert(LOAD(woken, RELAXED) || rests <= DUE);
#endif
  must_fire(DUE);
}
