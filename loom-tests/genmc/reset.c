// A reset while the sweep visits the timer's only reference: to earlier, to later, in time for the reference,
// to a tick that is being swept. Afterwards the timer fires at its deadline.
//
// run:
// run: -DOLD=3 -DNEW=5
// run: -DOLD=2 -DNEW=5
// run: -DOLD=5 -DNEW=2
// rc11: -DOLD=5 -DNEW=3 -DAGAIN=6
// seen: REFILED_NOT_REVALIDATED
// seen: STATE_RELAXED
#include "wheel.h"
#ifndef OLD
#define OLD 5
#endif
#ifndef NEW
#define NEW 3
#endif
#ifndef AGAIN
#define AGAIN 0
#endif

static void *sweeper(void *unused) { sweep_slot_3(); return unused; }
static void *resetter(void *unused) {
  u32 spare = 4;
  reset(1, NEW, &spare);
  if (AGAIN) reset(1, AGAIN, &spare);
  return unused;
}

int main(void) {
  armed_in_slot_3(OLD);
  run(resetter, sweeper, 0);
  fires_in_time();
}
