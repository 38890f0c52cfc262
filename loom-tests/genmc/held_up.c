// A resetter stalls after it has lowered `next_visit` and before it has woken the sweeper. Another
// resets to the same tick and relies on this `next_visit`. A sweeper has moved the reference and goes
// to rest. The second resetter must not rely on a wake-up that has not come.
//
// The sweeper and the first resetter run one after the other on one thread. That is enough for the
// faults, and there are few executions.
//
// run:
// seen: NEXT_VISIT_RELAXED
// seen: NO_CHECK_OF_THE_FLAG
// seen: NO_FENCE_AFTER_FILING
// seen: NO_FENCE_AFTER_REPORTING
// seen: NOT_REPORTED
#include "wheel.h"

static Tick rests;

static void *first(void *unused) {
  take_next(2);
  rests = rest();
  u32 spare = 4, seen = STATE(1, 9), was = state_compare_exchange(seen, STATE(1, 3) | REFILING);
  if (was != seen) {
    seen = was;
    was = state_compare_exchange(seen, STATE(1, 3) | REFILING);
  }
  if (was == seen) { // the steps of `refile_as` up to the wake-up
    Tick swept = swept_get();
    Place place = place_for(3, swept);
    file(place, &spare);
    set_next_visit(place, swept);
  }
  return unused;
}
static void *second(void *unused) {
  u32 spare = 8;
  reset(1, 3, &spare);
  return unused;
}

int main(void) {
  begin(1);
  armed_in(3, 9);
  run(first, second, 0);
  u32 now = state_load();
  if (IS_ARMED(now) && DEADLINE(now) == 3 && !LOAD(woken, RELAXED)) assert(rests <= 3);
}
