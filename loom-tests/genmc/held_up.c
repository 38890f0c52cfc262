// A resetter that stands still after it has lowered `next_visit` and before it has woken the sweeper; another, to
// the same tick, that relies on this `next_visit`; a sweeper that has moved the reference and goes to rest. The
// second must not rely on a wake that has not come.
//
// The sweeper and the first resetter run one after the other on one thread: enough for the faults,
// and few executions.
//
// run:
// seen: NEXT_VISIT_RELAXED
// seen: NO_CHECK_OF_THE_FLAG
// seen: NO_FENCE_AFTER_FILING
#include "wheel.h"

static Tick rests;

static void *first(void *unused) {
  sweep_slot_3();
  rests = rest();
  u32 spare = 4, seen = STATE(1, 9), was = state_swap(seen, STATE(1, 3) | REFILING);
  if (was != seen) {
    seen = was;
    was = state_swap(seen, STATE(1, 3) | REFILING);
  }
  if (was == seen) { // steps 2 and 3 of Shard::refile_as, and no further
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
  armed_in_slot_3(9);
  run(first, second, 0);
  u32 now = state_load();
  if (IS_ARMED(now) && DEADLINE(now) == 3 && !LOAD(woken, RELAXED)) assert(rests <= 3);
}
