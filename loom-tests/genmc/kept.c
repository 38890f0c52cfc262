// A filer reserves a position in a slot that upkeep takes early, and may not have written there yet.
// Upkeep keeps the block, and the shard's next scan moves to later. A filer that has loaded the next
// scan before is expected and does not report the shard. The sweeper finds the reference before it
// rests or, with SWEEP, in the step that passes the slot. The filer is an insert or, with RESET, a
// reset.
//
// run:
// run: -DSWEEP
// run: -DRESET
// run: -DRESET -DSWEEP
// seen: NO_FENCE_AFTER_FILING
// seen: NO_FENCE_AFTER_TIDYING
// seen: TIDIED_NOT_SUSPENDED
// seen: KEPT_NOT_CHECKED
#define DUE 3
#include "filer.h"

static Tick rests;

static void *sweeper(void *unused) {
  tidy(1);
#ifdef SWEEP
  take_next(3);
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
  assert(LOAD(woken, RELAXED) || rests <= DUE);
  must_fire(DUE);
}
