// Two filers in one shard. One files a reference to another entry in a later slot, so that the shard
// may be reported already, or suspended, when the filer of the timer looks. The sweeper makes a step
// that passes the timer's slot. With REST it goes to rest, and with KEPT upkeep takes the slot early
// before that. The filer is an insert or, with RESET, a reset.
//
// run:
// run: -DREST
// run: -DREST -DKEPT
// run: -DRESET
// run: -DRESET -DREST
// seen: NO_FENCE_AFTER_FILING
// seen: NO_FENCE_AFTER_REPORTING
// seen: NO_FENCE_AFTER_THE_REPORT_OF_ANOTHER
// seen: NO_FENCE_AFTER_PUBLISHING
// seen: NO_FENCE_AFTER_ACCEPTING
// seen: NOT_REPORTED
// seen: NOT_RECHECKED
// seen: NOT_ACCEPTED
#define DUE 3
#include "filer.h"

static Tick rests;

static void *sweeper(void *unused) {
#ifdef REST
#ifdef KEPT
  prune(1);
#endif
  rests = rest();
#else
  sweep(3);
#endif
  return unused;
}

static void *other(void *unused) {
  file_other(PLACE(2, 4), 2);
  return unused;
}

int main(void) {
  begin(2);
#ifdef RESET
  armed_in(3, 9);
#endif
#ifdef KEPT
  put(OTHER, 1);
#endif
  run(sweeper, filer, other);
  assert(LOAD(woken, RELAXED) || rests <= DUE);
  must_fire(DUE);
}
