// Two threads file a reference each in one slot while the sweep takes it: who does not find at its
// re-check that the sweep has come may rely on its reference having been taken; what is left in the
// slot is marked.
//
// run:
// run: -DEARLIER=1
// run: -DMARKED=1
// run: -DEARLIER=1 -DMARKED=1
// same: MARK_RELAXED
// same: CLEAR_RELAXED
// seen: PUSH_RELAXED
// seen: TAKE_RELAXED
// seen: UNMARKED_AFTER_THE_TAKE
// seen: NO_FENCE_AFTER_FILING
// seen: NO_FENCE_AFTER_PUBLISHING
#include "wheel.h"
#ifndef EARLIER
#define EARLIER 0 // the slot is taken early before, as upkeep does
#endif
#ifndef MARKED
#define MARKED 0 // a reference lies in the slot before the threads begin
#endif

static Tick recheck[2];
static u32 taken;

static void filer(u32 number, u32 spare) {
  file(PLACE(1, 1), &spare);
  FULL_FENCE(NO_FENCE_AFTER_FILING);
  recheck[number] = swept_get();
}
static void *first(void *unused) { filer(0, 4); return unused; }
static void *second(void *unused) { filer(1, 8); return unused; }

static u32 count(u32 head) {
  u32 sum = 0;
  for (u32 names_in = COUNT(head); head; names_in = REFERENCES) {
    sum += names_in;
    head = next_block[BLOCK(head)];
  }
  return sum;
}
static void take_if_marked(Tick tick) {
  publish(tick);
  if (SLOT_OF(next_in(0, 0)) == 1) taken += count(take(1));
}
static void *taker(void *unused) {
  if (EARLIER) take_if_marked(0);
  take_if_marked(1);
  return unused;
}

int main(void) {
  u32 spare = 0;
  if (MARKED) file(PLACE(1, 1), &spare);
  run(first, second, taker);
  u32 must = (recheck[0] < 1) + (recheck[1] < 1), left = count(LOAD(heads[1], RELAXED));
  assert(taken >= must);
  assert(taken + left == 2 + MARKED);
  assert(!left || LOAD(occupied[0], RELAXED) & 2);
}
