// A sweeper that goes to rest while a timer is pulled forward, or another is armed: it knows of the
// earlier tick, or it is woken.
//
// run:
// run: -DSWEEPS=2 -DNEW=3
// run: -DINSERT=1
// seen: NO_FENCE_AFTER_FILING
// seen: NO_FENCE_BEFORE_RESTING
// seen: NO_RECHECK_BEFORE_RESTING
#include "wheel.h"
#ifndef SWEEPS
#define SWEEPS 0
#endif
#ifndef NEW
#define NEW 1
#endif
#ifndef INSERT
#define INSERT 0
#endif

static u32 generation;
static Tick rests;

static void *sweeper(void *unused) {
  sweep(SWEEPS);
  rests = rest();
  return unused;
}
static void *caller(void *unused) {
  u32 spare = 4;
  if (INSERT) {
    cancel(generation);
    insert(NEW, &spare);
  } else {
    reset(generation, NEW, &spare);
  }
  return unused;
}

int main(void) {
  u32 spare = 0;
  generation = insert(9, &spare);
  run(caller, sweeper, 0);
  u32 now = state_load();
  if (IS_ARMED(now) && !LOAD(woken, RELAXED)) assert(DEADLINE(now) >= rests);
  fires_in_time();
}
